"""Holds each forecast to its word: the part of the promises that was kept decides who lends.

A promise is a forecast of one moment: in this pool, no more GPUs than so will be asked for within
the window. It is settled when the window is over. Where too few of the last ones were kept, the
forecast of that pool and window is *off*: nothing is lent on it. Promises are made and settled all
the same, so it is back on once enough of them are kept again.

Source:
    Chosen here; SIA (sec. 5.4) measures its forecasts beforehand. The gap between both bounds keeps
    a forecast from going on and off all the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from federator.planner.history import Counts, PoolHistory

RECALLED: Final = 100  # promises of a pool and window, the last that are over
ENOUGH: Final = 20  # before so many are over, nothing is off
OFF_BELOW_FRAC: Final = 0.8
ON_FROM_FRAC: Final = 0.9
IN_A_WINDOW: Final = 12  # promises are made so often in one, or at each step

Flags = NDArray[np.bool_]


class Promises:
    """The promises of all pools.

    Args:
        most_gpus: that each pool can be asked for within its quota; more is nobody's promise.
        windows: lengths in steps.
    """

    def __init__(self, most_gpus: Sequence[int], windows: Sequence[int]) -> None:
        self._most_gpus = np.array(most_gpus, np.int64)
        self._windows = windows
        pools = len(most_gpus)
        self._open: list[deque[tuple[int, Counts]]] = [deque() for _ in windows]
        self._settled: list[deque[Flags]] = [deque() for _ in windows]
        self._kept = np.zeros((len(windows), pools), np.int64)
        self._off = np.zeros((len(windows), pools), np.bool_)

    @staticmethod
    def lead_steps(windows: Sequence[int]) -> int:
        """So many steps before now promises are made from, that enough are over by now."""
        return max((length + RECALLED * stride_of(length) for length in windows), default=0)

    def is_due(self, step: int, window: int) -> bool:
        """Whether a promise is made at this step."""
        return step % stride_of(self._windows[window]) == 0

    def make(self, step: int, window: int, new_gpus: Sequence[int]) -> None:
        """Promise that no more will come in the window behind a step."""
        self._open[window].append((step, np.array(new_gpus, np.int64)))

    def settle(self, history: PoolHistory) -> None:
        """Settle those whose window is over by the last closed step."""
        for window, length in enumerate(self._windows):
            waiting = self._open[window]
            while waiting and waiting[0][0] + length <= history.steps:
                step, promised = waiting.popleft()
                came = np.minimum(history.load_between(step, step + length), self._most_gpus)
                self._settle(window, came <= promised)

    def _settle(self, window: int, kept: Flags) -> None:
        settled = self._settled[window]
        settled.append(kept)
        self._kept[window] += kept
        if len(settled) > RECALLED:
            self._kept[window] -= settled.popleft()
        if len(settled) >= ENOUGH:
            frac = self._kept[window] / len(settled)
            off = self._off[window]
            self._off[window] = np.where(off, frac < ON_FROM_FRAC, frac < OFF_BELOW_FRAC)

    def made(self, window: int) -> int:
        """The number of promises that are over and recalled."""
        return len(self._settled[window])

    def kept(self, window: int, pool: int) -> int:
        """The number of those that were kept."""
        return int(self._kept[window, pool])

    def is_off(self, window: int, pool: int) -> bool:
        """Whether nothing is lent on the forecast of a pool."""
        return bool(self._off[window, pool])


def stride_of(length: int) -> int:
    """Steps between two promises of a window of so many steps."""
    return max(1, length // IN_A_WINDOW)
