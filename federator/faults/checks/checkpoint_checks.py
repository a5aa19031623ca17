"""Checks that no attempt starts without the newest checkpoint that the federation knows of."""

from __future__ import annotations

from collections.abc import Sequence

from federator.faults.checkpoints import SimulatedCheckpoints
from federator.faults.checks.evidence import Evidence
from federator.faults.user_code import SAVED, CodeRun
from federator.model.event import Awarded, Changed, CheckpointCopied, SiteWrittenOff, decode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.workload import AttemptId, WorkloadId


class CheckpointChecks:
    """Knows how often the work of each attempt was saved, and what the log says of it.

    Args:
        evidence: of this history.
        disks: what regions hold.
    """

    def __init__(self, evidence: Evidence, disks: SimulatedCheckpoints) -> None:
        self._evidence = evidence
        self.disks = disks
        self._began_with: dict[AttemptId, int] = {}
        self._saves: dict[AttemptId, int] = {}
        self._last: dict[WorkloadId, AttemptId] = {}
        self._known: dict[WorkloadId, int] = {}  # saves that the log knows of

    def began(self, run: CodeRun) -> None:
        """It goes on with what it finds."""
        saves = self.disks.newest(run.site, run.attempt.workload).saves
        self._began_with[run.attempt] = saves

    def ended(self, run: CodeRun) -> None:
        """It may have saved as it left."""
        if run.exit_code == SAVED and run.attempt in self._began_with:
            saves = self._saves[run.attempt] = self._began_with[run.attempt] + 1
            self.disks.save(run.site, run.attempt.workload, saves)

    def logged(self, records: Sequence[bytes]) -> None:
        """These are durable now."""
        for event in map(decode_event, records):
            if isinstance(event, Awarded):
                self._last[event.attempt.workload] = event.attempt
                self._reaches(event.attempt.workload, event.site, "is awarded to")
            elif isinstance(event, CheckpointCopied):
                self._evidence.counts["checkpoints copied"] += 1
                self._reaches(event.workload, event.site, "has a copy at")
            elif isinstance(event, SiteWrittenOff) and event.unreadable:
                self._known.clear()  # whoever saved there may begin anew
            elif isinstance(event, Changed) and _tells_of_saves(event):
                attempt = self._last.get(event.workload)
                saves = self._saves.get(attempt, 0) if attempt is not None else 0
                self._known[event.workload] = max(saves, self._known.get(event.workload, 0))

    def _reaches(self, id_: WorkloadId, site: str, what: str) -> None:
        saves, known = self.disks.newest(site, id_).saves, self._known.get(id_, 0)
        if saves < known:
            self._evidence.break_(
                f"{id_} {what} {site}, where its work was saved {saves} times, not {known}"
            )


def _tells_of_saves(event: Changed) -> bool:
    saved = event.leave is not None and event.leave.saved_at_s > 0
    return saved or event.happening is WorkloadEvent.CHECKPOINTED
