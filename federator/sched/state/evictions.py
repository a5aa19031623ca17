"""The evictions of late, which the windows of the budget count."""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import Final, NamedTuple

from federator.model.event import Changed, SnapshotEvictions
from federator.sched.state.rules import LEAST_GPUS

EVICTIONS_KEPT: Final = 100_000


class Eviction(NamedTuple):
    """A victim was told to leave."""

    at_s: float
    gpus: int


class EvictionHistory:
    """The latest evictions in order of time; only the ledger adds to them.

    Attributes:
        within: the budget.
        beyond: the budget, for start objectives.
    """

    def __init__(self) -> None:
        self.within: deque[Eviction] = deque(maxlen=EVICTIONS_KEPT)
        self.beyond: deque[Eviction] = deque(maxlen=EVICTIONS_KEPT)

    def add(self, event: Changed, gpus: int) -> None:
        """One that holds so many GPUs, or parts of one, is told to leave."""
        kept = self.beyond if event.beyond_budget else self.within
        kept.append(Eviction(event.at_s, max(LEAST_GPUS, gpus)))

    def restore(self, record: SnapshotEvictions) -> None:
        """These follow those that are known."""
        self.within.extend(Eviction(*each) for each in record.evictions)
        self.beyond.extend(Eviction(*each) for each in record.beyond_budget)


def since(evictions: deque[Eviction], since_s: float) -> list[Eviction]:
    """Those after an instant, the latest first."""
    return list(takewhile(lambda eviction: eviction.at_s > since_s, reversed(evictions)))
