"""A simulated Slurm whose jobs run user code behind a gate: the truth about a site.

It knows which jobs are really the federation's, whatever their comments say, and what slurmctld
and slurmdbd have forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from federator.agent.base import Holder, Missing
from federator.faults.checkpoints import SimulatedCheckpoints
from federator.faults.output_disk import OutputDisk
from federator.faults.process import later
from federator.faults.slurm import SimulatedJob, SimulatedSlurm
from federator.faults.user_code import Script, UserCode, Witness
from federator.model.plan import JobPlan
from federator.model.site import AttemptReport, Node, NodeShare, SiteJobState
from federator.model.workload import AttemptId

PROLOG_S: Final = 0.4
MALLORY: Final = "mallory"  # has no workload, and pretends
_ONE_CPU: Final = NodeShare(cpus=1)


class Cluster(SimulatedSlurm):
    """One site's Slurm.

    Args:
        name: the site's.
        nodes: as they are when nothing runs.
        clock: the site's wall clock.
        script: what an attempt's job does.
        witness: see ``Witness``.
        spool: where leases lie; None: the site has no gate.
    """

    def __init__(
        self,
        name: str,
        nodes: Iterable[Node],
        clock: Callable[[], float],
        script: Callable[[AttemptId], Script],
        witness: Witness,
        spool: Path | None,
    ) -> None:
        self.code = UserCode(name, clock, script, witness, self._finish)
        super().__init__(nodes, clock, self._starts, self.code.end, self.code.lose)
        self.name = name
        self.witness = witness
        self._spool = spool
        self._origin: dict[int, AttemptId] = {}  # of jobs of the federation, whatever they say
        self.holds_next = False  # its user holds the next job at once
        self.held: set[int] = set()  # by their users
        self.nameless: set[int] = set()  # whose comment was rewritten
        self.keeps_accounts = False  # there is a slurmdbd
        self.prolog_fails = 0  # of the next jobs to start
        self.disks: SimulatedCheckpoints | None = None  # what its region holds
        self.disk: OutputDisk | None = None  # its storage domain; None: it mounts none

    # ---- what sbatch and Slurm do ----

    def take_in(
        self,
        attempt: AttemptId,
        user: str,
        jobs: tuple[JobPlan, ...],
        time_limit_s: float,
        spare: int = 0,
    ) -> int:
        """An sbatch of the federation reaches slurmctld."""
        if self.holds_next:
            self.holds_next = False
            self.held.add(self._last_id + 1)
            self.witness.befell("user holds")
        job_id = self.submit(attempt, user, jobs, time_limit_s, spare=spare)
        self._origin[job_id] = attempt
        if self.jobs[job_id].state is SiteJobState.RUNNING:
            self.witness.starts(attempt)
        self.code.begin_anew(job_id)
        self.witness.submitted(self.name, attempt, job_id)
        return job_id

    def pretend(self, attempt: AttemptId, node: str) -> None:
        """Another user submits a job that says it is this attempt."""
        share = JobPlan(name="x", partition="gpu", nodes={node: _ONE_CPU})
        job_id = self.submit(attempt, MALLORY, (share,), 30.0)
        self._origin.pop(job_id, None)

    def federated(self) -> list[SimulatedJob]:
        """Its live jobs of the federation."""
        return [job for job in self.live() if job.job_id in self._origin]

    def at_work(self) -> list[SimulatedJob]:
        """Those of them that run."""
        return [job for job in self.federated() if job.state is SiteJobState.RUNNING]

    def real(self, job: SimulatedJob) -> AttemptId | None:
        return self._origin.get(job.job_id)

    def _may_start(self, job: SimulatedJob) -> bool:
        return job.job_id not in self.held and super()._may_start(job)

    def _starts(self, job: SimulatedJob) -> None:
        origin = self.real(job)
        if origin is not None:  # else its sbatch is not over yet
            self.witness.starts(origin)
        later(PROLOG_S, self._prolog, job, job.restarts)
        limit_s = PROLOG_S + job.time_limit_s
        later(limit_s, self._finish, job, job.restarts, SiteJobState.TIMEOUT, 0)

    def _is(self, job: SimulatedJob, restarts: int) -> bool:
        same = self.jobs.get(job.job_id) is job and job.restarts == restarts
        return same and job.state is SiteJobState.RUNNING

    def _finish(
        self, job: SimulatedJob, restarts: int, state: SiteJobState, exit_code: int
    ) -> None:
        """This start of a job comes to its end, unless that has come already.

        ``state``: PENDING if its script has it put back.
        """
        if not self._is(job, restarts):
            return
        if state is SiteJobState.PENDING:
            self.put_back(job)
        else:
            self._end(job, state, exit_code)

    def _prolog(self, job: SimulatedJob, restarts: int) -> None:
        if not self._is(job, restarts):
            return
        origin = self.real(job)
        if self.prolog_fails and origin is not None:
            self.prolog_fails -= 1
            self.witness.befell("prolog fails")
            name = next(iter(job.jobs[-1].nodes))  # of a het job, not the batch script's
            self.hardware.drain(name, "Prolog error")
            self.put_back(job)
        elif self._spool is not None and not _gate_lets(self._spool, self.name, job):
            if origin is not None:
                self.witness.stopped(self.name, origin, job.job_id)
            self._end(job, SiteJobState.CANCELLED, 0)
        elif origin is not None:
            self.code.begin(job, origin)

    def end_job(self, job: SimulatedJob, state: SiteJobState, *, signal: int = 0) -> None:
        """As somebody who may says."""
        if job.live:
            job.signal = signal or job.signal
            self._end(job, state, 0)

    # ---- faults that strike it ----

    def put_back(self, job: SimulatedJob, *, preempted: bool = False) -> None:
        """As ``scontrol requeue``, or the site's own preemption: the same job waits again."""
        self.code.end(job, SiteJobState.PREEMPTED, 0)
        job.requeue(preempted=preempted)
        self.start_what_can()

    def accounted(self, missing: Collection[Missing]) -> dict[AttemptId, AttemptReport]:
        """The end or the state of those of these that slurmdbd has."""
        genuine = (r for r in super().reports() if self._origin.get(r.site_job_id) == r.attempt)
        accounts = {r.attempt: r for r in genuine} if self.keeps_accounts else {}
        accounts |= self.accounts
        found = ((each, accounts.get(each.attempt)) for each in missing)
        return {
            each.attempt: report
            for each, report in found
            if report is not None
            and (report.state.ended or not each.job_id)
            and report.user == each.user
            and each.job_id in (0, report.site_job_id)
        }

    def forget_ended(self) -> bool:
        """Records of what has ended expire; slurmdbd keeps them, where there is one."""
        ended = [job for job in self.jobs.values() if not job.live]
        gone = {job.job_id for job in ended}
        if self.keeps_accounts:
            self.accounts |= {r.attempt: r for r in self.reports() if r.site_job_id in gone}
        for job in ended:
            self._drop(job)
        return bool(ended)

    def lose_last(self, count: int) -> bool:
        """Its state is older than its last jobs: they are gone, and their ids come again."""
        lost = [job for job in self.jobs.values() if job.job_id in self._origin][-count:]
        ran_on = {r.attempt: r for r in super().reports()} if self.keeps_accounts else {}
        for job in lost:
            self.code.end(job, SiteJobState.CANCELLED, 0)  # nodes end what nobody knows
            origin = self._origin[job.job_id]
            self._drop(job)
            if origin in ran_on:  # as accounts have it for ever
                self.accounts[origin] = ran_on[origin]
        if lost:
            self._last_id = max([100, *(job.last_id for job in self.jobs.values())])
        return bool(lost)

    def _drop(self, job: SimulatedJob) -> None:
        del self.jobs[job.job_id]
        self.nameless.discard(job.job_id)
        self.held.discard(job.job_id)
        origin = self._origin.pop(job.job_id, None)
        account = self.accounts.get(origin) if origin is not None else None
        if origin is not None and (account is None or account.site_job_id != job.job_id):
            self.witness.unrecorded(origin)

    def mend(self) -> None:
        """All nodes work again, nobody holds anything, and local jobs are gone."""
        self.held.clear()
        self.prolog_fails = 0
        self.holds_next = False
        self.refuses_cancels = False
        self.hardware.repair_all()
        self.start_what_can()

    # ---- what squeue shows ----

    def reports(self, launched: Container[int] = ()) -> tuple[AttemptReport, ...]:
        """The jobs that name an attempt, and renamed jobs that the caller has ``launched``."""
        hidden = {job_id for job_id in self.nameless if job_id not in launched}
        return tuple(r for r in super().reports() if r.site_job_id not in hidden)

    def holders(self, launched: Container[int] = ()) -> tuple[Holder, ...]:
        hidden = {job_id for job_id in self.nameless if job_id not in launched}
        return tuple(
            replace(h, attempt=None) if h.job_id in hidden else h for h in super().holders()
        )


def _gate_lets(spool: Path, site: str, job: SimulatedJob) -> bool:
    """The gate's question before user code runs; see ``prolog_epilog/fednode/lease.py``."""
    name = f"{job.attempt.workload}.{job.attempt.attempt}"
    claim = f"{site} {job.job_id}\n"
    try:
        lease = json.loads((spool / "leases" / name).read_text())
        if lease["user"] != job.user:
            return False
        bound = spool / "leases" / f"{name}.job"
        with suppress(FileExistsError), bound.open("x") as file:
            file.write(claim)
        return bound.read_text() == claim
    except (OSError, ValueError, KeyError):
        return False
