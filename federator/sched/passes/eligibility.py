"""Moves workloads out of the queue while they may not start yet, and back into it.

A workload that is too late to end by its deadline ends as a whole, wherever it waits.

A workload that is held, depends on others, or whose begin time has not come, is in no lane of the
queue: passes cost nothing for it. The ledger notes which workloads a record may concern
(``Ledger.unsettled``); they are looked at once, behind the observation. Times are in a heap, and
ask for a ``Tick``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from math import inf

from federator.model.eligibility import Dependency, DependencyKind, Hold
from federator.model.event import Amended
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import Wake
from federator.model.workload import WorkloadId
from federator.sched.passes.transaction import Transaction
from federator.sched.state.eligibility import (
    deadline_passed,
    dependency_reason,
    is_eligible,
    left_of,
)
from federator.sched.state.ledger import WorkloadRecord

_IN_QUEUE = (WorkloadState.PENDING, WorkloadState.HELD)
_WAITING = (*_IN_QUEUE, WorkloadState.INELIGIBLE)
_OF_THE_TASK = frozenset({DependencyKind.AFTER_CORR, DependencyKind.SINGLETON})


class Eligibility:
    """Settles who may wait in the queue."""

    def __init__(self) -> None:
        self._times: list[tuple[float, WorkloadId]] = []  # a heap, by Unix time

    def begin_epoch(self, turn: Transaction) -> None:
        """Look at all that waits outside of the queue, and ask to be woken at its times."""
        waiting = turn.ledger.in_state(WorkloadState.INELIGIBLE)
        turn.ledger.unsettled.update((entry.workload.id, None) for entry in waiting)
        turn.ledger.unsettled.update(
            (entry.workload.id, None)
            for entry in turn.ledger.in_state(*_IN_QUEUE)
            if entry.workload.starts_by_s < inf
        )
        self.settle(turn)

    def time_passed(self, turn: Transaction) -> None:
        """Look at those again whose time has come."""
        while self._times and self._times[0][0] <= turn.now_s:
            _, id_ = heapq.heappop(self._times)
            turn.ledger.unsettled[id_] = None
        self.settle(turn)

    def settle(self, turn: Transaction) -> None:
        """Move those whose records have changed since, until all are where they belong."""
        entries, unsettled = turn.ledger.entries, turn.ledger.unsettled
        while unsettled:
            batch = [entries[id_] for id_ in unsettled if id_ in entries]
            unsettled.clear()
            self._judge(turn, batch)
            for entry in batch:
                self._settle(turn, entry)

    # ---- dependencies ----

    def _judge(self, turn: Transaction, batch: Iterable[WorkloadRecord]) -> None:
        """Record what is left of dependencies; those of an array's tasks are looked at once."""
        found: dict[int, tuple[Dependency, float]] = {}
        changed: dict[Dependency, list[WorkloadId]] = {}
        for entry in batch:
            waits_for = entry.waits_for
            if entry.state is not WorkloadState.INELIGIBLE or not waits_for:
                continue
            known = found.get(id(waits_for))
            left, again_s = known or left_of(entry, turn.ledger.dependents, turn.now_s)
            if not any(c.kind in _OF_THE_TASK for c in waits_for.conditions):
                found[id(waits_for)] = left, again_s
            if left is not waits_for:
                changed.setdefault(left, []).append(entry.workload.id)
            self._wake_at(turn, entry, again_s)
        for left, ids in changed.items():
            turn.record(Amended(at_s=turn.now_s, workloads=tuple(ids), waits_for=left))
            if left.never and left.kill:
                self._kill(turn, ids)

    @staticmethod
    def _kill(turn: Transaction, ids: Sequence[WorkloadId]) -> None:
        """Cancel what can never start, as its user wants (``--kill-on-invalid-dep``)."""
        for entry in map(turn.ledger.entries.__getitem__, ids):
            turn.change(
                entry, WorkloadEvent.CANCEL_ASKED, reason=dependency_reason(entry.waits_for)
            )

    # ---- the queue ----

    def _settle(self, turn: Transaction, entry: WorkloadRecord) -> None:
        starts_by_s = entry.workload.starts_by_s
        if starts_by_s < inf and entry.state in _WAITING:
            if starts_by_s <= turn.now_s:
                turn.change(entry, WorkloadEvent.DEADLINE_PASSED, **deadline_passed(entry))
                return
            self._wake_at(turn, entry, starts_by_s)
        if is_eligible(entry, turn.now_s):
            if entry.state is WorkloadState.INELIGIBLE:
                turn.change(entry, WorkloadEvent.ELIGIBLE)
            return
        if entry.state in _IN_QUEUE:
            turn.change(entry, WorkloadEvent.SET_ASIDE)
        if entry.state is WorkloadState.INELIGIBLE:
            if entry.hold is Hold.NONE:
                self._wake_at(turn, entry, entry.begin_at_s)
        elif entry.state is WorkloadState.LAUNCHING and not entry.withdrawing:
            turn.change(entry, WorkloadEvent.LEASE_OVER)  # it has not started: it comes back

    def _wake_at(self, turn: Transaction, entry: WorkloadRecord, at_s: float) -> None:
        if turn.now_s < at_s < inf:
            heapq.heappush(self._times, (at_s, entry.workload.id))
            turn.commands.append(Wake(at_s=at_s))
