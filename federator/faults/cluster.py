"""A simulated Slurm whose jobs run user code behind a gate: the truth about a site."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from federator.agent.base import Holder, Missing
from federator.errors import SiteRefused
from federator.faults.process import later
from federator.faults.slurm import SimulatedJob, SimulatedSlurm
from federator.model.plan import JobPlan
from federator.model.site import AttemptReport, Node, NodeShare, NodeState, SiteJobState
from federator.model.workload import AttemptId

PROLOG_S: Final = 0.4
MALLORY: Final = "mallory"  # has no workload, and pretends
_ONE_CPU: Final = NodeShare(cpus=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The behaviour of a job when it runs, and its end."""

    duration_s: float = 10.0
    exit_code: int = 0
    saves_s: float = 1.0  # from when it is told to leave until it has left by itself; inf: never

    @property
    def ending(self) -> SiteJobState:
        return SiteJobState.FAILED if self.exit_code else SiteJobState.COMPLETED


@dataclass(slots=True, eq=False)
class CodeRun:
    """User code that runs: one start of one job."""

    site: str
    attempt: AttemptId
    job_id: int
    user: str
    gpus: int
    began_at_s: float
    notified: bool = False
    ended: SiteJobState | None = None
    exit_code: int = 0


class Witness(Protocol):
    """Is told what really happens at a site."""

    def submitted(self, site: str, attempt: AttemptId, job_id: int) -> None: ...
    def misplaced(self, site: str, attempt: AttemptId) -> None: ...
    def is_task(self, attempt: AttemptId, array_index: int | None) -> None: ...
    def began(self, run: CodeRun) -> None: ...
    def ended(self, run: CodeRun) -> None: ...
    def stopped(self, site: str, attempt: AttemptId, job_id: int) -> None: ...
    def unrecorded(self, attempt: AttemptId) -> None: ...
    def beyond(self, attempt: AttemptId) -> None: ...
    def refused(self, site: str, attempt: AttemptId) -> None: ...
    def befell(self, what: str) -> None: ...


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
        super().__init__(nodes, clock, self._starts)
        self.name = name
        self._script = script
        self._witness = witness
        self._spool = spool
        self._origin: dict[int, AttemptId] = {}  # of jobs of the federation, whatever they say
        self._runs: dict[int, CodeRun] = {}  # user code that runs now, by job id
        self._notified: set[tuple[int, int]] = set()  # jobs, and their starts, that are to leave
        self.holds_next = False  # its user holds the next job at once
        self.held: set[int] = set()  # by their users
        self.nameless: set[int] = set()  # whose comment was rewritten
        self.keeps_accounts = False  # there is a slurmdbd
        self.prolog_fails = 0  # of the next jobs to start

    # ---- what sbatch and Slurm do ----

    def take_in(
        self, attempt: AttemptId, user: str, jobs: tuple[JobPlan, ...], time_limit_s: float
    ) -> int:
        """An sbatch of the federation reaches slurmctld."""
        if self.holds_next:
            self.holds_next = False
            self.held.add(self._last_id + 1)
            self._witness.befell("user holds")
        job_id = self.submit(attempt, user, jobs, time_limit_s)
        self._origin[job_id] = attempt
        self._notified = {each for each in self._notified if each[0] != job_id}  # of one before
        self._witness.submitted(self.name, attempt, job_id)
        return job_id

    def check_pins(self, attempt: AttemptId, jobs: tuple[JobPlan, ...]) -> None:
        """As sbatch does.

        Raises:
            SiteRefused: components of a het job are pinned to the same node.
        """
        names = [name for plan in jobs for name in plan.nodes]
        if len(names) > len(set(names)):
            self._witness.misplaced(self.name, attempt)
            raise SiteRefused(
                "sbatch: error: Batch job submission failed: Invalid node name specified"
            )

    def is_task(self, attempt: AttemptId, array_index: int | None) -> None:
        """An sbatch of this attempt says ``--array=INDEX``, or is of no array."""
        self._witness.is_task(attempt, array_index)

    def beyond(self, attempt: AttemptId) -> None:
        """An sbatch of this attempt is on its way that everybody has given up."""
        self._witness.beyond(attempt)

    def refuses(self, attempt: AttemptId) -> None:
        """sbatch does not take this attempt, nor another of it, until that is mended."""
        self._witness.refused(self.name, attempt)

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

    def het_jobs_at_work(self) -> list[SimulatedJob]:
        """Those of them that run, with more than one component."""
        return [job for job in self.at_work() if len(job.jobs) > 1]

    def now_s(self) -> float:
        return self._clock()

    def real(self, job: SimulatedJob) -> AttemptId | None:
        return self._origin.get(job.job_id)

    def _has_room(self, job: SimulatedJob) -> bool:
        return job.job_id not in self.held and super()._has_room(job)

    def _starts(self, job: SimulatedJob) -> None:
        later(PROLOG_S, self._prolog, job, job.restarts)
        later(PROLOG_S + job.time_limit_s, self._limit, job, job.restarts)

    def _is(self, job: SimulatedJob, restarts: int) -> bool:
        same = self.jobs.get(job.job_id) is job and job.restarts == restarts
        return same and job.state is SiteJobState.RUNNING

    def _prolog(self, job: SimulatedJob, restarts: int) -> None:
        if not self._is(job, restarts):
            return
        origin = self.real(job)
        if self.prolog_fails and origin is not None:
            self.prolog_fails -= 1
            self._witness.befell("prolog fails")
            name = next(iter(job.jobs[-1].nodes))  # of a het job, not the batch script's
            self._empty[name] = replace(
                self._empty[name], state=NodeState.DRAINED, drain_reason="Prolog error"
            )
            self.put_back(job)
        elif self._spool is not None and not _may_start(self._spool, self.name, job):
            if origin is not None:
                self._witness.stopped(self.name, origin, job.job_id)
            self._end(job, SiteJobState.CANCELLED, 0)
        elif origin is not None:
            gpus = sum(share.gpus for plan in job.jobs for share in plan.nodes.values())
            run = CodeRun(self.name, origin, job.job_id, job.user, gpus, self._clock())
            run.notified = (job.job_id, restarts) in self._notified  # in its folder, if no more
            self._runs[job.job_id] = run
            self._witness.began(run)
            later(self._script(origin).duration_s, self._ends, job, restarts)

    def _ends(self, job: SimulatedJob, restarts: int) -> None:
        origin = self.real(job)
        if self._is(job, restarts) and origin is not None:
            script = self._script(origin)
            self._end(job, script.ending, script.exit_code)

    def _limit(self, job: SimulatedJob, restarts: int) -> None:
        if self._is(job, restarts):
            self._end(job, SiteJobState.TIMEOUT, 0)

    def _end(self, job: SimulatedJob, state: SiteJobState, exit_code: int) -> None:
        self._code_ends(job, state, exit_code)
        super()._end(job, state, exit_code)

    def _code_ends(self, job: SimulatedJob, state: SiteJobState, exit_code: int) -> None:
        run = self._runs.pop(job.job_id, None)
        if run is not None:
            run.ended, run.exit_code = state, exit_code
            self._witness.ended(run)

    # ---- signals ----

    def notify(self, job: SimulatedJob) -> None:
        """It is told to leave; it may save, and say so by its exit status."""
        run, origin = self._runs.get(job.job_id), self.real(job)
        self._notified.add((job.job_id, job.restarts))
        if run is None or origin is None or run.notified:
            return
        run.notified = True
        wait_s = self._script(origin).saves_s
        if wait_s < 1e6:
            later(wait_s, self._leaves, job, job.restarts)

    def _leaves(self, job: SimulatedJob, restarts: int) -> None:
        if self._is(job, restarts):
            self._end(job, SiteJobState.FAILED, 85)

    def end_job(self, job: SimulatedJob, state: SiteJobState) -> None:
        """As somebody who may says."""
        if job.live:
            self._end(job, state, 0)

    def kill_job(self, job: SimulatedJob) -> None:
        if job.live:
            job.signal = 9
            self._end(job, SiteJobState.FAILED, 0)

    # ---- what befalls it ----

    def put_back(self, job: SimulatedJob, *, preempted: bool = False) -> None:
        """As ``scontrol requeue``, or the site's own preemption: the same job waits again."""
        self._code_ends(job, SiteJobState.PREEMPTED, 0)
        job.state, job.started_at_s, job.ended_at_s = SiteJobState.PENDING, 0.0, 0.0
        job.restarts, job.preempted = job.restarts + 1, preempted
        job.cancelled = frozenset()
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
            self._code_ends(job, SiteJobState.CANCELLED, 0)  # nodes end what nobody knows
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
            self._witness.unrecorded(origin)

    def drain(self, name: str) -> None:
        self._empty[name] = replace(
            self._empty[name], state=NodeState.DRAINED, drain_reason="maintenance"
        )

    def mend(self) -> None:
        """All nodes work again, nobody holds anything, and local jobs are gone."""
        self._local.clear()
        self.held.clear()
        self.prolog_fails = 0
        self.holds_next = False
        self.refuses_cancels = False
        for name in self._empty:
            self._empty[name] = replace(self._empty[name], state=NodeState.IDLE, drain_reason="")
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


def _may_start(spool: Path, site: str, job: SimulatedJob) -> bool:
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
