"""The interface of a policy: it ranks what waits, owns no state and does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from federator.model.workload import WorkloadId
from federator.sched.state.ledger import Ledger


class Ranked(NamedTuple):
    """One workload's standing: the tuple <priority, credit> of MAST, with the terms of the credit.

    ``credit == age_term + fair_share_term - nice_term - non_preemptible_term``
    """

    id: WorkloadId
    priority: int  # 1 goes first
    within_quota: bool
    credit: float = 0.0
    age_term: float = 0.0
    fair_share_term: float = 0.0
    nice_term: float = 0.0
    non_preemptible_term: float = 0.0


class Ranking(Protocol):
    """The order of one instant: total and repeatable."""

    def __iter__(self) -> Iterator[Ranked]:
        """All that waited when it was made, first to try first.

        What leaves the queue while the iterator is in use may still be given, or not.
        """
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

    def listed(self) -> Sequence[Ranked]:
        return self._ranked
