"""Checks what Slurm does: each sbatch, and each start and end of user code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from federator.faults.checks.checkpoint_checks import CheckpointChecks
from federator.faults.checks.evidence import BY_ITSELF, Evidence
from federator.faults.checks.size_checks import SizeChecks
from federator.faults.checks.spare_checks import SpareChecks
from federator.faults.checks.wish_checks import WishChecks
from federator.faults.user_code import CodeRun
from federator.model.workload import AttemptId, WorkloadId

CANCELS_WITHIN_S: Final = 15.0  # once nothing fails any more


class RunChecks:
    """Sees what every simulated Slurm does (a ``Witness``).

    Args:
        evidence: of this history.
        gpu_limits: GPUs that these users may hold together, at all sites.
        wishes: checks them at each start.
    """

    def __init__(
        self,
        evidence: Evidence,
        gpu_limits: Mapping[frozenset[str], float],
        wishes: WishChecks,
    ) -> None:
        self._evidence = evidence
        self._wishes = wishes
        self._sizes, self._spares = SizeChecks(evidence), SpareChecks(evidence)
        self._gpu_limits = gpu_limits
        self._live: list[CodeRun] = []
        self.submissions: Counter[AttemptId] = Counter()
        self.checkpoints: CheckpointChecks | None = None
        self._may_double: set[AttemptId] = set()  # its sbatch went beyond what Slurm can do

    def submitted(self, site: str, attempt: AttemptId, job_id: int) -> None:
        self._evidence.tell(f"{site}: sbatch of {attempt} is job {job_id}")
        self.submissions[attempt] += 1
        self._evidence.counts["sbatch"] += 1
        if self.submissions[attempt] > 1 and attempt not in self._may_double:
            self._evidence.break_(f"{attempt} was submitted twice")

    def misplaced(self, site: str, attempt: AttemptId) -> None:
        """Components of a het job are pinned to the same node, which Slurm does not take."""
        self._evidence.break_(f"{attempt} has two components on one node of {site}")

    def is_task(self, attempt: AttemptId, array_index: int | None) -> None:
        """A site is told that the attempt is of this task of an array, or of none."""
        array = self._evidence.arrays.get(attempt.workload)
        known = array.tasks[attempt.workload] if array is not None else None
        if array_index != known:
            self._evidence.break_(
                f"{attempt} is task {known} of its array, and was submitted as {array_index}"
            )

    def starts(self, attempt: AttemptId) -> None:
        """Slurm starts a job; its prolog comes before user code."""
        self._evidence.truth(attempt.workload).has_started = True

    def began(self, run: CodeRun) -> None:
        id_ = run.attempt.workload
        truth = self._evidence.truth(id_)
        self._evidence.tell(f"{run.site}: {run.attempt} runs as job {run.job_id}")
        self._evidence.counts["starts"] += 1
        self._check_fence(run)
        given_up = run.attempt in truth.given_up  # it was submitted before, and starts late
        for other in truth.counted if not given_up else ():
            if other.ended is None:
                self._evidence.break_(
                    f"{id_} runs twice: job {other.job_id} at {other.site}, "
                    f"job {run.job_id} at {run.site}"
                )
        if truth.completed and not given_up:
            self._evidence.break_(f"{id_} has completed, and runs again at {run.site}")
        if truth.cancel_acked and run.attempt.attempt > truth.attempt_at_cancel:
            self._evidence.break_(f"{id_} was cancelled, and {run.attempt} runs at {run.site}")
        self._wishes.began(id_)
        self._sizes.began(run)
        if self.checkpoints is not None:
            self.checkpoints.began(run)
        truth.runs.append(run)
        self._live.append(run)
        self._check_limits()
        self._check_throttle(id_)

    def _check_fence(self, new: CodeRun) -> None:
        """Nothing new starts at a site while an attempt lives there that was given up with it."""
        if self._is_given_up(new):
            return
        for run in self._live:
            if run.site == new.site and self._is_given_up(run):
                self._evidence.break_(f"{new.attempt} starts at {run.site} beside {run.attempt}")

    def _is_given_up(self, run: CodeRun) -> bool:
        return run.attempt in self._evidence.truth(run.attempt.workload).given_up

    def _check_limits(self) -> None:
        for users, limit in self._gpu_limits.items():
            gpus = sum(
                run.gpus
                for run in self._live
                if run.user in users
                and not self._is_given_up(run)
                and run.attempt not in self._evidence.truth(run.attempt.workload).unrecorded
            )
            if gpus > limit:
                self._evidence.break_(
                    f"{', '.join(sorted(users))} use {gpus} GPUs, and may use {limit:g}"
                )

    def _check_throttle(self, id_: WorkloadId) -> None:
        array = self._evidence.arrays.get(id_)
        if array is None or not array.max_running:
            return
        running = {
            run.attempt.workload
            for run in self._live
            if self._evidence.arrays.get(run.attempt.workload) is array
            and not self._is_given_up(run)
            and run.attempt not in self._evidence.truth(run.attempt.workload).unrecorded
        }
        if len(running) > array.max_running:
            self._evidence.break_(
                f"{len(running)} tasks of array {array.id} run, and {array.max_running} may"
            )

    def ended(self, run: CodeRun) -> None:
        state = run.ended.value if run.ended is not None else ""
        self._evidence.tell(f"{run.site}: {run.attempt} ends: {state} {run.exit_code}")
        self._live.remove(run)
        truth = self._evidence.truth(run.attempt.workload)
        since_s = self._evidence.clock() - max(
            truth.cancel_acked_at_s, self._evidence.faults_stopped_at_s
        )
        self._wishes.ended(run)
        self._spares.ended(run)
        if self.checkpoints is not None:
            self.checkpoints.ended(run)
        if run.ended in BY_ITSELF and since_s > CANCELS_WITHIN_S and not truth.excuses(run):
            self._evidence.break_(
                f"{run.attempt.workload} was cancelled, and ran on for {since_s:.0f} s"
            )

    def went_on(self, run: CodeRun, *, enough: bool) -> None:
        """A node fails under it, and Slurm lets it run on."""
        self._spares.went_on(run, enough=enough)

    def stopped(self, site: str, attempt: AttemptId, job_id: int) -> None:
        """The gate did not let it start."""
        self._evidence.tell(f"{site}: the gate stops {attempt}, job {job_id}")
        self._evidence.counts["stopped by a gate"] += 1
        self._evidence.truth(attempt.workload).ended_outside = True

    def unrecorded(self, attempt: AttemptId) -> None:
        """Slurm knows a job of the attempt no more."""
        self._evidence.truth(attempt.workload).unrecorded.add(attempt)

    def renamed(self, attempt: AttemptId) -> None:
        """A job of the attempt has another comment now."""
        self._evidence.truth(attempt.workload).renamed.add(attempt)

    def beyond(self, attempt: AttemptId) -> None:
        """Its sbatch does what Slurm's helper promises cannot be; its gate must stop it."""
        self._may_double.add(attempt)

    def refused(self, site: str, attempt: AttemptId) -> None:
        """Its sbatch refused the submission itself."""
        self._evidence.tell(f"{site}: sbatch refuses {attempt} for good")
        self._evidence.truth(attempt.workload).refused_at.add(site)

    def befell(self, what: str) -> None:
        """A fault strikes."""
        self._evidence.tell(what)
