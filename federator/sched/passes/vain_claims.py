"""Vain claims: shapes for which nobody's eviction helped, each until it is tried again."""

from __future__ import annotations

from typing import Final

from federator.model.lifecycle import WorkloadState
from federator.model.workload import SiteName
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.queue.ranked import Ranked
from federator.sched.state.ledger import Ledger

AGAIN_S: Final = 60.0  # a shape is tried again after this time


_Shape = tuple[int, int, frozenset[SiteName]]
"""The number of what is asked for, its priority, and the home of its tenant."""


class VainClaims:
    """The shapes that are not worth a claim now.

    Args:
        ledger: knows who is starting.
        terms: of whoever may be evicted, as of the last pass.
    """

    def __init__(self, ledger: Ledger, terms: EvictionTerms) -> None:
        self._ledger = ledger
        self._terms = terms
        self._until_s: dict[_Shape, float] = {}
        self._hopeful: set[_Shape] = set()  # of them; some were starting who may be evicted by then
        self._now_s = 0.0  # of the last pass

    def begin_pass(self, now_s: float) -> None:
        """Forget those that are to be tried again."""
        self._now_s = now_s
        self._until_s = {key: at_s for key, at_s in self._until_s.items() if at_s > now_s}
        self._hopeful &= self._until_s.keys()

    def has(self, number: int, priority: int, home: frozenset[SiteName]) -> bool:
        """Tell whether nobody's eviction helped a shape when it was last tried."""
        return self._until_s.get((number, priority, home), 0.0) > self._now_s

    def add(self, number: int, ranked: Ranked) -> None:
        """One was tried for a workload of this shape."""
        tenancy = self._ledger.tenancy
        home = tenancy.home(tenancy.row(self._ledger.entries[ranked.id].workload.tenant))
        shape = number, ranked.priority, home
        self._until_s[shape] = self._now_s + AGAIN_S
        if self._some_start(ranked.priority):
            self._hopeful.add(shape)

    def next_try_s(self) -> float | None:
        """Unix time by which there may be victims for a shape that had none; None: for none."""
        return min((self._until_s[shape] for shape in self._hopeful), default=None)

    def _some_start(self, priority: int) -> bool:
        """Tell whether somebody of a lower priority starts, who was no victim when it was tried."""
        starting = self._ledger.in_state(WorkloadState.AWARDED, WorkloadState.LAUNCHING)
        found = (*starting, *self._terms.just_started())
        return any(e.award is not None and e.award.priority > priority for e in found)
