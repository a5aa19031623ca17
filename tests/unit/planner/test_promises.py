"""A forecast that breaks too many promises is off, and on again when it keeps them."""

from __future__ import annotations

import pytest

from federator.planner.history import STEP_S, PoolHistory
from federator.planner.promises import ENOUGH, RECALLED, Promises, stride_of

WINDOWS_S = (STEP_S, 12 * STEP_S)


class Pools:
    """Two pools of 16 GPUs that are promised 4 new ones at each step."""

    def __init__(self) -> None:
        self.history = PoolHistory(2, WINDOWS_S, 0)
        self.promises = Promises([16, 16], self.history.windows)
        self._at_s = 0
        self.history.close(0)

    def live(self, steps: int, *loads: int) -> None:
        for _ in range(steps):
            for window in range(len(WINDOWS_S)):
                self.promises.make(self.history.steps, window, [4, 4])
            for pool, gpus in enumerate(loads):
                if gpus:
                    self.history.arrived(pool, gpus)
            self._at_s += STEP_S
            self.history.close(self._at_s)
            self.promises.settle(self.history)


def test_a_promise_is_kept_if_no_more_came() -> None:
    pools = Pools()
    pools.live(30, 4, 5)
    assert pools.promises.made(0) == 30
    assert [pools.promises.kept(0, pool) for pool in (0, 1)] == [30, 0]
    assert pools.promises.made(1) == 30 - 11  # the last eleven are not over


def test_nothing_is_off_before_enough_promises_are_over() -> None:
    pools = Pools()
    pools.live(ENOUGH - 1, 0, 16)
    assert not pools.promises.is_off(0, 1)
    pools.live(1, 0, 16)
    assert [pools.promises.is_off(0, pool) for pool in (0, 1)] == [False, True]


def test_a_forecast_is_back_on_when_it_has_recovered_and_not_sooner() -> None:
    pools = Pools()
    pools.live(RECALLED, 0, 16)
    assert pools.promises.is_off(0, 1)
    pools.live(int(0.85 * RECALLED), 0, 0)
    assert pools.promises.is_off(0, 1)  # above the bound at which it went off, below the other
    pools.live(int(0.05 * RECALLED), 0, 0)
    assert not pools.promises.is_off(0, 1)
    pools.live(int(0.15 * RECALLED), 0, 16)
    assert not pools.promises.is_off(0, 1)
    pools.live(int(0.10 * RECALLED), 0, 16)
    assert pools.promises.is_off(0, 1)


def test_each_window_is_judged_by_itself() -> None:
    pools = Pools()
    pools.live(120, 1, 0)  # 12 in an hour, of which 4 were promised
    assert [pools.promises.is_off(window, 0) for window in (0, 1)] == [False, True]


def test_no_more_than_the_quota_is_anybodys_promise() -> None:
    pools = Pools()
    for _ in range(30):
        pools.promises.make(pools.history.steps, 0, [16, 16])
        pools.live(1, 99, 99)
    assert pools.promises.kept(0, 0) == 30  # those of 16; those of 4 were broken


@pytest.mark.parametrize(("length", "stride"), [(1, 1), (12, 1), (144, 12)])
def test_long_windows_are_promised_less_often(length: int, stride: int) -> None:
    assert stride_of(length) == stride
