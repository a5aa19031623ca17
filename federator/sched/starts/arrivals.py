"""Remembers what came to the queue, and says what may come: the same as on an earlier day."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from federator.model.workload import Workload

DAY_S: Final = 86_400.0
KEPT: Final = 20_000
KEPT_S: Final = 8 * DAY_S
LEAST_SPAN_S: Final = 3600.0  # a memory of less foretells nothing
MOST_COMING: Final = 2_000  # in a play; after them it goes on without


class EarlierArrival(NamedTuple):
    """A workload that came."""

    at_s: float  # Unix time
    workload: Workload


class Arrivals:
    """The latest arrivals, in the order in which they came."""

    def __init__(self) -> None:
        self._known: deque[EarlierArrival] = deque(maxlen=KEPT)
        self._listed: list[EarlierArrival] | None = None  # the same, until another one comes

    def add(self, workload: Workload) -> None:
        """It came, after those that came before."""
        known, at_s = self._known, workload.submitted_at_s
        self._listed = None
        known.append(EarlierArrival(max(at_s, known[-1].at_s) if known else at_s, workload))
        while known[0].at_s < known[-1].at_s - KEPT_S:
            known.popleft()

    def coming(self, now_s: float, play: int, frac: float) -> Iterator[tuple[float, Workload]]:
        """What may come from now on, each after how many seconds.

        What came since this time of an earlier day, another one for each play; where less than a
        day is remembered, what came since some moment. After its end the memory begins again.

        Args:
            now_s: Unix time.
            play: its number.
            frac: which moment, from 0 to below 1.
        """
        if self._listed is None:
            self._listed = list(self._known)
        known, span_s = self._listed, now_s - self._listed[0].at_s
        days = int(span_s / DAY_S)
        back_s = DAY_S * (1 + play % days) if days else span_s * (1.0 - frac)
        began_s = now_s - back_s
        k = bisect_left(known, began_s, key=lambda arrival: arrival.at_s)
        for _ in range(MOST_COMING):
            if k == len(known):
                k, began_s = 0, began_s - span_s
            at_s, workload = known[k]
            yield max(0.0, at_s - began_s), workload
            k += 1

    def foretell(self, now_s: float) -> bool:
        """Whether enough is remembered to say what may come."""
        return bool(self._known) and now_s - self._known[0].at_s >= LEAST_SPAN_S
