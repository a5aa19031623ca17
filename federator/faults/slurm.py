"""An in-memory Slurm: pinned jobs start when their nodes are free.

``SimulatedSlurm`` is the cluster itself, synchronous. Jobs end when they are told to.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from federator.agent.base import Holder
from federator.errors import SiteRefused
from federator.faults.simulated_nodes import SimulatedNodes
from federator.model.plan import JobPlan
from federator.model.site import (
    AttemptReport,
    Leave,
    Node,
    NodeShare,
    SiteComponent,
    SiteJobState,
    combined_state,
)
from federator.model.workload import AttemptId


@dataclass(slots=True)
class SimulatedJob:
    job_id: int
    attempt: AttemptId
    user: str
    jobs: tuple[JobPlan, ...]
    state: SiteJobState = SiteJobState.PENDING
    exit_code: int = 0
    signal: int = 0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    time_limit_s: float = inf
    cancelled: frozenset[int] = frozenset()  # components that were ended alone
    leave: Leave | None = None  # once it was told to
    restarts: int = 0
    preempted: bool = False  # by the site itself
    saved_at_s: float = 0.0  # its last checkpoint, that is found when it ends untold
    spare: int = 0  # of its nodes; if it has any, it outlives each that fails but the first
    lost: frozenset[str] = frozenset()  # nodes that failed, and that it has no more
    shown: tuple[object, AttemptReport | None] = (None, None)  # last by squeue, and of what

    @property
    def live(self) -> bool:
        return not self.state.ended

    @property
    def last_id(self) -> int:
        """Of its last component; ids of a het job follow each other."""
        return self.job_id + len(self.jobs) - 1

    @property
    def held(self) -> dict[int, JobPlan]:
        """The shares that its components hold while it runs, by number."""
        there = {k: plan for k, plan in enumerate(self.jobs) if k not in self.cancelled}
        if not self.lost:
            return there
        return {k: _without(plan, self.lost) for k, plan in there.items()}

    @property
    def nodes_left(self) -> list[str]:
        """Those that are its own yet; its batch script runs on the first."""
        return [name for plan in self.jobs for name in plan.nodes if name not in self.lost]

    def requeue(self, *, preempted: bool) -> None:
        """As ``scontrol requeue``, or the site's own preemption: the same job id waits again."""
        self.state, self.started_at_s, self.ended_at_s = SiteJobState.PENDING, 0.0, 0.0
        self.cancelled, self.lost = frozenset(), frozenset()
        self.restarts, self.preempted = self.restarts + 1, preempted

    @property
    def has_enough_nodes(self) -> bool:
        """Whether it could start again on those that are left."""
        return len(self.lost) <= self.spare

    @property
    def components(self) -> dict[int, SiteComponent]:
        if len(self.jobs) == 1:
            return {}
        return {
            k: SiteComponent(
                self.job_id + k, SiteJobState.CANCELLED if k in self.cancelled else self.state
            )
            for k in range(len(self.jobs))
        }


class SimulatedSlurm:
    """One cluster.

    Args:
        nodes: as they are when nothing runs.
        clock: returns Unix time.
        on_start: called with every job that starts.
        on_end: called with every job before it ends, its state and its exit status.
        on_loss: called with a job that goes on without a node that has failed.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        clock: Callable[[], float],
        on_start: Callable[[SimulatedJob], None] = lambda _: None,
        on_end: Callable[[SimulatedJob, SiteJobState, int], None] = lambda *_: None,
        on_loss: Callable[[SimulatedJob], None] = lambda _: None,
    ) -> None:
        self.hardware = SimulatedNodes(nodes)
        self.clock = clock
        self._on_start = on_start
        self._on_end = on_end
        self._on_loss = on_loss
        self._last_id = 100
        self.jobs: dict[int, SimulatedJob] = {}
        self.accounts: dict[AttemptId, AttemptReport] = {}  # of those that were forgotten
        self.refuses_cancels = False
        self.kill_wait_s = 5.0
        self.starts_jobs = True  # False: something local always gets in between
        self.waits_for = ""  # Slurm's reason of jobs that wait
        self.fails_for = ""  # it ends what it has accepted, with this reason, before it starts

    # ---- what sbatch, scancel and life do ----

    def submit(
        self,
        attempt: AttemptId,
        user: str,
        jobs: Sequence[JobPlan],
        time_limit_s: float = inf,
        *,
        spare: int = 0,
    ) -> int:
        job_id, self._last_id = self._last_id + 1, self._last_id + len(jobs)
        job = SimulatedJob(
            job_id=job_id,
            attempt=attempt,
            user=user,
            jobs=tuple(jobs),
            time_limit_s=time_limit_s,
            spare=spare,
        )
        self.jobs[job.job_id] = job
        if self.fails_for:
            job.signal = 1
            self._end(job, SiteJobState.FAILED, 0)
        self.start_what_can()
        return job.job_id

    def cancel(self, job_id: int, *, pending_only: bool) -> bool:
        """As ``SiteDriver.cancel``."""
        if self.refuses_cancels:
            raise SiteRefused("scancel: Kill job error")
        job = self.jobs.get(job_id)
        if job is None:
            return self._cancel_component(job_id)
        if job.live and (job.state is SiteJobState.PENDING or not pending_only):
            self._end(job, SiteJobState.CANCELLED, 0)
        return True

    def _cancel_component(self, job_id: int) -> bool:
        for job in self.jobs.values():
            number = job_id - job.job_id
            if 0 < number < len(job.jobs):
                self.cancel_components(job.job_id, (number,))
                return True
        return False

    def cancel_components(self, job_id: int, numbers: Iterable[int]) -> None:
        """End components of a het job that runs; the first stays, and with it the job."""
        job = self.jobs.get(job_id)
        if job is not None and job.state is SiteJobState.RUNNING:
            job.cancelled |= frozenset(numbers) - {0}
            self.start_what_can()

    def end(
        self,
        attempt: AttemptId,
        state: SiteJobState = SiteJobState.COMPLETED,
        exit_code: int = 0,
        signal: int = 0,
    ) -> None:
        """End an attempt's job as whoever asks wants it; harmless when it has ended."""
        for job in self.jobs.values():
            if job.attempt == attempt and job.live:
                job.signal = signal or job.signal
                self._end(job, state, exit_code)

    def requeue(self, attempt: AttemptId, *, preempted: bool = False) -> None:
        """Put an attempt's job back into the queue."""
        for job in self.jobs.values():
            if job.attempt == attempt:
                job.requeue(preempted=preempted)
        self.start_what_can()

    def forget(self, attempt: AttemptId) -> None:
        """The records of an attempt expire, or are lost."""
        self.accounts |= {r.attempt: r for r in self.reports() if r.attempt == attempt}
        self.jobs = {k: job for k, job in self.jobs.items() if job.attempt != attempt}

    def fail_prolog(self, name: str, why: str = "") -> None:
        """A node refuses to begin: it is drained, and whoever was to start there waits again."""
        self.hardware.drain(name, why)
        for job in _on_node(self.running(), name):
            self.requeue(job.attempt)

    def fail_node(self, name: str) -> None:
        self.hardware.fail(name)
        for job in _on_node(self.running(), name):
            if job.spare and name != job.nodes_left[0]:
                job.lost |= {name}
                self._on_loss(job)
            else:
                self._end(job, SiteJobState.NODE_FAIL, 1)

    def repair_node(self, name: str) -> None:
        self.hardware.repair(name)
        self.start_what_can()

    def take_locally(self, name: str, share: NodeShare) -> None:
        """A local user's job takes part of a node; an empty share ends it."""
        self.hardware.take_locally(name, share)
        self.start_what_can()

    def start_what_can(self) -> None:
        """Start pending jobs whose pinned nodes have room, oldest first."""
        if not self.starts_jobs:
            return
        for job in self.jobs.values():
            if job.state is SiteJobState.PENDING and self._may_start(job):
                job.state, job.started_at_s = SiteJobState.RUNNING, self.clock()
                self._on_start(job)

    def _end(self, job: SimulatedJob, state: SiteJobState, exit_code: int) -> None:
        self._on_end(job, state, exit_code)
        job.state, job.exit_code, job.ended_at_s = state, exit_code, self.clock()
        self.start_what_can()

    def _may_start(self, job: SimulatedJob) -> bool:
        return self.hardware.have_room(job.jobs, _held_by(self.running()))

    # ---- what sinfo and squeue show ----

    def running(self) -> list[SimulatedJob]:
        return [job for job in self.jobs.values() if job.state is SiteJobState.RUNNING]

    def live(self) -> list[SimulatedJob]:
        return [job for job in self.jobs.values() if job.live]

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.hardware.used_by(_held_by(self.running())).values())

    def holders(self) -> tuple[Holder, ...]:
        return tuple(map(_holder, self.running()))

    def reports(self) -> tuple[AttemptReport, ...]:
        return tuple(_report(job, self.waits_for, self.fails_for) for job in self.jobs.values())


def _on_node(jobs: Iterable[SimulatedJob], name: str) -> list[SimulatedJob]:
    return [job for job in jobs if name in job.nodes_left]


def _without(plan: JobPlan, names: Container[str]) -> JobPlan:
    nodes = {name: share for name, share in plan.nodes.items() if name not in names}
    return replace(plan, nodes=nodes)


def _held_by(jobs: Iterable[SimulatedJob]) -> list[JobPlan]:
    return [plan for job in jobs for plan in job.held.values()]


def _holder(job: SimulatedJob) -> Holder:
    return Holder(
        job_id=job.job_id,
        attempt=job.attempt,
        started_at_s=job.started_at_s,
        nodes=_held_together(job.held.values()),
        components={k: plan.nodes for k, plan in job.held.items()} if job.components else {},
        ends_by_s=job.started_at_s + job.time_limit_s,
    )


def _report(job: SimulatedJob, waits_for: str, fails_for: str) -> AttemptReport:
    """What squeue says of a job, with Slurm's reason if it waits, or ended before it began.

    Most jobs have ended long ago: of those the last report is shown again.
    """
    waits = job.state is SiteJobState.PENDING
    reason = waits_for if waits else "" if job.started_at_s else fails_for
    now = (
        *(job.state, reason, job.exit_code, job.signal, job.started_at_s, job.ended_at_s),
        *(job.cancelled, job.lost, job.leave, job.restarts, job.preempted, job.saved_at_s),
    )
    before, report = job.shown
    if report is None or before != now:
        report = _new_report(job, reason)
        job.shown = now, report
    return report


def _new_report(job: SimulatedJob, reason: str) -> AttemptReport:
    return AttemptReport(
        attempt=job.attempt,
        user=job.user,
        site_job_id=job.job_id,
        state=_combined(job),
        reason=reason,
        exit_code=job.exit_code,
        signal=job.signal,
        started_at_s=job.started_at_s,
        ended_at_s=job.ended_at_s,
        nodes=tuple(job.nodes_left),
        components=job.components,
        leave=job.leave,
        restarts=job.restarts,
        preempted=job.preempted,
        saved_at_s=job.saved_at_s,
    )


def _combined(job: SimulatedJob) -> SiteJobState:
    return combined_state(c.state for c in job.components.values()) if job.components else job.state


def _held_together(plans: Iterable[JobPlan]) -> dict[str, NodeShare]:
    held: dict[str, NodeShare] = {}
    for name, share in (item for plan in plans for item in plan.nodes.items()):
        held[name] = held.get(name, NodeShare()) + share
    return held
