"""Carries out the acts that an eviction is due: notice, TERM, scancel, KILL.

A signal that asks for a save is sent at once, not a lead time before the deadline: somebody waits
for the nodes. Telling has a lane of its own, so that a folder that hangs delays no deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from federator.agent.attempt_table import Act, AttemptEvent
from federator.agent.effects import AskKillWait, Failure, Kill, Notify, Scancel, Terminate
from federator.agent.grace import AGAIN_S, Grace, whole
from federator.agent.memory import AgentMemory, AttemptRecord
from federator.agent.steps import Steps


class GraceActs:
    """Carries out the acts of evictions, and takes their outcome.

    Args:
        memory: shared.
        steps: moves attempts.
    """

    def __init__(self, memory: AgentMemory, steps: Steps) -> None:
        self._memory = memory
        self._steps = steps
        self.kill_wait_s: float | None = None  # of this site; asked once
        self._asking = False
        self._ask_at_s = -inf
        steps.add(
            {
                Act.SIGNAL_TERM: partial(self._act, Terminate),
                Act.SCANCEL: partial(self._act, partial(Scancel, lane="end")),
                Act.KILL: partial(self._act, Kill),
                Act.NOTE_FORCED: lambda record: memory.note(record.attempt, forced=True),
            }
        )

    def ask_kill_wait(self, now_s: float) -> None:
        """Have it asked for, unless that is under way or has just failed."""
        if not self._asking and self._ask_at_s <= now_s:
            self._asking = True
            self._memory.emit(AskKillWait(number=self._memory.number()))

    def kill_wait_is(self, _: AskKillWait, seconds: float | Failure) -> None:
        """Slurm's KillWait, or why it is not known yet."""
        self._asking = False
        now_s = self._memory.now.elapsed_s
        if isinstance(seconds, Failure):
            self._ask_at_s = now_s + AGAIN_S
            return
        self.kill_wait_s = seconds
        for record in self._memory.leaving.values():
            if record.grace is not None:
                record.grace.act_at_s = min(record.grace.act_at_s, now_s)

    def tell(self, record: AttemptRecord, grace: Grace) -> None:
        """Have it told by when it must be gone."""
        grace.telling = self._memory.number()
        self._memory.emit(
            Notify(
                number=grace.telling,
                order=grace.order,
                leave_by_s=self._memory.mark(record.attempt).leave_by_s,
                at_s=self._memory.now.unix_s,
            )
        )

    def notice_given(self, tell: Notify, done: Failure | None) -> None:
        """It was told, or could not be."""
        record = self._memory.leaving.get(tell.order.attempt)
        if record is None or record.grace is None or record.grace.telling != tell.number:
            return  # of an earlier grace
        record.grace.telling = 0
        if done is not None:
            record.grace.tell_at_s = self._memory.now.elapsed_s + AGAIN_S
            return
        record.grace.tell_at_s = inf
        if not self._memory.mark(record.attempt).told_at_s:
            self._memory.note(record.attempt, told_at_s=whole(tell.at_s))

    def _act(
        self, effect: Callable[..., Scancel | Terminate | Kill], record: AttemptRecord
    ) -> None:
        """Have one of them done to the attempt's job; ``acted`` takes its outcome."""
        grace = record.grace
        assert grace is not None
        grace.acting = self._memory.number()
        self._memory.emit(
            effect(
                number=grace.acting,
                attempt=record.attempt,
                user=grace.order.user,
                job_id=grace.order.site_job_id,
            )
        )

    def acted(self, effect: Scancel | Terminate | Kill, done: bool | Failure | None) -> None:
        """Take an act's outcome; after a failure the job may be gone, or Slurm may answer later."""
        record = self._memory.leaving.get(effect.attempt)
        if record is None or record.grace is None or record.grace.acting != effect.number:
            return  # of an earlier grace
        grace, now_s = record.grace, self._memory.now.elapsed_s
        grace.acting = 0
        grace.act_at_s = now_s + grace.pause_s(now_s, self.kill_wait_s or 0.0)
        if isinstance(done, Failure):
            grace.act_at_s += AGAIN_S
            self._steps.step(record, AttemptEvent.ACT_FAILED)
