"""Eviction costs: what the leaving of victims shows of save times, and what it cost for whom."""

from __future__ import annotations

from collections.abc import Mapping

from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent
from federator.model.workload import WorkloadId
from federator.sched.state.evictions import EvictionHistory
from federator.sched.state.preemption_cost import PreemptionTax, destroyed_gpu_s
from federator.sched.state.requeue import is_stall
from federator.sched.state.save_times import SaveTimes, family_of
from federator.sched.state.shrink import gpus_of
from federator.sched.state.workload_record import WorkloadRecord


class EvictionCosts:
    """Counts every eviction: for the budget when it begins, for the tax when it is over.

    Args:
        entries: all workloads; what each has lost and destroyed stands in its record.
        evictions: of late, which the budget counts.
        saves: how long victims take to save.
        tax: what evictions have destroyed, by tenant.
    """

    def __init__(
        self,
        entries: Mapping[WorkloadId, WorkloadRecord],
        evictions: EvictionHistory,
        saves: SaveTimes,
        tax: PreemptionTax,
    ) -> None:
        self._entries = entries
        self._evictions = evictions
        self._saves = saves
        self._tax = tax

    def evicted(self, victim: WorkloadRecord, event: Changed) -> None:
        """A workload is told to leave for whom its nodes are promised to."""
        victim.evicted_at_s, victim.evicted_for = event.at_s, victim.promised_to
        victim.preemptions += 1
        self._evictions.add(event, victim.held_gpus)

    def left(self, victim: WorkloadRecord, event: Changed) -> None:
        """One that was told to leave has left, for whatever reason."""
        leave = event.leave
        # No site's numbers are believed beyond what the federation has seen itself.
        whole_s = event.at_s - (victim.award.at_s if victim.award is not None else event.at_s)
        started_s = event.started_at_s or victim.started_at_s
        if leave is not None:
            could_save = not victim.at_its_limit and not is_stall(victim.reason)
            if leave.saved or could_save:
                self._saves.learn(family_of(victim.workload), leave, started_s, whole_s)
            if leave.saved_at_s:
                victim.saved_at = victim.site
        evicted = event.happening is WorkloadEvent.PREEMPTED and not victim.at_its_limit
        if evicted and victim.evicted_for is not None:
            lost = destroyed_gpu_s(victim.held_gpus, started_s, event.ended_at_s, leave)
            winner = self._entries[victim.evicted_for]
            self._charge(winner, victim, min(lost, victim.held_gpus * whole_s))
            winner.evictions += 1

    def job_taken(
        self, victim: WorkloadRecord, component: int, winner: WorkloadRecord, event: Changed
    ) -> None:
        """An optional job must leave at once; the plan still has its nodes."""
        gpus = gpus_of(victim.plan, (component,))
        self._evictions.add(event, gpus)
        lost = destroyed_gpu_s(gpus, victim.started_at_s, event.at_s, None)
        self._charge(winner, victim, lost)

    def _charge(self, winner: WorkloadRecord, victim: WorkloadRecord, gpu_s: float) -> None:
        victim.lost_gpu_s += gpu_s
        winner.destroyed_gpu_s += gpu_s
        self._tax.add(winner.workload.tenant, victim.workload.tenant, gpu_s)
