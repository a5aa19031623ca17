"""Launches attempts: lease, intent in the journal, sbatch, and its answer; a few at a time.

The calls are effects: ``acts`` carries them out, and ``federator.slurm.site_exec`` runs sbatch.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from federator.agent.attempt_table import HAS_JOB, Act, AttemptEvent, AttemptState
from federator.agent.base import SubmittedJob
from federator.agent.effects import Failure, KeepOrder, Leased, OpenLease, Sbatch
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.memory import AgentMemory, AttemptRecord
from federator.agent.order_turns import OrderTurns
from federator.agent.steps import Steps
from federator.agent.sweeping import Sweeper
from federator.agent.vanished import Vanished
from federator.model.progress import longest_step_s
from federator.model.reason import Reason, ReasonCode
from federator.model.site_message import LaunchAccepted, LaunchDeclined
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import LaunchOrder

LAUNCHES_AT_ONCE: Final = 8  # sbatch must be over soon after its intent is noted


class Launches:
    """Orders to launch, from their turn to their answer.

    Args:
        memory: shared.
        steps: moves attempts.
        sweeper: looks again.
        vanished: tells of jobs that Slurm does not show.
        turns: whose turn it is.
    """

    def __init__(
        self,
        memory: AgentMemory,
        steps: Steps,
        sweeper: Sweeper,
        vanished: Vanished,
        turns: OrderTurns,
    ) -> None:
        self._memory = memory
        self._steps = steps
        self._sweeper = sweeper
        self._vanished = vanished
        self._turns = turns
        self._submitting: set[AttemptId] = set()
        self._ready: deque[AttemptRecord] = deque()  # wait until fewer are being submitted
        steps.add(
            {
                Act.OPEN_LEASE: self._open_lease,
                Act.SUBMIT: self._submit,
                Act.NOTE_ACCEPTED: self._note_accepted,
            }
        )

    def begin(self, record: AttemptRecord) -> None:
        """Its turn has come; what is known of the attempt already is its answer."""
        order, obstacle = _launch_of(record), record.turns[0].obstacle
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

    def answer(self, record: AttemptRecord, order: LaunchOrder) -> None:
        """Its outcome is certain: tell the daemon."""
        if record.state in HAS_JOB:
            self._accept(record, order)
            return
        reason = record.reason or _refused("given up before")
        self._memory.send(LaunchDeclined(attempt=record.attempt, reason=reason))
        self._turns.end(record)

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
            progress_s=longest_step_s(order.submission),
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
            self.begin(self._ready.popleft())

    def _note_accepted(self, record: AttemptRecord) -> None:
        order = _launch_of(record)
        mark = JournalMark(
            step=JournalStep.JOB,
            at_s=self._memory.now.unix_s,
            user=order.user,
            job_id=record.job_id,
            checkpoint_dir=order.checkpoint_dir,
            progress_s=longest_step_s(order.submission),
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
        self._turns.end(record)


def _launch_of(record: AttemptRecord) -> LaunchOrder:
    order = record.turns[0].order
    assert isinstance(order, LaunchOrder)
    return order


def _refused(detail: str, code: ReasonCode = ReasonCode.LAUNCH_REFUSED) -> Reason:
    return Reason(code=code, detail=detail[:500])
