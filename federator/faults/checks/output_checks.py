"""Checks what jobs write: registered once, as written by one attempt that completed; else gone."""

from __future__ import annotations

from collections.abc import Mapping

from federator.faults.checks.evidence import Evidence
from federator.faults.output_disk import OutputDisk, digest_of
from federator.model.data_output import OutputState
from federator.model.event import DataSetKept
from federator.model.lifecycle import WorkloadState
from federator.model.site import SiteJobState
from federator.model.workload import AttemptId, WorkloadId
from federator.sched.state.ledger import Ledger


class OutputChecks:
    """Sees what the log registers.

    Args:
        evidence: of this history.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.registered: dict[WorkloadId, AttemptId] = {}
        self.disks: Mapping[str, OutputDisk] = {}  # by storage domain

    def disk(self, sites: frozenset[str]) -> OutputDisk:
        """The domain that these sites mount."""

        def completed(id_: WorkloadId) -> list[AttemptId]:
            return self._completed(id_, sites)

        def runs(id_: WorkloadId) -> bool:
            truth = self._evidence.truth(id_)
            here = [r for r in truth.runs if r.site in sites and r.ended is None]
            return any(not truth.excuses(run) for run in here)

        return OutputDisk(completed, runs, self._evidence.break_)

    def _completed(self, id_: WorkloadId, sites: frozenset[str]) -> list[AttemptId]:
        """Those whose end counts: Slurm may have lost that of an earlier one.

        One that was told to leave has not completed, whatever its status.
        """
        well = [
            run.attempt
            for run in self._evidence.truth(id_).counted
            if run.site in sites
            and run.ended is SiteJobState.COMPLETED
            and not run.exit_code
            and not run.notified
        ]
        return list(dict.fromkeys(well))[-1:] if self._evidence.truth(id_).unrecorded else well

    def logged(self, event: DataSetKept) -> None:
        """A data set is in the catalogue."""
        attempt = event.written_by
        if attempt is None:
            return
        self._evidence.counts["outputs registered"] += 1
        if attempt.workload in self.registered:
            self._evidence.break_(f"the output of {attempt.workload} is registered twice")
        self.registered[attempt.workload] = attempt
        truth = self._evidence.truth(attempt.workload)
        if truth.state is not WorkloadState.COMPLETED:
            self._evidence.break_(f"the output of {attempt} is registered, and it did not complete")
        if event.kept.digest != digest_of((attempt,)):
            self._evidence.break_(f"the output of {attempt} was not written by it alone")

    def check_end(self, ledger: Ledger) -> None:
        """Nothing is left to be done, and what completed is registered."""
        for kept in ledger.outputs:
            self._evidence.counts[f"outputs {kept.state.value}"] += 1
            entry = ledger.entries.get(kept.id)
            completed = entry is not None and entry.state is WorkloadState.COMPLETED
            if completed != (kept.state is OutputState.REGISTERED):
                self._evidence.break_(
                    f"the output of {kept.id} is {kept.state.value}: {kept.detail}"
                )
            if kept.folders:
                self._evidence.break_(f"the folders of {kept.id} are left in {kept.folders}")
        for name, disk in self.disks.items():
            left = [id_ for id_ in disk.folders if ledger.outputs.get(id_) is not None]
            if left:
                self._evidence.break_(f"{name} still has folders of {left}")
