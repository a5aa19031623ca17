"""GPU time is added up by day: held, and stranded."""

from __future__ import annotations

import pytest

from federator.sim.report.bootstrap import mean_interval, ratio_interval
from federator.sim.report.gpu_time import DAY_S, Use, gpu_time


def test_free_gpus_are_stranded_while_a_job_waits_that_would_fit_on_them() -> None:
    held = [Use(6, 0.0, 100.0)]
    waiting = [Use(2, 10.0, 30.0), Use(4, 0.0, 100.0), Use(2, 20.0, 40.0)]
    found = gpu_time(held, waiting, 8, 0.0, 200.0)
    assert found.held_gpu_s == {0: 600.0}
    assert found.stranded_gpu_s == {0: 2 * 30.0}  # 10 to 40: the one of 4 would not fit
    assert found.allocation_frac == pytest.approx(600 / 1600)
    assert found.stranded_frac == pytest.approx(60 / 1600)


def test_days_are_told_apart_and_what_is_outside_does_not_count() -> None:
    held = [Use(8, DAY_S - 10, DAY_S + 20), Use(8, 3 * DAY_S, 4 * DAY_S)]
    found = gpu_time(held, [], 8, DAY_S - 20, DAY_S + 100)
    assert found.all_gpu_s == {0: 160.0, 1: 800.0}
    assert found.held_gpu_s == {0: 80.0, 1: 160.0}


def test_no_time_at_all() -> None:
    assert gpu_time([], [], 0, 5.0, 5.0).allocation_frac == 0.0


def test_an_interval_holds_the_mean_and_is_the_same_for_the_same_seed() -> None:
    values, days = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 0, 1, 1, 2, 2]
    found = mean_interval(values, days, seed=1)
    assert found == mean_interval(values, days, seed=1)
    assert found is not None
    assert 1.5 <= found.low < 3.5 < found.high <= 5.5


def test_of_fewer_than_three_days_nothing_is_said() -> None:
    assert mean_interval([1.0, 2.0], [0, 1], seed=0) is None
    assert ratio_interval({}, {0: 1.0, 1: 1.0}, seed=0) is None
    assert ratio_interval({0: 1.0}, {0: 0.0, 1: 0.0, 2: 1.0}, seed=0) is not None
