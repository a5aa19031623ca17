"""Moves workloads out of the queue while they may not start yet, and back into it.

A workload that is held, or whose begin time has not come, is in no lane of the queue: passes cost
nothing for it. The ledger notes which workloads a record may concern (``Ledger.unsettled``); they
are looked at once, behind the observation. Begin times are in a heap, and ask for a ``Tick``.
"""

from __future__ import annotations

import heapq

from federator.model.eligibility import Hold
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import Wake
from federator.model.workload import WorkloadId
from federator.sched.passes.transaction import Transaction
from federator.sched.state.eligibility import is_eligible
from federator.sched.state.ledger import WorkloadRecord

_IN_QUEUE = (WorkloadState.PENDING, WorkloadState.HELD)


class Eligibility:
    """Settles who may wait in the queue."""

    def __init__(self) -> None:
        self._begins: list[tuple[float, WorkloadId]] = []  # a heap, by Unix time

    def begin_epoch(self, turn: Transaction) -> None:
        """Look at all that waits outside of the queue, and ask to be woken at begin times."""
        waiting = turn.ledger.in_state(WorkloadState.INELIGIBLE)
        turn.ledger.unsettled.update((entry.workload.id, None) for entry in waiting)
        self.settle(turn)

    def time_passed(self, turn: Transaction) -> None:
        """Let those into the queue whose begin time has come."""
        while self._begins and self._begins[0][0] <= turn.now_s:
            _, id_ = heapq.heappop(self._begins)
            turn.ledger.unsettled[id_] = None
        self.settle(turn)

    def settle(self, turn: Transaction) -> None:
        """Move those whose records have changed since, until all are where they belong."""
        unsettled = turn.ledger.unsettled
        while unsettled:
            id_ = next(iter(unsettled))
            del unsettled[id_]
            entry = turn.ledger.entries.get(id_)
            if entry is not None:
                self._settle(turn, entry)

    def _settle(self, turn: Transaction, entry: WorkloadRecord) -> None:
        if is_eligible(entry, turn.now_s):
            if entry.state is WorkloadState.INELIGIBLE:
                turn.change(entry, WorkloadEvent.ELIGIBLE)
            return
        if entry.state in _IN_QUEUE:
            turn.change(entry, WorkloadEvent.SET_ASIDE)
        if entry.state is WorkloadState.INELIGIBLE:
            self._wake_at_begin(turn, entry)
        elif entry.state is WorkloadState.LAUNCHING and not entry.withdrawing:
            turn.change(entry, WorkloadEvent.LEASE_OVER)  # it has not started: it comes back

    def _wake_at_begin(self, turn: Transaction, entry: WorkloadRecord) -> None:
        if entry.begin_at_s > turn.now_s and entry.hold is Hold.NONE:
            heapq.heappush(self._begins, (entry.begin_at_s, entry.workload.id))
            turn.commands.append(Wake(at_s=entry.begin_at_s))
