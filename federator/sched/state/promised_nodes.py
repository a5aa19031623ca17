"""Promised nodes: those of victims, and of optional jobs, each kept for the award that needs them.

When they are free, the lease of whoever they were promised to begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from federator.model.event import Awarded
from federator.model.lifecycle import WorkloadState
from federator.model.mappings import NOTHING, without_key
from federator.model.workload import WorkloadId
from federator.sched.state.workload_record import WorkloadRecord


class PromisedNodes:
    """Which workloads, and which of their optional jobs, make room for which award.

    Args:
        entries: all workloads; what is promised of one stands in its record.

    Attributes:
        shrinking: those with optional jobs that must leave.
    """

    def __init__(self, entries: Mapping[WorkloadId, WorkloadRecord]) -> None:
        self._entries = entries
        self.shrinking: dict[WorkloadId, None] = {}

    def promise(self, award: Awarded) -> None:
        """Nobody else may have these victims."""
        for id_ in award.victims:
            self._entries[id_].promised_to = award.attempt.workload
        for other, component in award.shrinks:
            entry = self._entries[WorkloadId(other)]
            entry.promised_jobs = {**entry.promised_jobs, component: award.attempt.workload}

    def spare(self, award: Awarded) -> None:
        """The award came to nothing, or has its nodes: whom it had not evicted yet runs on."""
        for entry in (self._entries[id_] for id_ in award.victims):
            if entry.promised_to == award.attempt.workload:
                entry.promised_to = None
        for id_, component in award.shrinks:
            entry = self._entries[WorkloadId(id_)]
            if entry.promised_jobs.get(component) == award.attempt.workload:
                entry.promised_jobs = without_key(entry.promised_jobs, component)

    def victim_left(self, victim: WorkloadRecord, at_s: float) -> None:
        """It has left its site: whom it was promised to should start soon."""
        if victim.promised_to is not None:
            self._lease_anew(victim.promised_to, at_s)
        for winner_id in victim.promised_jobs.values():
            self._lease_anew(winner_id, at_s)
        victim.promised_to, victim.promised_jobs = None, NOTHING
        self.jobs_left(victim, tuple(victim.leaving_jobs), at_s)

    def take_job(
        self, entry: WorkloadRecord, component: int, winner_id: WorkloadId | None
    ) -> WorkloadRecord:
        """It loses an optional job: to the winner, or else to whom that job was promised.

        Returns:
            The winner.
        """
        winner_id = winner_id or entry.promised_jobs[component]
        if component in entry.promised_jobs:
            entry.promised_jobs = without_key(entry.promised_jobs, component)
        entry.leaving_jobs = {**entry.leaving_jobs, component: winner_id}
        self.shrinking[entry.workload.id] = None
        return self._entries[winner_id]

    def jobs_left(self, entry: WorkloadRecord, components: tuple[int, ...], at_s: float) -> None:
        """Optional jobs that were taken have left: whom they made room for should start soon."""
        for k in components:
            if k in entry.leaving_jobs:
                self._lease_anew(entry.leaving_jobs[k], at_s)
                entry.leaving_jobs = without_key(entry.leaving_jobs, k)
        if not entry.leaving_jobs:
            self.shrinking.pop(entry.workload.id, None)

    def _lease_anew(self, winner_id: WorkloadId, at_s: float) -> None:
        winner = self._entries[winner_id]
        if winner.state is WorkloadState.LAUNCHING:
            winner.lease_from_s = at_s
