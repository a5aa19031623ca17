"""User code that runs in the jobs of a simulated Slurm: it begins, may save, and ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from federator.faults.process import later
from federator.faults.slurm import SimulatedJob
from federator.model.site import SiteJobState
from federator.model.workload import AttemptId

GIVES_UP_S: Final = 4.0  # on ranks that never come
NOTICES_S: Final = 2.0  # it takes, to see that its nodes are too few
NOT_JOINED: Final = 17  # its exit status then
SAVED: Final = 85  # the exit status of user code that has saved and left


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The behaviour of a job when it runs, and its end."""

    duration_s: float = 10.0
    exit_code: int = 0
    saves_s: float = 1.0  # from when it is told to leave until it has left by itself; inf: never
    joins: float = inf  # on more nodes its ranks never find each other, and it fails

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
    nodes: int = 1
    joins: float = inf  # as of its script
    lost_nodes: int = 0  # of its job, that failed before or under it; it may have to start again


class Witness(Protocol):
    """Is told what really happens at a site."""

    def submitted(self, site: str, attempt: AttemptId, job_id: int) -> None: ...
    def misplaced(self, site: str, attempt: AttemptId) -> None: ...
    def is_task(self, attempt: AttemptId, array_index: int | None) -> None: ...
    def starts(self, attempt: AttemptId) -> None: ...
    def began(self, run: CodeRun) -> None: ...
    def ended(self, run: CodeRun) -> None: ...
    def went_on(self, run: CodeRun, *, enough: bool) -> None: ...
    def stopped(self, site: str, attempt: AttemptId, job_id: int) -> None: ...
    def unrecorded(self, attempt: AttemptId) -> None: ...
    def beyond(self, attempt: AttemptId) -> None: ...
    def refused(self, site: str, attempt: AttemptId) -> None: ...
    def befell(self, what: str) -> None: ...


class UserCode:
    """The user code that runs at one site.

    Args:
        site: its name.
        clock: the site's wall clock.
        script: what an attempt's job does.
        witness: is told of each start and end.
        finish: ends this start of a job, if it still runs, with a state and an exit status; PENDING
            puts it back.
    """

    def __init__(
        self,
        site: str,
        clock: Callable[[], float],
        script: Callable[[AttemptId], Script],
        witness: Witness,
        finish: Callable[[SimulatedJob, int, SiteJobState, int], None],
    ) -> None:
        self._site = site
        self._clock = clock
        self._script = script
        self._witness = witness
        self._finish = finish
        self._runs: dict[int, CodeRun] = {}  # by job id
        self._notified: set[tuple[int, int]] = set()  # jobs, and their starts, that are to leave

    def begin(self, job: SimulatedJob, attempt: AttemptId) -> None:
        gpus = sum(share.gpus for plan in job.jobs for share in plan.nodes.values())
        run = CodeRun(self._site, attempt, job.job_id, job.user, gpus, self._clock())
        script = self._script(attempt)
        run.nodes, run.joins = len(set(job.nodes_left)), script.joins
        run.lost_nodes = len(job.lost)  # a spare's may have failed in the prolog
        run.notified = (job.job_id, job.restarts) in self._notified  # in its folder, if no more
        self._runs[job.job_id] = run
        self._witness.began(run)
        if run.nodes > script.joins:
            later(GIVES_UP_S, self._finish, job, job.restarts, SiteJobState.FAILED, NOT_JOINED)
            return
        later(script.duration_s, self._finish, job, job.restarts, script.ending, script.exit_code)

    def lose(self, job: SimulatedJob) -> None:
        """A node of its job has failed: it goes on with a spare, or has the job put back."""
        run = self._runs.get(job.job_id)
        if run is not None:
            run.lost_nodes = len(job.lost)
            self._witness.went_on(run, enough=job.has_enough_nodes)
        if not job.has_enough_nodes:
            later(NOTICES_S, self._finish, job, job.restarts, SiteJobState.PENDING, 0)

    def end(self, job: SimulatedJob, state: SiteJobState, exit_code: int) -> None:
        """Its job ends: user code does, too, if any runs."""
        run = self._runs.pop(job.job_id, None)
        if run is not None:
            run.ended, run.exit_code = state, exit_code
            self._witness.ended(run)

    def notify(self, job: SimulatedJob) -> None:
        """It is told to leave; it may save, and say so by its exit status."""
        run = self._runs.get(job.job_id)
        self._notified.add((job.job_id, job.restarts))
        if run is None or run.notified:
            return
        run.notified = True
        wait_s = self._script(run.attempt).saves_s
        if wait_s < 1e6 and run.nodes <= run.joins:  # ranks that never met have nothing to save
            later(wait_s, self._finish, job, job.restarts, SiteJobState.FAILED, SAVED)

    def begin_anew(self, job_id: int) -> None:
        """A new job has this id: what an earlier one of the same id was told is not for it."""
        self._notified = {each for each in self._notified if each[0] != job_id}
