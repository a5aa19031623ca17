"""Evicts attempts from this site, and keeps their grace.

What was begun is in the journal, so that an agent that comes after this one keeps the same
deadline. While the site has no daemon it has no agent, and nobody is ended; what is over its
deadline then is ended first thing afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from federator.agent.attempt_table import HAS_JOB, LEAVING, AttemptEvent, AttemptState
from federator.agent.grace import PAUSE_S, Grace
from federator.agent.grace_acts import GraceActs
from federator.agent.grace_folders import GraceFolders
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.memory import AgentMemory, AttemptRecord
from federator.agent.steps import Steps
from federator.agent.sweeping import Sweeper
from federator.agent.vanished import Vanished
from federator.model.site import SiteJobState
from federator.wire.agent_protocol import PreemptOrder


class Evictions:
    """Attempts of this site that must leave.

    Args:
        memory: shared.
        steps: moves attempts.
        sweeper: looks again.
        vanished: tells of those that Slurm does not show.
        acts: carries out what is due.
        folders: reads what they leave behind.
    """

    def __init__(
        self,
        memory: AgentMemory,
        steps: Steps,
        sweeper: Sweeper,
        vanished: Vanished,
        acts: GraceActs,
        folders: GraceFolders,
    ) -> None:
        self._memory = memory
        self._steps = steps
        self._sweeper = sweeper
        self._vanished = vanished
        self._acts = acts
        self._folders = folders

    # ---- orders ----

    def order(self, order: PreemptOrder) -> None:
        """Its grace begins now, unless the site knows it no more."""
        if order.attempt in self._memory.known:
            self._begin(order, self._memory.now.unix_s)
        else:
            self._sweeper.when_swept(lambda ok: self._looked(order) if ok else None)

    def _looked(self, order: PreemptOrder) -> None:
        if order.attempt in self._memory.known:
            self._begin(order, self._memory.now.unix_s)
        else:
            self._vanished.tell((order.attempt,))

    def _begin(self, order: PreemptOrder, came_at_s: float) -> None:
        """One that is being seen off already is not told anew."""
        memory, record = self._memory, self._memory.record(order.attempt)
        if record.grace is not None:
            return
        if record.state not in (AttemptState.UNKNOWN, AttemptState.VOID, *HAS_JOB):
            # The grace counts from when the first order came, not from when the job's id is known.
            record.evict_later = record.evict_later or (order, came_at_s)
            return
        mark = memory.index.get(order.attempt)
        if mark is None or mark.step is JournalStep.VOID:  # Slurm shows it all the same
            mark = JournalMark(
                step=JournalStep.JOB, at_s=came_at_s, user=order.user, job_id=order.site_job_id
            )
        if not mark.leave_by_s:
            mark = replace(mark, leave_by_s=came_at_s + order.grace_s)
            memory.write(order.attempt, mark)
        report = memory.known.get(order.attempt)
        # The deadline in the journal is Unix time, so that the next agent keeps it; from here on
        # only the clock that nobody sets counts.
        left_s = min(mark.leave_by_s - memory.now.unix_s, order.grace_s)  # clocks are set
        now_s = memory.now.elapsed_s
        record.grace = Grace(
            order,
            leave_by_s=now_s + left_s,
            restarts=report.restarts if report is not None else 0,
            # An earlier agent gave notice already: a second signal would be a second warning to
            # the job.
            tell_at_s=inf if mark.told_at_s else now_s,
            act_at_s=now_s,
        )
        memory.leaving[order.attempt] = record
        self._folders.watch()
        self._steps.step(record, AttemptEvent.EVICT)
        memory.watch()

    def job_is_known(self, record: AttemptRecord) -> None:
        """Begin what had to wait until it was."""
        later, record.evict_later = record.evict_later, None
        if later is not None and record.attempt in self._memory.known:
            self._begin(*later)

    # ---- time ----

    def next_s(self) -> float:
        """The time at which ``wake`` is to be called."""
        if self._memory.ending:
            return inf
        times = [self._folders.next_s]
        for record in self._memory.leaving.values():
            grace = record.grace
            if grace is not None:
                times.append(inf if grace.telling else grace.tell_at_s)
                times.append(inf if grace.acting else grace.act_at_s)
        return min(times)

    def wake(self) -> None:
        """Do what is due."""
        now_s = self._memory.now.elapsed_s
        if self._memory.ending:  # the next agent goes on, by what is in the journal
            return
        for record in list(self._memory.leaving.values()):
            grace = record.grace
            assert grace is not None
            if not grace.telling and grace.tell_at_s <= now_s:
                self._acts.tell(record, grace)
            if not grace.acting and grace.act_at_s <= now_s:
                self._act(record, grace)
        self._folders.wake()

    def _act(self, record: AttemptRecord, grace: Grace) -> None:
        if record.state not in LEAVING:  # it has ended; the next sweep settles what is left
            grace.act_at_s = self._memory.now.elapsed_s + PAUSE_S
            return
        memory, now_s, kill_wait_s = (
            self._memory,
            self._memory.now.elapsed_s,
            self._acts.kill_wait_s,
        )
        if kill_wait_s is None:
            grace.act_at_s = now_s + PAUSE_S
            self._acts.ask_kill_wait(now_s)
            return
        memory.watch()
        # First of all: a job that the site has requeued may run again, and must not be killed as
        # the old start.
        self._see_requeue(record, grace)
        event = grace.due(record.state, now_s, kill_wait_s)
        grace.act_at_s = now_s + grace.pause_s(now_s, kill_wait_s)
        if event is not None:
            self._steps.step(record, event)

    def _see_requeue(self, record: AttemptRecord, grace: Grace) -> None:
        """Note that the site has requeued it, and that it may run there once more already.

        By itself, once it had saved; or by the site, for a node or a local job.
        """
        memory, report = self._memory, self._memory.known.get(record.attempt)
        if report is None or grace.requeued:
            return
        if report.state is SiteJobState.PENDING or report.restarts > grace.restarts:
            grace.requeued = True
            notified = memory.mark(record.attempt).told_at_s
            if notified and not (report.preempted or report.failed_nodes):
                memory.note(record.attempt, saved_at_s=memory.now.unix_s)

    def swept(self) -> None:
        """After a sweep: those that have gone need no grace any more."""
        for attempt, record in list(self._memory.leaving.items()):
            grace = record.grace
            if record.state not in LEAVING and (grace is None or self._is_gone(record, grace)):
                record.grace = None
                del self._memory.leaving[attempt]
                self._memory.forget_idle(attempt)

    def _is_gone(self, record: AttemptRecord, grace: Grace) -> bool:
        return record.attempt not in self._memory.known or grace.settled
