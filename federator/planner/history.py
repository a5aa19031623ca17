"""Counts what came and ended in each pool, on a grid of steps.

Time goes in steps of 5 minutes. Step i is closed once all that happens until its instant has been
told; then its counts are final. All windows are whole steps, so that each count is a difference of
two running totals, for all pools at once.

Source:
    SIA Table 9 and sec. 5.4.1 (NewLoadEstimate). A window of the table that would reach beyond the
    present, as 12 hours from one hour ago would, ends at the present here. What lies before the
    first step counts as nothing. Windows are (a, b] throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Features = NDArray[np.float32]

STEP_S: Final = 300
_PERIODS_S: Final = (3600, 86_400)
_BACK: Final = (1, 2, 3)  # periods
_RECENT: Final = (1, 10, 100)  # windows
FEATURES: Final = len(_PERIODS_S) * len(_BACK) + 2 * len(_RECENT) + 2


class PoolHistory:
    """Arrivals, load and completions of all pools, step by step.

    Args:
        pools: how many there are.
        windows_s: horizons of the forecasts.
        begin_s: instant of step 0.
        step_s: between steps.
    """

    def __init__(
        self, pools: int, windows_s: Sequence[int], begin_s: int, step_s: int = STEP_S
    ) -> None:
        self.pools, self.begin_s, self.step_s = pools, begin_s, step_s
        self.steps = 0  # closed; the last one is steps - 1
        self.windows = [max(1, window_s // step_s) for window_s in windows_s]  # in steps
        self._windows_s = np.array(windows_s)
        self._now = np.zeros((3, pools), np.int64)  # arrivals, GPUs of them, completions
        self._totals = np.zeros((3, pools, 1024), np.int64)  # by step; the first is all zeros
        self._future = np.zeros((1024, len(windows_s), pools, 2), np.float32)
        self._expected: dict[int, tuple[int, float]] = {}  # running: pool, end

    def arrived(self, pool: int, gpus: int) -> None:
        self._now[0, pool] += 1
        self._now[1, pool] += gpus

    def started(self, key: int, pool: int, expected_end_s: float) -> None:
        self._expected[key] = pool, expected_end_s

    def ended(self, key: int) -> None:
        pool, _ = self._expected.pop(key)
        self._now[2, pool] += 1

    def close(self, until_s: float) -> None:
        """All that happens up to this instant has been told: close the steps up to it."""
        while self.begin_s + self.steps * self.step_s <= until_s:
            self.steps += 1
            if self.steps >= self._totals.shape[2]:
                self._totals = np.concatenate([self._totals, np.zeros_like(self._totals)], axis=2)
                self._future = np.concatenate([self._future, np.zeros_like(self._future)])
            self._totals[:, :, self.steps] = self._now
            self._count_expected(self.begin_s + (self.steps - 1) * self.step_s)

    def _count_expected(self, at_s: int) -> None:
        """The number of running jobs expected to end in each window, and later."""
        if not self._expected:
            return
        pools, ends_s = np.array(list(self._expected.values())).T
        for window, length_s in enumerate(self._windows_s):
            late = ends_s > at_s + length_s
            counts = self._future[self.steps, window]
            np.add.at(counts, (pools.astype(np.int64), late.astype(np.int64)), 1)

    def features(self, window: int, first: int, last: int, every: int = 1) -> Features:
        """Table 9 at steps first to last (counted from 1), or some of them, for one window.

        Returns:
            Shape (steps, pools, ``FEATURES``).
        """
        steps = np.arange(first, last + 1, every)[:, None]
        length = self.windows[window]
        starts = [x * period_s // self.step_s for period_s in _PERIODS_S for x in _BACK]
        recent = np.array(_RECENT) * length
        since = steps - np.array([*starts, *recent])
        until = np.minimum(steps, steps - np.array(starts) + length)
        until = np.concatenate([until, np.broadcast_to(steps, (len(steps), len(_RECENT)))], axis=1)
        came = self._between(0, since, until)
        ended = self._between(2, steps - recent, np.broadcast_to(steps, (len(steps), len(recent))))
        future = self._future[first : last + 1 : every, window]
        return np.concatenate([came, ended, future], axis=2, dtype=np.float32)

    def _between(self, kind: int, since: Counts, until: Counts) -> Counts:
        """Shape (steps, pools, windows)."""
        totals = self._totals[kind]
        counts: Counts = totals[:, np.maximum(until, 0)] - totals[:, np.maximum(since, 0)]
        return counts.transpose(1, 0, 2)

    def any_came(self, window: int, first: int, last: int, every: int = 1) -> NDArray[np.bool_]:
        """Did any job come in the window after these steps? Shape (steps, pools)."""
        steps = np.arange(first, last + 1, every)[:, None]
        came: NDArray[np.bool_] = self._between(0, steps, steps + self.windows[window])[:, :, 0] > 0
        return came

    def load_between(self, first: int, last: int) -> Counts:
        """The GPUs that jobs brought after step ``first``, up to step ``last``; by pool."""
        loads: Counts = self._totals[1, :, last] - self._totals[1, :, first]
        return loads

    def came_lately(self, window: int) -> NDArray[np.bool_]:
        """Did any job come in the window that ends now? By pool."""
        step = np.array([[self.steps]])
        came: NDArray[np.bool_] = self._between(0, step - self.windows[window], step)[0, :, 0] > 0
        return came

    def most_load(self, window: int, quanta: int) -> Counts:
        """The most GPUs that jobs brought in any stretch of the window's length, lately; by pool.

        Args:
            window: gives the length.
            quanta: how many such lengths are looked back.
        """
        length = self.windows[window]
        until = np.arange(max(1, self.steps - (quanta - 1) * length), self.steps + 1)[:, None]
        most: Counts = self._between(1, until - length, until)[:, :, 0].max(axis=0)
        return most
