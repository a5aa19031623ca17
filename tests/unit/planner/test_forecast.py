"""Forecasts rest on what was told, and on nothing else."""

from __future__ import annotations

from math import inf

import numpy as np

from federator.planner.anticipation import length_class
from federator.planner.boosted import FIRST_S, BoostedForecast
from federator.planner.forecast import (
    CoinDurations,
    CoinForecast,
    Forecaster,
    LatelyForecast,
    SimilarJobs,
)
from federator.planner.history import STEP_S, PoolHistory

DAY_S = 86_400


def test_a_duration_is_in_the_first_window_it_fits() -> None:
    found = [length_class(s) for s in (1, 300, 300.5, 3600, 3601, 43_200, 43_201, inf)]
    assert found == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_job_is_expected_to_run_as_long_as_most_of_those_like_it() -> None:
    similar = SimilarJobs()
    assert similar.expect_s("ann", 0, 4) == inf
    similar.ended("ann", 0, 4, 10)
    assert similar.expect_s("bob", 0, 64) == 10  # one of the pool is better than none
    for s in (10, 20, 30, 40):
        similar.ended("ann", 0, 5, s)
    assert similar.expect_s("ann", 0, 7) == 20  # 4 to 7 GPUs are similar: 10 10 20 30 40
    for s in (100, 200, 300, 400, 500):
        similar.ended("bob", 0, 4, s)
    assert similar.expect_s("bob", 0, 4) == 300
    assert similar.expect_s("ann", 0, 4) == 20
    assert similar.expect_s("cat", 0, 4) == 100  # of all ten of that pool and size, the sixth
    assert similar.expect_s("ann", 1, 4) == inf


def test_only_the_last_hundred_of_a_kind_are_recalled() -> None:
    similar = SimilarJobs()
    for s in [1] * 500 + [9] * 60:
        similar.ended("ann", 0, 1, s)
    assert similar.expect_s("ann", 0, 1) == 9


def test_new_load_is_the_most_seen_lately_where_jobs_are_expected() -> None:
    seen = Forecaster(2, 0, LatelyForecast(), SimilarJobs())
    seen.arrived(1, 10, "ann", 0, 4)
    seen.arrived(2, 20, "ann", 0, 3)
    seen.arrived(3, 20, "ann", 1, 2)
    assert seen.new_load(20, 0) == [0, 0]  # step 0 is all that is closed
    assert seen.new_load(300, 0) == [7, 2]
    seen.arrived(4, 400, "ann", 0, 1)
    assert seen.new_load(600, 0) == [7, 0]  # pool 0: 7 in the five minutes before
    assert seen.new_load(600, 1) == [8, 2]
    assert seen.new_load(3000, 0) == [0, 0]


def test_a_forecaster_learns_durations_from_ends() -> None:
    seen = Forecaster(1, 0, LatelyForecast(), SimilarJobs())
    assert seen.arrived(1, 10, "ann", 0, 4) == 3
    seen.started(1, 20)
    seen.ended(1, 140)
    assert seen.arrived(2, 150, "ann", 0, 4) == 0


def test_coins_fall_on_both_sides() -> None:
    history = PoolHistory(1000, (300,), 0)
    history.close(0)
    assert 400 < CoinForecast(1).says(history, 0).sum() < 600
    drawn = CoinDurations(1, (300, 3600))
    assert {drawn.expect_s("ann", 0, 1) for _ in range(100)} == {300, 3600, inf}


def daily(days: int) -> PoolHistory:
    """Pool 0 gets a job at each full hour; pool 1 at noon; nothing else ever comes."""
    history = PoolHistory(2, (300,), 0)
    for at_s in range(0, days * DAY_S + 1, STEP_S):
        history.close(at_s - 1)
        if at_s and at_s % 3600 == 0:
            history.arrived(0, 1)
        if at_s % DAY_S == DAY_S // 2:
            history.arrived(1, 8)
    history.close(days * DAY_S)
    return history


def test_trees_learn_when_jobs_come() -> None:
    history, trees = daily(6), BoostedForecast()
    said = []
    for at_s in range(6 * DAY_S + STEP_S, 7 * DAY_S, STEP_S):
        history.close(at_s - 1)
        if at_s % 3600 == 0:
            history.arrived(0, 1)
        history.close(at_s)
        said.append(bool(trees.says(history, 0)[0]))
        expected = (at_s + STEP_S) % 3600 == 0
        assert said[-1] == expected, f"{at_s} s"
    assert any(said)


def test_before_the_first_days_are_over_the_plain_rule_holds() -> None:
    history, trees, plain = daily(2), BoostedForecast(), LatelyForecast()
    for at_s in range(2 * DAY_S + STEP_S, FIRST_S, STEP_S):
        history.close(at_s - 1)
        if at_s % 3600 == 0:
            history.arrived(0, 1)
        history.close(at_s)
        assert np.array_equal(trees.says(history, 0), plain.says(history, 0))


def test_where_all_outcomes_were_the_same_the_plain_rule_holds() -> None:
    history = PoolHistory(1, (300,), 0)
    history.close(FIRST_S + STEP_S)
    assert BoostedForecast().says(history, 0).tolist() == [False]
