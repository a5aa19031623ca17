"""Checks what becomes durable in the log: each record is a step that its workload may take."""

from __future__ import annotations

from collections.abc import Sequence

from federator.faults.checks.evidence import Array, Evidence, Size
from federator.model.event import Awarded, Changed, Submitted, decode_event
from federator.model.lifecycle import TERMINAL, TRANSITIONS, WorkloadEvent, WorkloadState
from federator.model.workload import WorkloadId
from federator.sched.state.eligibility import may_not_start


class LogChecks:
    """Sees every record that the log holds.

    Args:
        evidence: of this history.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.sizes: dict[str, Size] = {}  # of the sites

    def logged(self, records: Sequence[bytes]) -> None:
        """These are durable now."""
        for record in records:
            event = decode_event(record)
            if isinstance(event, Awarded):
                self._evidence.truth(event.attempt.workload).last_attempt = event.attempt.attempt
                self._moves(event.attempt.workload, WorkloadEvent.AWARDED)
                self._evidence.tell(f"log: {event.attempt} awarded to {event.site}")
            elif isinstance(event, Changed):
                self._moves(event.workload, event.happening)
                self._evidence.tell(f"log: {event.workload} {event.happening.value}")
                if event.happening is WorkloadEvent.HELD:
                    self._held(event.workload)
            elif isinstance(event, Submitted):
                self._submitted(event)

    def _submitted(self, event: Submitted) -> None:
        self._evidence.tell(f"log: submitted {event.first_id}")
        self._evidence.counts["het jobs"] += len(event.draft.jobs) > 1
        for workload in event.workloads():
            truth = self._evidence.truth(workload.id)
            truth.needs = Size.needed(workload.jobs)
            if may_not_start(event):
                truth.state = WorkloadState.INELIGIBLE
        if event.draft.array_indices:
            self._evidence.counts["arrays"] += 1
            array = Array(
                id=event.first_id,
                indices=event.draft.array_indices,
                max_running=event.draft.array_max_running,
            )
            self._evidence.arrays |= dict.fromkeys(array.tasks, array)

    def _held(self, id_: WorkloadId) -> None:
        self._evidence.counts["held"] += 1
        truth = self._evidence.truth(id_)
        for site, size in self.sizes.items():
            fits = truth.needs is None or size.holds(truth.needs)
            if fits and site not in truth.refused_at:
                self._evidence.break_(f"{id_} is held, and {site} has not refused it")

    def _moves(self, id_: WorkloadId, event: WorkloadEvent) -> None:
        truth = self._evidence.truth(id_)
        if truth.state in TERMINAL:
            self._evidence.break_(f"{id_} has ended, {truth.state.value}, and is {event.value}")
        elif (truth.state, event) in TRANSITIONS:
            truth.state = TRANSITIONS[truth.state, event].to
