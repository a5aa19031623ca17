"""Carries out orders to launch and to cancel attempts: each once, and one at a time for each.

An attempt whose job is known is never submitted again, one that was given up never at all, and one
whose outcome is not known is looked for first (``lost_sbatch``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from federator.agent.attempt_table import HAS_JOB, Act, AttemptEvent, AttemptState
from federator.agent.base import SubmittedJob
from federator.agent.effects import Failure, KeepOrder, Leased, OpenLease, Release, Sbatch, Scancel
from federator.agent.evictions import Evictions
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.memory import AgentMemory, AttemptRecord, OrderTurn
from federator.agent.steps import Steps
from federator.agent.sweeping import Sweeper
from federator.agent.vanished import Vanished
from federator.model.reason import Reason, ReasonCode
from federator.model.site import SiteJobState
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import (
    AttemptAbsent,
    CancelFailed,
    CancelOrder,
    LaunchAccepted,
    LaunchDeclined,
    LaunchOrder,
)

LAUNCHES_AT_ONCE: Final = 8  # sbatch must be over soon after its intent is noted


class Attempts:
    """Orders for attempts, and whose turn it is.

    Args:
        memory: shared.
        steps: moves attempts.
        sweeper: looks again.
        vanished: tells of jobs that Slurm does not show.
        evictions: of those whose job was not known when they were to leave.
        settled: is told when somebody's question of an attempt can be answered.
    """

    def __init__(
        self,
        memory: AgentMemory,
        steps: Steps,
        sweeper: Sweeper,
        vanished: Vanished,
        evictions: Evictions,
        settled: Callable[[AttemptId], None],
    ) -> None:
        self._memory = memory
        self._steps = steps
        self._sweeper = sweeper
        self._vanished = vanished
        self._evictions = evictions
        self._settled = settled
        self._submitting: set[AttemptId] = set()
        self._ready: deque[AttemptRecord] = deque()  # wait until fewer are being submitted
        steps.add(
            {
                Act.OPEN_LEASE: self._open_lease,
                Act.SUBMIT: self._submit,
                Act.NOTE_ACCEPTED: self._note_accepted,
                Act.GIVE_UP: self._give_up,
                Act.ANSWER: self._answer,
            }
        )

    # ---- orders ----

    def launch(self, order: LaunchOrder) -> None:
        """Check the plan and hold its nodes at once; the rest when it is its turn."""
        memory, scheduler = self._memory, self._memory.scheduler
        mark, obstacle = memory.index.get(order.attempt), None
        if mark is None:
            obstacle = scheduler.holds(order.jobs, order.victims, order.shrinks)
        if obstacle is None and (
            mark is None or mark.step is JournalStep.INTENT or self._waits(order)
        ):
            ends_by_s = memory.now.unix_s + order.time_limit_s
            scheduler.hold(order.attempt, order.jobs, ends_by_s, order.victims, order.shrinks)
        self._queue(order.attempt, OrderTurn(order, obstacle))

    def cancel(self, order: CancelOrder) -> None:
        """End it, or see to it that it never starts; the daemon repeats what takes long."""
        record = self._memory.records.get(order.attempt)
        if record is None or all(turn.order != order for turn in record.turns):
            self._queue(order.attempt, OrderTurn(order))

    def settle(self, attempt: AttemptId) -> bool:
        """Find out for certain what has become of it; False: it is known."""
        record = self._memory.records.get(attempt)
        busy = record is not None and bool(record.turns)
        if not busy and self._memory.state_of(attempt) is not AttemptState.INTENT:
            return False
        if record is None or all(turn.order is not None for turn in record.turns):
            self._queue(attempt, OrderTurn(None))
        return True

    def _waits(self, order: LaunchOrder) -> bool:
        """The attempt is in Slurm's queue, so its nodes do not show it yet."""
        report = self._memory.known.get(order.attempt)
        return report is not None and report.state is SiteJobState.PENDING

    # ---- turns ----

    def _queue(self, attempt: AttemptId, turn: OrderTurn) -> None:
        record = self._memory.record(attempt)
        record.turns.append(turn)
        if len(record.turns) == 1:
            self._begin(record)

    def _begin(self, record: AttemptRecord) -> None:
        turn = record.turns[0]
        if isinstance(turn.order, LaunchOrder):
            self._begin_launch(record, turn.order, turn.obstacle)
        elif turn.order is not None:
            self._begin_cancel(record, turn.order)
        else:
            self._steps.step(record, AttemptEvent.SETTLE)

    def _begin_launch(
        self, record: AttemptRecord, order: LaunchOrder, obstacle: Reason | None
    ) -> None:
        if record.state is not AttemptState.UNKNOWN:
            begun = record.state is AttemptState.INTENT
            detail = "its sbatch was begun, and has left no job" if begun else "given up before"
            record.reason = _refused(detail)
            self._steps.step(record, AttemptEvent.SETTLE)
            return
        report = self._memory.known.get(order.attempt)
        if report is not None and report.user == order.user:  # a journal knew it, which is lost
            record.job_id, record.work_dir = report.site_job_id, None
            self._steps.step(record, AttemptEvent.ADOPT)
        elif obstacle is not None:
            record.reason = obstacle
            self._steps.step(record, AttemptEvent.OBSTRUCTED)
        elif len(self._submitting) >= LAUNCHES_AT_ONCE:
            self._ready.append(record)
        else:
            self._steps.step(record, AttemptEvent.LAUNCH)

    def _answer(self, record: AttemptRecord) -> None:
        """Its outcome is certain: go on with the order that waits for it."""
        self._evictions.job_is_known(record)
        if not record.turns:
            return
        turn = record.turns[0]
        if turn.order is None:
            self._end_turn(record)
            self._settled(record.attempt)
        elif isinstance(turn.order, CancelOrder):
            self._go_on_cancelling(record, turn.order, abandoned=turn.abandoned)
        elif record.state in HAS_JOB:
            self._accept(record, turn.order)
        else:
            reason = record.reason or _refused("given up before")
            self._memory.send(LaunchDeclined(attempt=record.attempt, reason=reason))
            self._end_turn(record)

    def _end_turn(self, record: AttemptRecord) -> None:
        record.turns.popleft()
        if record.turns:
            self._begin(record)
        else:
            self._memory.forget_idle(record.attempt)

    # ---- launches ----

    def _open_lease(self, record: AttemptRecord) -> None:
        self._submitting.add(record.attempt)
        order = _launch_of(record)
        self._memory.emit(OpenLease(number=self._memory.number(), order=order))

    def leased(self, effect: OpenLease, leased: Leased | Failure) -> None:
        """Its lease was made, or could not be: without one its gate would end it."""
        record = self._memory.records[effect.order.attempt]
        if isinstance(leased, Failure):
            record.reason = _refused(leased.detail)
            self._memory.watch()  # the spool may be in trouble, which stops all bids
            self._over(record, AttemptEvent.NOT_LEASED)
            return
        record.leased = leased
        self._steps.step(record, AttemptEvent.LEASED)

    def _submit(self, record: AttemptRecord) -> None:
        memory, order = self._memory, _launch_of(record)
        memory.emit(KeepOrder(order=order))
        intent = JournalMark(
            step=JournalStep.INTENT,
            at_s=memory.now.unix_s,
            user=order.user,
            checkpoint_dir=order.checkpoint_dir,
        )
        durable = memory.write(order.attempt, intent)
        record.begun_s = memory.now.elapsed_s
        assert record.leased is not None
        memory.emit(
            Sbatch(number=memory.number(), after=durable, order=order, leased=record.leased)
        )

    def submitted(self, effect: Sbatch, done: SubmittedJob | Failure) -> None:
        """Sbatch has named a job, or made none, or nobody knows."""
        record = self._memory.records[effect.order.attempt]
        if not isinstance(done, Failure):
            record.job_id, record.work_dir = done
            self._over(record, AttemptEvent.ACCEPTED)
            return
        record.reason = _refused(done.detail, done.refused or ReasonCode.LAUNCH_REFUSED)
        known = done.refused is not None
        self._over(record, AttemptEvent.REFUSED if known else AttemptEvent.UNANSWERED)

    def _over(self, record: AttemptRecord, event: AttemptEvent) -> None:
        """Its submission is over: another one may begin."""
        self._submitting.discard(record.attempt)
        self._steps.step(record, event)
        while self._ready and len(self._submitting) < LAUNCHES_AT_ONCE:
            self._begin(self._ready.popleft())

    def _note_accepted(self, record: AttemptRecord) -> None:
        order = _launch_of(record)
        mark = JournalMark(
            step=JournalStep.JOB,
            at_s=self._memory.now.unix_s,
            user=order.user,
            job_id=record.job_id,
            checkpoint_dir=order.checkpoint_dir,
            work_dir=record.work_dir,
        )
        self._memory.write(record.attempt, mark)
        record.fresh = True

    def _accept(self, record: AttemptRecord, order: LaunchOrder) -> None:
        """It has a job. Where no sweep shows that any more, tell how it ended."""
        memory, attempt = self._memory, record.attempt
        mark = memory.index.get(attempt)
        assert mark is not None
        memory.accepted_lately[attempt] = (order.user, mark.job_id)
        memory.send(
            LaunchAccepted(attempt=attempt, site_job_id=mark.job_id, work_dir=mark.work_dir)
        )
        memory.watch()
        if not record.fresh and attempt not in memory.known:
            self._sweeper.when_swept(lambda ok: self._vanished.tell((attempt,)) if ok else None)
        record.fresh = False
        self._end_turn(record)

    def _give_up(self, record: AttemptRecord) -> None:
        """It is not here and must never be: without a lease even a late sbatch starts nothing."""
        memory, order = self._memory, record.turns[0].order if record.turns else None
        known = memory.index.get(record.attempt)
        user = order.user if order is not None else known.user if known is not None else ""
        void = JournalMark(step=JournalStep.VOID, at_s=memory.now.unix_s, user=user)
        if known is not None:
            void = replace(void, withdrawn=known.withdrawn, cancelled=known.cancelled)
        if isinstance(order, CancelOrder):
            void = _ordered_to_end(void, order)
        durable = memory.write(record.attempt, void)
        memory.supposed.pop(record.supposed, None)
        memory.scheduler.release(record.attempt)
        memory.emit(Release(number=memory.number(), after=durable, attempt=record.attempt))

    # ---- cancels ----

    def _begin_cancel(self, record: AttemptRecord, order: CancelOrder) -> None:
        report = self._memory.known.get(order.attempt)
        if order.site_job_id:
            owner = self._memory.index.launched.get(order.site_job_id)
            is_anothers = owner is not None and owner.attempt != order.attempt
            self._scancel(record, order, None if is_anothers else order.site_job_id)
        elif report is not None and report.user == order.user:
            self._scancel(record, order, report.site_job_id)
        else:
            self._steps.step(record, AttemptEvent.SETTLE)

    def _go_on_cancelling(
        self, record: AttemptRecord, order: CancelOrder, *, abandoned: bool
    ) -> None:
        if abandoned:
            self._memory.send(AttemptAbsent(attempt=order.attempt))
            self._end_turn(record)
            return
        mark = self._memory.index.get(order.attempt)
        has_job = mark is not None and mark.step is JournalStep.JOB
        self._scancel(record, order, mark.job_id if mark is not None and has_job else None)

    def _scancel(self, record: AttemptRecord, order: CancelOrder, job_id: int | None) -> None:
        """``job_id``: None where the site has no job of it, and must never have one."""
        memory, mark = self._memory, self._memory.index.get(order.attempt)
        durable = 0
        if (
            mark is not None
            and mark.step is JournalStep.JOB
            and mark != _ordered_to_end(mark, order)
        ):
            durable = memory.write(order.attempt, _ordered_to_end(mark, order))
        if job_id is None:
            self._not_there(record)
            return
        memory.emit(
            Scancel(
                number=memory.number(),
                after=durable,
                attempt=order.attempt,
                user=order.user,
                job_id=job_id,
                pending_only=order.pending_only,
            )
        )

    def cancelled(self, effect: Scancel, done: bool | Failure) -> None:
        """Scancel was called; False: Slurm has no such job."""
        attempt = effect.attempt
        record = self._memory.records[attempt]
        if done is False:
            self._not_there(record)
            return
        if isinstance(done, Failure):
            self._memory.send(CancelFailed(attempt=attempt, detail=done.detail))
        self._vanished.expect_end(attempt)
        self._memory.watch()
        self._end_turn(record)

    def _not_there(self, record: AttemptRecord) -> None:
        """Slurm has no job to end: it never had one, or the job has ended and is forgotten."""
        mark = self._memory.index.get(record.attempt)
        if mark is not None and mark.step is JournalStep.JOB:
            number = self._memory.number()
            self._memory.emit(Release(number=number, attempt=record.attempt, gone=True))
            self._end_turn(record)
        else:
            record.turns[0].abandoned = True
            self._steps.step(record, AttemptEvent.ABANDON)


def _launch_of(record: AttemptRecord) -> LaunchOrder:
    order = record.turns[0].order
    assert isinstance(order, LaunchOrder)
    return order


def _refused(detail: str, code: ReasonCode = ReasonCode.LAUNCH_REFUSED) -> Reason:
    return Reason(code=code, detail=detail[:500])


def _ordered_to_end(mark: JournalMark, order: CancelOrder) -> JournalMark:
    """The queue may be lost before it hears what came of the order."""
    return replace(
        mark,
        withdrawn=mark.withdrawn or order.pending_only,
        cancelled=mark.cancelled or not order.pending_only,
    )
