"""Averages of usage, by hand: 168 buckets, so a window of 168 s has one for each second."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from federator.model.workload import TenantName
from federator.sched.state.usage import BUCKETS, DecayedAverage, UsageAverage, WindowAverage

WINDOW_S = float(BUCKETS)
HALF_LIFE_S = 100.0


def both() -> list[UsageAverage]:
    return [WindowAverage(WINDOW_S), DecayedAverage(HALF_LIFE_S)]


def of(average: UsageAverage, now_s: float, row: int = 0) -> float:
    return float(average.averages(row + 1, now_s)[row])


def test_nobody_has_used_anything_at_first() -> None:
    for average in both():
        assert average.averages(3, 1e9).tolist() == [0.0, 0.0, 0.0]
        assert average.averages(0, 1e9).tolist() == []


def test_eight_gpus_for_half_the_window_average_to_four() -> None:
    average = WindowAverage(WINDOW_S)
    average.change(0, 8.0, 1000.0)
    assert of(average, 1084.0) == 4.0
    assert of(average, 1168.0) == of(average, 5000.0) == 8.0  # they still run


def test_use_leaves_the_window_at_its_far_end() -> None:
    average = WindowAverage(WINDOW_S)
    average.change(0, 8.0, 1000.0)
    average.change(0, -8.0, 1084.0)
    assert of(average, 1168.0) == 4.0
    assert of(average, 1210.0) == 2.0
    assert of(average, 1252.0) == 0.0


def test_the_bucket_that_the_far_end_cuts_counts_in_proportion() -> None:
    average = WindowAverage(WINDOW_S)
    average.change(0, 168.0, 1000.0)
    average.change(0, -168.0, 1001.0)  # 168 GPU-seconds in one bucket
    assert of(average, 1168.0) == 1.0
    assert of(average, 1168.25) == 0.75
    assert of(average, 1169.0) == 0.0


def test_use_within_one_bucket_is_still_seen_a_whole_window_later() -> None:
    average = WindowAverage(WINDOW_S)
    average.change(0, 168.0, 1000.0)
    average.change(0, -168.0, 1000.5)
    assert of(average, 1168.25) == 0.375  # 84 GPU-seconds, a quarter of the bucket cut off
    assert of(average, 1169.0) == 0.0


def test_constant_use_averages_to_itself_with_decay() -> None:
    average = DecayedAverage(HALF_LIFE_S)
    average.change(0, 8.0, 0.0)
    assert of(average, 100.0) == 4.0  # one half-life in
    assert of(average, 200.0) == 6.0
    assert of(average, 1e6) == 8.0


def test_use_counts_half_after_every_half_life() -> None:
    average = DecayedAverage(HALF_LIFE_S)
    average.change(0, 8.0, 0.0)
    average.change(0, -8.0, 100.0)
    assert [of(average, t) for t in (100.0, 200.0, 300.0)] == [4.0, 2.0, 1.0]


def test_a_gap_far_longer_than_the_window_forgets_what_was_and_keeps_what_is() -> None:
    average = WindowAverage(WINDOW_S)
    average.change(0, 8.0, 10.0)
    average.change(1, 4.0, 10.0)
    average.change(0, -8.0, 1_700_000_000.0)
    assert average.averages(2, 1_700_000_000.0).tolist() == pytest.approx([8.0, 4.0], rel=1e-6)
    assert average.averages(2, 1_700_001_000.0).tolist() == pytest.approx([0.0, 4.0], rel=1e-6)


def test_while_time_stands_still_changes_add_up_and_nothing_is_used() -> None:
    for average in both():
        for by in (8.0, 4.0, -8.0):
            average.change(0, by, 500.0)
        assert of(average, 500.0) == 0.0
        assert of(average, 1e6) == 4.0


def test_a_time_before_the_last_change_counts_as_that_time() -> None:
    for average in both():
        average.change(0, 8.0, 1000.0)
        average.change(0, 8.0, 900.0)
        assert of(average, 800.0) == 0.0
        assert of(average, 1e6) == 16.0


def test_a_tenant_that_appears_later_has_used_nothing_before() -> None:
    for average in both():
        average.change(0, 8.0, 0.0)
        before = of(average, 84.0)
        average.change(3, 2.0, 84.0)
        assert average.averages(4, 84.0).tolist() == [before, 0.0, 0.0, 0.0]
        assert average.averages(6, 1e6).tolist() == [8.0, 0.0, 0.0, 2.0, 0.0, 0.0]


def test_asking_about_fewer_tenants_than_there_are_gives_the_first() -> None:
    for average in both():
        average.change(2, 2.0, 0.0)
        assert average.averages(1, 100.0).tolist() == [0.0]


def test_use_never_falls_below_nothing() -> None:
    for average in both():
        average.change(0, 0.1, 0.0)
        average.change(0, 0.2, 1.0)
        for _ in range(2):
            average.change(0, -0.3, 2.0)
        assert of(average, 2.0) > 0.0
        assert 0.0 <= of(average, 1e7) < 1e-12


def test_averages_asked_for_in_between_change_nothing() -> None:
    rng = np.random.default_rng(4)
    asked, left_alone = WindowAverage(WINDOW_S), WindowAverage(WINDOW_S)
    at_s = 0.0
    for k in range(60):
        for row in (0, k % 3):
            by_gpus = float(rng.integers(1, 9))
            asked.change(row, by_gpus, at_s)
            left_alone.change(row, by_gpus, at_s)
        for ahead_s in sorted(rng.random(4) * 3 * WINDOW_S):
            asked.averages(3, at_s + ahead_s)
        then_s = at_s + 1.4 * WINDOW_S * float(rng.random())
        anew = copy.deepcopy(left_alone)
        assert asked.averages(3, then_s).tolist() == anew.averages(3, then_s).tolist()
        at_s += WINDOW_S * float(rng.random()) ** 3 / 5
    names = [TenantName(name) for name in "abc"]
    assert list(asked.saved(names, at_s)) == list(left_alone.saved(names, at_s))
