"""Kinds of runs, and the latest durations of each."""

from __future__ import annotations

from math import inf

import pytest

from federator.model.workload import TenantName
from federator.sched.state import recent_runs
from federator.sched.state.recent_runs import RecentRuns, kinds_of, name_pattern, size_class

KINDS = kinds_of((TenantName("vision"), "vision1", "train-1"), 8)
HOUR_S = 3600.0


def runs_of(*durations_s: float) -> RecentRuns:
    recent = RecentRuns()
    for duration_s in durations_s:
        recent.add(KINDS, duration_s, cut_off=False)
    return recent


def test_numbers_in_a_name_tell_no_families_apart() -> None:
    assert name_pattern("train-17-lr0.01") == name_pattern("train-2-lr0.3")


@pytest.mark.parametrize(
    ("gpus", "size"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (8, 4), (9, 5), (16, 5)]
)
def test_sizes_are_told_apart_by_doublings(gpus: int, size: int) -> None:
    assert size_class(gpus) == size


def test_only_the_latest_runs_are_kept() -> None:
    recent = runs_of(*[HOUR_S] * 1000)
    assert recent.count(8) == recent_runs.RUNS_KEPT[-1]
    assert recent.count(1) == 0


def test_those_that_took_longer_are_found() -> None:
    longer = runs_of(*[60.0] * 10, *[HOUR_S] * 10).longer(KINDS, 600.0)
    assert longer is not None
    assert longer.runs == 10
    assert longer.mean_s(inf) == pytest.approx(HOUR_S, rel=0.05)
    assert longer.mean_s(900.0) == 900.0
    assert runs_of(60.0).longer(KINDS, 600.0) is None


def test_one_that_was_cut_off_counts_as_one_that_ran_longer() -> None:
    recent = runs_of(*[HOUR_S] * 20)
    recent.add(KINDS, 60.0, cut_off=True)
    longer = recent.longer(KINDS, 0.0)
    assert longer is not None
    assert longer.quantile_s(0.01) >= HOUR_S
    assert recent.cut_offs == 1


def test_what_was_saved_is_restored() -> None:
    recent, restored = runs_of(60.0, HOUR_S), RecentRuns()
    restored.restore(recent.saved())
    assert list(restored.saved()) == list(recent.saved())
