"""Keeps what is to come in a simulation: acts in their order, and the times of ticks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from federator.sim.failures import SimEventKind


class Agenda:
    """What is to come. Of one instant: by kind, then in the order in which it was noted."""

    def __init__(self) -> None:
        self._acts: list[tuple[float, int, int, Callable[[], None]]] = []
        self._ticks: list[float] = []
        self._seq = 0

    def add(self, at_s: float, occasion: SimEventKind, act: Callable[[], None]) -> None:
        """Do this then."""
        self._seq += 1
        heapq.heappush(self._acts, (at_s, occasion, self._seq, act))

    def add_tick(self, at_s: float) -> None:
        """The federation wants a tick then."""
        heapq.heappush(self._ticks, at_s)

    def times(self) -> Iterator[float]:
        """When the next act is due, and the next tick; neither where there is none."""
        if self._acts:
            yield self._acts[0][0]
        if self._ticks:
            yield self._ticks[0]

    def act(self, now_s: float) -> None:
        """Do all that is due, also what comes due meanwhile."""
        while self._acts and self._acts[0][0] <= now_s:
            heapq.heappop(self._acts)[3]()

    def takes_ticks(self, now_s: float) -> bool:
        """Tell whether a tick is due; all that are due are one."""
        is_due = False
        while self._ticks and self._ticks[0] <= now_s:
            heapq.heappop(self._ticks)
            is_due = True
        return is_due
