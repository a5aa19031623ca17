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
    gpus: int  # as the budget counts them


class PastEvictions(deque[Eviction]):
    """PastEvictions in order of time; the oldest are forgotten.

    Attributes:
        largest_gpus: of one of them, or of one that is forgotten.
    """

    def __init__(self) -> None:
        super().__init__(maxlen=EVICTIONS_KEPT)
        self.largest_gpus = 0

    def add(self, eviction: Eviction) -> None:
        self.append(eviction)
        self.largest_gpus = max(self.largest_gpus, eviction.gpus)


class EvictionHistory:
    """The latest evictions in order of time; only the ledger adds to them.

    Attributes:
        within: the budget.
        beyond: the budget, for start objectives.
    """

    def __init__(self) -> None:
        self.within = PastEvictions()
        self.beyond = PastEvictions()

    def add(self, event: Changed, gpus: int) -> None:
        """One that holds so many GPUs, or parts of one, is told to leave."""
        kept = self.beyond if event.beyond_budget else self.within
        kept.add(Eviction(event.at_s, max(LEAST_GPUS, gpus, event.counts_gpus)))

    def restore(self, record: SnapshotEvictions) -> None:
        """These follow those that are known."""
        for kept, found in (
            (self.within, record.evictions),
            (self.beyond, record.beyond_budget),
        ):
            for each in found:
                kept.add(Eviction(*each))


def charged_gpus(gpus: float, whole_gpus: float) -> float:
    """What the eviction of one victim takes of a window's budget: at most all of it.

    One that is larger takes all of it for as many windows as it has GPUs; see ``spent_gpus``.
    """
    return min(gpus, whole_gpus) if whole_gpus else gpus


def spent_gpus(evictions: PastEvictions, whole_gpus: float, window_s: float, now_s: float) -> float:
    """What evictions have taken of the budget that is in force now.

    Args:
        evictions: in order of time.
        whole_gpus: that may be evicted in a window.
        window_s: its length.
        now_s: Unix time.
    """
    found = charged(evictions, whole_gpus, window_s, now_s)
    return sum(charged_gpus(e.gpus, whole_gpus) for e, _ in found)


def charged(
    evictions: PastEvictions, whole_gpus: float, window_s: float, now_s: float
) -> list[tuple[Eviction, float]]:
    """The evictions that the budget still counts, each with the Unix time until which it does."""
    if not whole_gpus:
        return []
    longest_s = window_s * max(1.0, evictions.largest_gpus / whole_gpus)
    until = (
        (e, e.at_s + window_s * max(1.0, e.gpus / whole_gpus))
        for e in since(evictions, now_s - longest_s)
    )
    return [(e, until_s) for e, until_s in until if until_s > now_s]


def since(evictions: PastEvictions, since_s: float) -> list[Eviction]:
    """Those after an instant, the latest first."""
    return list(takewhile(lambda eviction: eviction.at_s > since_s, reversed(evictions)))
