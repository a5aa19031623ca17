"""Finds those of a pass that may have a claim: within quota, and started nowhere."""

from __future__ import annotations

from federator.model.lifecycle import WorkloadState
from federator.model.workload import WorkloadId
from federator.sched.passes.claims import MOST_CLAIMS, Claims
from federator.sched.queue.rank_walk import Key
from federator.sched.queue.ranked import Ranked
from federator.sched.state.backlog import Lane, Run
from federator.sched.state.ledger import Ledger


class BlockedWorkloads:
    """Those within quota that a pass has found no room for.

    Args:
        ledger: read for what has changed meanwhile.
        claims: nodes that come free for some; None: nobody is evicted, and nobody may claim.
    """

    def __init__(self, ledger: Ledger, claims: Claims | None) -> None:
        self._ledger = ledger
        self._claims = claims
        self._blocked: dict[WorkloadId, tuple[Key, int]] = {}  # with the number of their shape

    def add(self, ranked: Ranked, number: int) -> None:
        """One starts nowhere."""
        if self._claims is not None and ranked.within_quota:
            key = (ranked.priority, -ranked.credit, 0.0, int(ranked.id))
            self._blocked[ranked.id] = (key, number)

    def add_first_of(self, lane: Lane, run: Run, key: Key) -> None:
        """Nobody of a run starts anywhere; of them, the first that has no claim may have one."""
        if self._claims is None or not run.within_quota:
            return
        for position in range(run.start, min(run.stop, run.start + MOST_CLAIMS + 1)):
            at_s, id_ = lane.place(position)
            if id_ not in self._ledger.claims:
                place = (key[0], key[1], at_s, id_)
                self._blocked.setdefault(WorkloadId(id_), (place, lane.shape.number))
                return

    def pop(self) -> tuple[Ranked, int] | None:
        """The first in rank that waits and has no claim, with its shape; None: nobody may claim."""
        claims = self._claims
        if claims is None or len(self._ledger.claims) >= MOST_CLAIMS:
            return None
        tenancy = self._ledger.tenancy
        while self._blocked:
            id_ = min(self._blocked, key=self._blocked.__getitem__)
            key, number = self._blocked.pop(id_)
            entry = self._ledger.entries[id_]
            home = tenancy.home(tenancy.row(entry.workload.tenant))
            waits = entry.state is WorkloadState.PENDING and id_ not in self._ledger.claims
            if waits and not claims.vain.has(number, key[0], home):
                return Ranked(id_, key[0], within_quota=True, credit=-key[1]), number
        return None
