"""The interface of the policies (``federator.policies``): they rank what waits, own no state and do
no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from federator.sched.queue.rank_walk import RankWalk, walk_of
from federator.sched.queue.ranked import Ranked
from federator.sched.state.ledger import Ledger


class Ranking(Protocol):
    """The order of one instant: total and repeatable."""

    def __iter__(self) -> Iterator[Ranked]:
        """All that waited when it was made, first to try first.

        What leaves the queue while the iterator is in use may still be given, or not.
        """
        ...

    def walk(self) -> RankWalk:
        """A way through the same, on which whole lanes can be left out."""
        ...

    def listed(self) -> Sequence[Ranked]:
        """The same at once."""
        ...


class Policy(Protocol):
    @property
    def by_quota(self) -> bool:
        """Whether quota and credit decide the order, and are worth telling."""
        ...

    def rank(self, ledger: Ledger, now_s: float) -> Ranking:
        """Put the ledger's pending workloads into an order."""
        ...


class RankedList:
    """The ranking of a policy that sorts everything at once."""

    def __init__(self, ranked: Iterable[Ranked]) -> None:
        self._ranked = list(ranked)

    def __iter__(self) -> Iterator[Ranked]:
        return iter(self._ranked)

    def walk(self) -> RankWalk:
        return walk_of(self._ranked)

    def listed(self) -> Sequence[Ranked]:
        return self._ranked
