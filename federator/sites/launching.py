"""How does an attempt begin at this site, and how is it ended? Once, however often it is ordered.

The journal has the last word: an attempt whose job is known is never submitted again, one that was
given up never at all, and one whose outcome is unknown is looked for in Slurm until that is
certain: in squeue, and before it is called absent in sacct. Orders for one attempt wait for each
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from federator.errors import FederatorError, InvalidRequest, SiteRefused, SiteUnavailable
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import AttemptId
from federator.sched.site_scheduler import SiteScheduler
from federator.sites.base import Launched, Missing, SbatchRefused, SiteDriver, SubmittedJob
from federator.sites.calls import Message
from federator.sites.journal import Journal, Mark, Step
from federator.sites.kept_orders import KeptOrders
from federator.sites.protocol import (
    AttemptAbsent,
    CancelFailed,
    CancelOrder,
    LaunchAccepted,
    LaunchDeclined,
    LaunchOrder,
    Report,
)
from federator.sites.spool import Spool
from federator.sites.starter import Starter, starter_of

INTENT_HORIZON_S: Final = 45.0  # an sbatch older than this has succeeded or never will:
# the helper calls it within 12 s or not at all, and ends it after 30 s
SEEN_WITHIN_S: Final = 60.0  # of sbatch's answer a sweep shows a job, or it is forgotten
LIVES_S: Final = 86_400.0  # between two notes that a job lives
LAUNCHES_AT_ONCE: Final = 8
CANCELS_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEdges:
    """What an agent lends to those who act for it."""

    scheduler: Callable[[], SiteScheduler]  # keeps the nodes of what was ordered
    known: Callable[[], Mapping[AttemptId, AttemptReport]]  # the attempts of the last sweep
    told: Callable[[AttemptReport], AttemptReport]  # with how it leaves, if it was told to
    sweep: Callable[[], Awaitable[bool]]  # looks again; False when Slurm did not answer
    send: Callable[[Message], None]  # to the daemon
    watch: Callable[[], None]  # asks for sweeps in short order
    start: Callable[[Coroutine[Any, Any, None]], None]  # runs a task to its end
    scripts_consume: bool = False  # leases; otherwise the site's prolog does


class Launches:
    """Orders to start and to end attempts.

    Args:
        driver: this site's Slurm.
        journal: remembers what was begun.
        kept: remembers what was asked for, and how it ended.
        spool: shows the site's hooks what may start.
        clock: returns Unix time.
        agent: see ``AgentEdges``.
    """

    def __init__(
        self,
        driver: SiteDriver,
        journal: Journal,
        kept: KeptOrders,
        spool: Spool,
        clock: Callable[[], float],
        agent: AgentEdges,
    ) -> None:
        self._driver = driver
        self._journal = journal
        self._kept = kept
        self._spool = spool
        self._clock = clock
        self._scheduler = agent.scheduler
        self._known = agent.known
        self._told = agent.told
        self._sweep = agent.sweep
        self._send = agent.send
        self._watch = agent.watch
        self._start = agent.start
        self._scripts_consume = agent.scripts_consume
        self._slots = asyncio.Semaphore(LAUNCHES_AT_ONCE)
        self._cancel_slots = asyncio.Semaphore(CANCELS_AT_ONCE)
        self._cancels: set[CancelOrder] = set()  # under way or waiting for a slot
        self._locks: dict[AttemptId, asyncio.Lock] = {}
        self._beginning: set[AttemptId] = set()  # may have a lease and no mark yet
        self._doubtful: set[AttemptId] = set()  # were to end; the next sweep may not show them
        self._since_s = self._elapsed_s()  # an earlier agent was over, with all it had begun
        self._begun_s: dict[AttemptId, float] = {}  # by this one
        self.supposed: dict[int, Launched] = {}
        """Jobs that may be attempts that were begun, by their (leaders') ids."""
        self.accepted_lately: dict[AttemptId, tuple[str, int]] = {}
        """User and job id of those accepted since the last sweep began."""

    def sweep_begins(self, *, idle: bool) -> None:
        """What is accepted from now on, the sweep may miss.

        Args:
            idle: no task of the agent is at work.
        """
        self.accepted_lately.clear()
        if idle:
            self._locks.clear()  # nobody holds one or waits for one
            self._begun_s.clear()  # what was begun is known to be a job, or given up

    # ---- launches ----

    def take(self, order: LaunchOrder) -> None:
        """Check the plan and hold its nodes at once, before the next message is read."""
        obstacle = None
        scheduler = self._scheduler()
        mark = self._journal.get(order.attempt)
        if mark is None:
            obstacle = scheduler.holds(order.jobs, order.victims, order.shrinks)
        if obstacle is None and (mark is None or mark.step is Step.INTENT or self._waits(order)):
            ends_by_s = self._clock() + order.time_limit_s
            scheduler.hold(order.attempt, order.jobs, ends_by_s, order.victims, order.shrinks)
        self._start(self._launch(order, obstacle))

    def _waits(self, order: LaunchOrder) -> bool:
        """The attempt is in Slurm's queue, so its nodes do not show it yet."""
        report = self._known().get(order.attempt)
        return report is not None and report.state is SiteJobState.PENDING

    async def _launch(self, order: LaunchOrder, obstacle: Reason | None) -> None:
        async with self._lock_of(order.attempt), self._slots:
            mark, detail = self._journal.get(order.attempt), "given up before"
            if mark is None:
                mark = self._unmarked(order)
            elif mark.step is Step.INTENT:
                mark = await self._settle(order.attempt, mark)
                detail = "its sbatch was begun, and has left no job"
            if mark is not None and mark.step is Step.JOB:
                await self._is_job(order, mark.job_id)
            elif mark is not None and mark.step is Step.VOID:
                await self._declined(order, detail)
            elif obstacle is not None:
                await self._void(order)
                self._send(LaunchDeclined(attempt=order.attempt, reason=obstacle))
            else:
                await self._submit(order)

    def _unmarked(self, order: LaunchOrder) -> Mark | None:
        """Slurm has the job of an order that a journal knew which is lost."""
        report = self._known().get(order.attempt)
        if report is None or report.user != order.user:
            return None
        return Mark(step=Step.JOB, at_s=self._clock(), user=order.user, job_id=report.site_job_id)

    async def _submit(self, order: LaunchOrder) -> None:
        self._beginning.add(order.attempt)
        try:
            starter = self._starter(order)
            # Before the intent, since sbatch must be over so soon after that.
            token = await self._spool.open(order.attempt, order.user, starter)
            intent = Mark(step=Step.INTENT, at_s=self._clock(), user=order.user,
                          checkpoint_dir=order.checkpoint_dir)  # fmt: skip
            self._kept.put(order)
            self._journal.put(order.attempt, intent)
            self._begun_s[order.attempt] = self._elapsed_s()
        except (SiteUnavailable, InvalidRequest, ValueError) as error:
            await self._unless_found(order, str(error))  # without a lease its gate would end it
            return
        finally:
            self._beginning.discard(order.attempt)
        await self._call_sbatch(order, token, starter.line if starter is not None else "")

    def _starter(self, order: LaunchOrder) -> Starter | None:
        if not self._scripts_consume:
            return None
        script = order.submission.script_bytes.decode("utf-8", "surrogateescape")
        return starter_of(script, order.attempt, str(self._spool.folder))

    def starter_again(self, attempt: AttemptId) -> Starter | None:
        """What starts the script of an attempt that was begun; None: nothing, or it is lost."""
        order = self._kept.order(attempt) if self._scripts_consume else None
        try:
            return self._starter(order) if order is not None else None
        except (InvalidRequest, ValueError):  # its script is kept no more, say
            return None

    async def _call_sbatch(self, order: LaunchOrder, token: str, start_line: str) -> None:
        try:
            try:
                done = await self._driver.launch(order, token, start_line)
            finally:
                await self._spool.shut(token)
        except SiteRefused as error:
            code = error.code if isinstance(error, SbatchRefused) else ReasonCode.LAUNCH_REFUSED
            await self._declined(order, str(error), code)
            return
        except SiteUnavailable as error:
            await self._unless_found(order, str(error))
            return
        self._accepted(order, done)

    async def _unless_found(self, order: LaunchOrder, detail: str) -> None:
        """Decline it, unless an sbatch of it, which may be another agent's, has submitted it."""
        mark = self._journal.get(order.attempt)
        if mark is not None and mark.step is Step.INTENT:
            mark = await self._find(order.attempt, mark)
            if mark is not None:
                self._journal.put(order.attempt, mark)
                await self._is_job(order, mark.job_id)
                return
        await self._declined(order, detail)

    async def _is_job(self, order: LaunchOrder, job_id: int) -> None:
        """It was submitted before; where no sweep shows it any more, tell how it ended."""
        mark = self._journal.get(order.attempt)
        work_dir = mark.work_dir if mark is not None else None
        self._accepted(order, SubmittedJob(job_id, work_dir))
        if order.attempt not in self._known() and await self._sweep():
            await self.gone((order.attempt,))

    def is_over(self, attempt: AttemptId) -> bool:
        """Tell, after a sweep, whether an attempt can never start here (again).

        One that waits, runs or was put back may; one whose outcome is unknown too. A job that
        sbatch named since the sweep began, however long that takes, or a moment before may not be
        in it yet.
        """
        if attempt in self._beginning or attempt in self.accepted_lately:
            return False
        mark, report = self._journal.get(attempt), self._known().get(attempt)
        if mark is not None and mark.step is Step.VOID:
            return True
        if report is not None:
            return report.state.ended
        if mark is None or mark.step is Step.INTENT:
            return mark is None
        return self._clock() > mark.at_s + SEEN_WITHIN_S

    def live(self) -> dict[AttemptId, str]:
        """The users of those that have a job here that may start or run, by the last sweep."""
        return {
            a: report.user
            for a, report in self._known().items()
            if (mark := self._journal.get(a)) is not None
            and mark.step is Step.JOB
            and not mark.cancelled  # its lease is not made anew
            and not report.state.ended
        }

    def sweep_ends(self) -> None:
        """What the sweep shows is noted; what it should show and does not is told.

        What an earlier agent was submitting when it ended is known by its job id from now on,
        whatever becomes of its comment. What was to end and is not seen has ended, or its user has
        renamed it.
        """
        for attempt, report in self._known().items():
            mark = self._journal.get(attempt)
            if mark is not None and mark.step is Step.INTENT and attempt not in self._begun_s:
                self._journal.put(attempt, self._found(mark, report.site_job_id))
        doubtful, self._doubtful = self._doubtful, set()
        gone = [a for a in doubtful if a not in self._known() and self.is_over(a)]
        if gone:
            self._start(self.gone(gone))

    def keep_live(self) -> None:
        """What lives is not forgotten, however long ago it was ordered."""
        now_s = self._clock()
        for attempt in self.live():
            mark = self._journal.get(attempt)
            if mark is not None and now_s > max(mark.at_s, mark.lived_at_s) + LIVES_S:
                self._journal.put(attempt, replace(mark, lived_at_s=now_s))
                self._kept.keep(attempt, now_s)

    def _accepted(self, order: LaunchOrder, done: SubmittedJob) -> None:
        job_id, work_dir = done
        known = self._journal.get(order.attempt)
        if known is None or (known.step, known.job_id) != (Step.JOB, job_id):
            self._journal.put(
                order.attempt,
                Mark(step=Step.JOB, at_s=self._clock(), user=order.user, job_id=job_id,
                     checkpoint_dir=order.checkpoint_dir, work_dir=work_dir),
            )  # fmt: skip
        self.accepted_lately[order.attempt] = (order.user, job_id)
        self._send(LaunchAccepted(attempt=order.attempt, site_job_id=job_id, work_dir=work_dir))
        self._watch()

    async def _declined(
        self, order: LaunchOrder, detail: str, code: ReasonCode = ReasonCode.LAUNCH_REFUSED
    ) -> None:
        await self._void(order)
        reason = Reason(code=code, detail=detail[:500])
        self._send(LaunchDeclined(attempt=order.attempt, reason=reason))

    async def _void(self, order: LaunchOrder | CancelOrder) -> None:
        """Remember that the attempt is not here and must never be.

        Without its lease even an sbatch that slips through all the same starts nothing.
        """
        known = self._journal.get(order.attempt)
        void = Mark(step=Step.VOID, at_s=self._clock(), user=order.user)
        if known is not None:
            void = replace(void, withdrawn=known.withdrawn, cancelled=known.cancelled)
        if isinstance(order, CancelOrder):
            void = _ordered_to_end(void, order)
        self._journal.put(order.attempt, void)
        self._scheduler().release(order.attempt)
        await self._spool.release(order.attempt)

    async def gone(self, attempts: Sequence[AttemptId]) -> None:
        """Slurm shows jobs no more that the journal knows: tell how they ended, if that is known.

        The agent itself may have seen it, before a channel broke, say; or Slurm's accounting has.
        """
        attempts = [a for a in attempts if a not in self._known()]
        found = await self.ended(attempts)
        attempts = [a for a in attempts if a not in self._known()]  # a later sweep may show them
        for attempt in attempts:
            self._scheduler().release(attempt)
        told = self._journal.located(found[a] for a in attempts if a in found)
        if attempts:
            self._send(Report(attempts=told, gone=tuple(a for a in attempts if a not in found)))

    async def ended(self, attempts: Sequence[AttemptId]) -> dict[AttemptId, AttemptReport]:
        """How attempts ended that squeue shows no more, as far as anybody here can tell."""
        seen = self._kept.endings() if attempts else {}
        found = {a: seen[a] for a in attempts if a in seen}
        missing = [
            Missing(attempt=a, user=mark.user, submitted_at_s=mark.at_s, job_id=mark.job_id)
            for a in attempts
            if a not in found and (mark := self._journal.get(a)) is not None
            and mark.step is Step.JOB
        ]  # fmt: skip
        found |= await self._accounted(missing)
        return found

    async def _accounted(self, missing: Sequence[Missing]) -> Mapping[AttemptId, AttemptReport]:
        if not missing:
            return {}
        found = {a: self._told(r) for a, r in (await self._driver.accounted(missing)).items()}
        self._kept.note(found.values(), self._clock())
        return found

    async def settled(self, attempt: AttemptId) -> Mark | None:
        """The journal's last word, once it is one; waits for whatever is under way."""
        async with self._lock_of(attempt):
            mark = self._journal.get(attempt)
            if mark is None or mark.step is not Step.INTENT:
                return mark
            return await self._settle(attempt, mark)

    async def _settle(self, attempt: AttemptId, intent: Mark) -> Mark:
        """Note what has become of an attempt that was begun: a job, or nothing.

        What cannot be found is never submitted again, for Slurm may have lost a job that ran, and
        an sbatch beyond every limit may be under way: its workload has a next attempt.
        """
        found = await self._find(attempt, intent)
        if found is None:
            found = replace(intent, step=Step.VOID, at_s=self._clock())
        self._journal.put(attempt, found)
        return found

    async def _find(self, attempt: AttemptId, intent: Mark) -> Mark | None:
        """Look in Slurm for an attempt that was begun; wait until the answer is certain.

        Not by Unix time: a clock that is set forward would make an sbatch seem over that is not.
        Its lease goes before the last look, however long the spool takes, so that an sbatch that
        slips through later still starts nothing. Unless a job has consumed it, or accounts have the
        sbatch line: that is the attempt, whatever its user calls it now, or Slurm has forgotten it.
        """
        begun_s, withdrawn = self._begun_s.get(attempt, self._since_s), False
        while True:
            swept = await self._sweep()
            report = self._known().get(attempt)
            if report is not None and report.user == intent.user:
                return self._found(intent, report.site_job_id)
            if swept and withdrawn:
                break
            if not withdrawn and self._elapsed_s() > begun_s + INTENT_HORIZON_S:
                job_id = await self._spool.bound_job(attempt, intent.user)
                if job_id:
                    return self._found_late(intent, job_id)
                withdrawn = job_id is not None and await self._spool.release(attempt)
            if not (swept and withdrawn):
                await asyncio.sleep(1.0)
        missing = Missing(attempt=attempt, user=intent.user, submitted_at_s=intent.at_s)
        known = (await self._accounted((missing,))).get(attempt)
        if known is None:
            return None
        found = self._found_late(intent, known.site_job_id)
        return found if known.state.ended or await self._lives(attempt, found) else None

    async def _lives(self, attempt: AttemptId, found: Mark) -> bool:
        """Whether Slurm has it, too: of jobs that slurmctld has lost accounts say that they run."""
        ours = Launched(attempt=attempt, user=found.user, at_s=found.at_s)
        self.supposed[found.job_id] = ours  # so that it is shown under any name
        try:
            while not await self._sweep():
                await asyncio.sleep(1.0)
            return attempt in self._known()
        finally:
            del self.supposed[found.job_id]

    def _found(self, intent: Mark, job_id: int) -> Mark:
        """By a sweep: it is there now."""
        return replace(intent, step=Step.JOB, job_id=job_id, at_s=self._clock())

    @staticmethod
    def _found_late(intent: Mark, job_id: int) -> Mark:
        """By what it has left; Slurm may have forgotten it, and have given its id to another."""
        at_s = intent.at_s + INTENT_HORIZON_S
        return replace(intent, step=Step.JOB, job_id=job_id, at_s=at_s, late=True)

    @staticmethod
    def _elapsed_s() -> float:
        return asyncio.get_running_loop().time()

    # ---- cancels ----

    def take_cancel(self, order: CancelOrder) -> None:
        """End it, or see to it that it never starts."""
        if order not in self._cancels:  # the daemon repeats what takes long
            self._cancels.add(order)
            self._start(self._cancel(order))

    async def _cancel(self, order: CancelOrder) -> None:
        try:
            await self._cancel_once(order)
        finally:
            self._cancels.discard(order)

    async def _cancel_once(self, order: CancelOrder) -> None:
        async with self._lock_of(order.attempt):
            job_id = await self._job_of(order)
            mark = self._journal.get(order.attempt)
            if mark is not None and mark.step is Step.JOB and mark != _ordered_to_end(mark, order):
                self._journal.put(order.attempt, _ordered_to_end(mark, order))
            try:
                if job_id is None or not await self._end(order, job_id):
                    await self._not_there(order)
                    return
            except FederatorError as error:
                self._send(CancelFailed(attempt=order.attempt, detail=str(error)))
            self._doubtful.add(order.attempt)
            self._watch()

    async def _not_there(self, order: CancelOrder) -> None:
        """Slurm has no job to end: it never had one, or the job has ended and is forgotten."""
        mark = self._journal.get(order.attempt)
        if mark is not None and mark.step is Step.JOB:
            await self._spool.release(order.attempt)
            await self.gone((order.attempt,))
        else:
            await self._void(order)
            self._send(AttemptAbsent(attempt=order.attempt))

    async def _end(self, order: CancelOrder, job_id: int) -> bool:
        async with self._cancel_slots:
            return await self._driver.cancel(order.user, job_id, pending_only=order.pending_only)

    async def _job_of(self, order: CancelOrder) -> int | None:
        """The job to cancel; None when the site has none and must never have one."""
        if order.site_job_id:
            owner = self._journal.launched.get(order.site_job_id)
            is_anothers = owner is not None and owner.attempt != order.attempt
            return None if is_anothers else order.site_job_id  # the id has come again
        report = self._known().get(order.attempt)
        if report is not None and report.user == order.user:
            return report.site_job_id
        mark = self._journal.get(order.attempt)
        if mark is not None and mark.step is Step.INTENT:
            mark = await self._settle(order.attempt, mark)
        if mark is not None and mark.step is Step.JOB:
            return mark.job_id
        return None

    def _lock_of(self, attempt: AttemptId) -> asyncio.Lock:
        return self._locks.setdefault(attempt, asyncio.Lock())


def _ordered_to_end(mark: Mark, order: CancelOrder) -> Mark:
    """The queue may be lost before it hears what came of the order."""
    return replace(mark, withdrawn=mark.withdrawn or order.pending_only,
                   cancelled=mark.cancelled or not order.pending_only)  # fmt: skip
