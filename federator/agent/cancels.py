"""Cancels attempts: their job is ended, or it is certain that they never get one."""

from __future__ import annotations

from dataclasses import replace

from federator.agent.attempt_table import AttemptEvent
from federator.agent.effects import Failure, Release, Scancel
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.memory import AgentMemory, AttemptRecord
from federator.agent.order_turns import OrderTurns
from federator.agent.steps import Steps
from federator.agent.vanished import Vanished
from federator.model.site_message import AttemptAbsent, CancelOrder, LaunchAccepted
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import CancelFailed


class Cancels:
    """Orders to cancel, from their turn to their answer.

    Args:
        memory: shared.
        steps: moves attempts.
        vanished: tells of jobs that Slurm does not show.
        turns: whose turn it is.
    """

    def __init__(
        self, memory: AgentMemory, steps: Steps, vanished: Vanished, turns: OrderTurns
    ) -> None:
        self._memory = memory
        self._steps = steps
        self._vanished = vanished
        self._turns = turns

    def begin(self, record: AttemptRecord, order: CancelOrder) -> None:
        """Its turn has come: end the job that is known; else find out whether there is one."""
        report = self._memory.known.get(order.attempt)
        if order.site_job_id:
            self._scancel(record, order, self._own(order.attempt, order.site_job_id))
        elif report is not None and report.user == order.user:
            self._scancel(record, order, report.site_job_id)
        else:
            self._steps.step(record, AttemptEvent.SETTLE)

    def go_on(self, record: AttemptRecord, order: CancelOrder) -> None:
        """It is certain whether the attempt has a job."""
        if record.turns[0].abandoned:
            self._memory.send(AttemptAbsent(attempt=order.attempt))
            self._turns.end(record)
            return
        mark = self._memory.index.get(order.attempt)
        has_job = mark is not None and mark.step is JournalStep.JOB
        job_id = mark.job_id if mark is not None and has_job else 0
        self._scancel(record, order, self._own(order.attempt, job_id))

    def _own(self, attempt: AttemptId, job_id: int) -> int | None:
        """A job's id; None: there is none, or a later attempt's job has that id now."""
        owner = self._memory.index.launched.get(job_id)
        is_anothers = owner is not None and owner.attempt != attempt
        return None if is_anothers or not job_id else job_id

    def _scancel(self, record: AttemptRecord, order: CancelOrder, job_id: int | None) -> None:
        """``job_id``: None where the site has no job of it, and must never have one."""
        memory, mark = self._memory, self._memory.index.get(order.attempt)
        durable = 0
        if (
            mark is not None
            and mark.step is JournalStep.JOB
            and mark != ordered_to_end(mark, order)
        ):
            durable = memory.write(order.attempt, ordered_to_end(mark, order))
        if job_id is None:
            self._not_there(record, order)
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
            order = record.turns[0].order
            assert isinstance(order, CancelOrder)
            self._not_there(record, order)
            return
        if isinstance(done, Failure):
            self._memory.send(CancelFailed(attempt=attempt, detail=done.detail))
        self._vanished.expect_end(attempt)
        self._memory.watch()
        self._turns.end(record)

    def _not_there(self, record: AttemptRecord, order: CancelOrder) -> None:
        """Slurm has no job to end: it never had one, or the job has ended and is forgotten."""
        memory, attempt = self._memory, record.attempt
        mark = memory.index.get(attempt)
        if mark is not None and mark.step is JournalStep.JOB:
            if not order.site_job_id:  # the queue never heard that there was one
                memory.send(
                    LaunchAccepted(attempt=attempt, site_job_id=mark.job_id, work_dir=mark.work_dir)
                )
            memory.emit(Release(number=memory.number(), attempt=attempt, gone=True))
            self._turns.end(record)
        else:
            record.turns[0].abandoned = True
            self._steps.step(record, AttemptEvent.ABANDON)


def ordered_to_end(mark: JournalMark, order: CancelOrder) -> JournalMark:
    """The queue may be lost before it hears what came of the order."""
    return replace(
        mark,
        withdrawn=mark.withdrawn or order.pending_only,
        cancelled=mark.cancelled or not order.pending_only,
    )
