"""Sees attempts off that must leave this site, and keeps their grace.

Each is told once, by its own signal and with its deadline in its checkpoint folder. It may go by
itself, say that it has saved (it is ended at once then), or requeue itself (the site's copy is
taken back). Shortly before the deadline TERM goes to all of it. Slurm itself ends a job only by
TERM and, KillWait later, KILL to all its processes, so it is cancelled that long before the
deadline; whatever is left then is killed, again and again. What was begun is in the journal, so
that an agent that comes after this one keeps the same deadline.

A signal that asks for a save is sent at once, not a lead time before the deadline: somebody waits
for the nodes. Deadlines wait for nothing that a user's folder can hold up: telling and looking
have time limits and lanes of their own. While the site has no daemon it has no agent, and nobody
is ended; what is over its deadline then is ended first thing afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final

from federator.agent.attempt import HAS_JOB, LEAVING, Act, AttemptEvent, AttemptState
from federator.agent.base import Seen
from federator.agent.effects import AskKillWait, Failure, Kill, Look, Scancel, Tell, Terminate
from federator.agent.journal import Mark, Step
from federator.agent.memory import AgentMemory, AttemptRecord, Grace
from federator.agent.steps import Steps
from federator.agent.sweeping import Sweeper
from federator.agent.vanished import Vanished
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import PreemptOrder

TERM_BEFORE_S: Final = 15.0  # the deadline; of a short grace its last quarter
LOOK_EVERY_S: Final = 1.0
PAUSE_S: Final = 0.5  # between two thoughts about one, at most
AGAIN_S: Final = 2.0  # between two tries to tell or to kill
LOOK_AGAIN_S: Final = 30.0  # at a folder that did not answer
_SAVED: Final = 85  # exit status: "checkpointed, start me again"


class Evictions:
    """Attempts of this site that must leave.

    Args:
        memory: shared.
        steps: moves attempts.
        sweeper: looks again.
        vanished: tells of those that Slurm does not show.
    """

    def __init__(
        self, memory: AgentMemory, steps: Steps, sweeper: Sweeper, vanished: Vanished
    ) -> None:
        self._memory = memory
        self._steps = steps
        self._sweeper = sweeper
        self._vanished = vanished
        self._leaving: dict[AttemptId, AttemptRecord] = {}
        self._kill_wait_s: float | None = None  # of this site; asked once
        self._asking = False
        self._ask_at_s = -inf
        self._look_at_s: dict[str, float] = {}  # not before; by user; inf: one is under way
        self._next_look_s = inf
        steps.add(
            {
                Act.SIGNAL_TERM: self._terminate,
                Act.SCANCEL: self._scancel,
                Act.KILL: self._kill,
                Act.NOTE_FORCED: self._note_forced,
            }
        )

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
        if record.state not in (AttemptState.UNKNOWN, *HAS_JOB):
            record.evict_later = (order, came_at_s)  # its job is not known for certain
            memory.forget_idle(order.attempt)
            return
        mark = memory.index.get(order.attempt) or Mark(
            step=Step.JOB, at_s=came_at_s, user=order.user, job_id=order.site_job_id
        )
        if not mark.leave_by_s:
            mark = replace(mark, leave_by_s=came_at_s + order.grace_s)
            memory.write(order.attempt, mark)
        report = memory.known.get(order.attempt)
        left_s = min(mark.leave_by_s - memory.now.unix_s, order.grace_s)  # clocks are set
        now_s = memory.now.elapsed_s
        record.grace = Grace(
            order,
            leave_by_s=now_s + left_s,
            restarts=report.restarts if report is not None else 0,
            tell_at_s=inf if mark.told_at_s else now_s,
            act_at_s=now_s,
        )
        self._leaving[order.attempt] = record
        self._next_look_s = min(self._next_look_s, now_s + LOOK_EVERY_S)
        self._steps.step(record, AttemptEvent.EVICT)
        memory.watch()

    def job_is_known(self, record: AttemptRecord) -> None:
        """Begin what had to wait until it was."""
        later, record.evict_later = record.evict_later, None
        if later is not None and record.state in HAS_JOB:
            self._begin(*later)

    # ---- time ----

    def next_s(self) -> float:
        """When ``wake`` is to be called."""
        if self._memory.ending:
            return inf
        times = [self._next_look_s]
        for record in self._leaving.values():
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
        for record in list(self._leaving.values()):
            grace = record.grace
            assert grace is not None
            if not grace.telling and grace.tell_at_s <= now_s:
                self._tell(record, grace)
            if not grace.acting and grace.act_at_s <= now_s:
                self._act(record, grace)
        if self._next_look_s <= now_s:
            self._next_look_s = now_s + LOOK_EVERY_S if self._leaving else inf
            self._look(list(self._leaving.values()))

    def _act(self, record: AttemptRecord, grace: Grace) -> None:
        memory, now_s = self._memory, self._memory.now.elapsed_s
        if self._kill_wait_s is None:
            grace.act_at_s = now_s + PAUSE_S
            self._ask_kill_wait(now_s)
            return
        memory.watch()
        event = self._due(record, grace, now_s)
        grace.act_at_s = now_s + self._pause_s(grace, now_s)
        if event is not None:
            self._steps.step(record, event)

    def _due(self, record: AttemptRecord, grace: Grace, now_s: float) -> AttemptEvent | None:
        if self._has_requeued(record, grace):
            return AttemptEvent.REQUEUED
        if grace.saved:  # what it has to say is said: no KillWait for whoever handles TERM
            return AttemptEvent.SAVED
        if now_s >= grace.leave_by_s:
            return AttemptEvent.KILL_DUE
        state, cancel_at_s = record.state, self._cancel_at_s(grace)
        if now_s >= cancel_at_s:
            early = state in (AttemptState.EVICTING, AttemptState.TERMINATED)
            return AttemptEvent.CANCEL_DUE if early else None
        if now_s >= _term_at_s(grace) and state is AttemptState.EVICTING:
            return AttemptEvent.TERM_DUE
        return None

    def _cancel_at_s(self, grace: Grace) -> float:
        """With a KillWait that long, half of the grace is left to the job all the same."""
        return grace.leave_by_s - min(self._kill_wait_s or 0.0, grace.order.grace_s / 2)

    def _pause_s(self, grace: Grace, now_s: float) -> float:
        """Until the next thing is due, at most until the next look."""
        if now_s >= grace.leave_by_s or grace.saved or grace.requeued:
            return AGAIN_S
        due = (_term_at_s(grace), self._cancel_at_s(grace), grace.leave_by_s)
        next_s = min((at_s for at_s in due if at_s > now_s), default=now_s)
        return min(PAUSE_S, max(0.01, next_s - now_s))

    def _has_requeued(self, record: AttemptRecord, grace: Grace) -> bool:
        """Whether it was put back into the site's queue, and may run there once more already.

        By itself, once it had saved; or by the site, for a node or a local job.
        """
        report = self._memory.known.get(record.attempt)
        if report is None or grace.requeued:
            return grace.requeued
        if report.state is SiteJobState.PENDING or report.restarts > grace.restarts:
            grace.requeued = True
            mark = self._mark(record)
            if mark.told_at_s and not (report.preempted or report.failed_nodes):
                self._note(record, saved_at_s=self._memory.now.unix_s)
        return grace.requeued

    # ---- acts ----

    def _ask_kill_wait(self, now_s: float) -> None:
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
        self._kill_wait_s = seconds
        for record in self._leaving.values():
            if record.grace is not None:
                record.grace.act_at_s = min(record.grace.act_at_s, now_s)

    def _tell(self, record: AttemptRecord, grace: Grace) -> None:
        grace.telling = True
        self._memory.emit(
            Tell(
                number=self._memory.number(),
                order=grace.order,
                leave_by_s=self._mark(record).leave_by_s,
                at_s=self._memory.now.unix_s,
            )
        )

    def told(self, tell: Tell, done: Failure | None) -> None:
        """It was told, or could not be."""
        record = self._leaving.get(tell.order.attempt)
        if record is None or record.grace is None:
            return
        record.grace.telling = False
        if done is not None:
            record.grace.tell_at_s = self._memory.now.elapsed_s + AGAIN_S
            return
        record.grace.tell_at_s = inf
        if not self._mark(record).told_at_s:
            self._note(record, told_at_s=_whole(tell.at_s))

    def _terminate(self, record: AttemptRecord) -> None:
        grace = self._acting(record)
        self._memory.emit(
            Terminate(
                number=record.waiting,
                attempt=record.attempt,
                user=grace.order.user,
                job_id=grace.order.site_job_id,
            )
        )

    def _scancel(self, record: AttemptRecord) -> None:
        grace = self._acting(record)
        self._memory.emit(
            Scancel(
                number=record.waiting,
                attempt=record.attempt,
                user=grace.order.user,
                job_id=grace.order.site_job_id,
                lane="end",
            )
        )

    def _kill(self, record: AttemptRecord) -> None:
        grace = self._acting(record)
        self._memory.emit(
            Kill(
                number=record.waiting,
                attempt=record.attempt,
                user=grace.order.user,
                job_id=grace.order.site_job_id,
            )
        )

    def _acting(self, record: AttemptRecord) -> Grace:
        assert record.grace is not None
        record.grace.acting = True
        record.waiting = self._memory.number()
        return record.grace

    def acted(self, effect: Scancel | Terminate | Kill, done: bool | Failure | None) -> None:
        """What was due was done, or was not: it may be gone; else Slurm may answer next time."""
        record = self._leaving.get(effect.attempt)
        if record is None or record.grace is None:
            return
        grace, now_s = record.grace, self._memory.now.elapsed_s
        grace.acting = False
        grace.act_at_s = now_s + self._pause_s(grace, now_s)
        if isinstance(done, Failure):
            grace.act_at_s += AGAIN_S
            self._steps.step(record, AttemptEvent.ACT_FAILED)

    # ---- what is noted ----

    def _mark(self, record: AttemptRecord) -> Mark:
        mark = self._memory.index.get(record.attempt)
        assert mark is not None
        return mark

    def _note(self, record: AttemptRecord, **fields: Any) -> None:
        mark = self._mark(record)
        noted = replace(mark, **fields)
        if noted != mark:
            self._memory.write(record.attempt, noted)

    def _note_forced(self, record: AttemptRecord) -> None:
        self._note(record, forced=True)

    # ---- what they leave behind ----

    def _look(self, records: list[AttemptRecord], *, last: bool = False) -> list[int]:
        """Read what they have left in their folders: one question for each user.

        ``last``: they have ended, so that another look under way does not do.
        """
        now_s, numbers = self._memory.now.elapsed_s, []
        for user, orders in _by_user(records):
            at_s = self._look_at_s.get(user, -inf)
            if at_s <= now_s or (last and at_s == inf):
                self._look_at_s[user] = inf
                number = self._memory.number()
                look = Look(number=number, user=user, orders=orders, lane="graces")
                self._memory.emit(look)
                numbers.append(number)
        return numbers

    def looked(self, look: Look, seen: tuple[Seen, ...] | Failure) -> None:
        """What a job says counts from when it is seen: a file server has a clock of its own."""
        now_s = self._memory.now.elapsed_s
        if isinstance(seen, Failure):
            self._look_at_s[look.user] = now_s + (LOOK_AGAIN_S if seen.timed_out else AGAIN_S)
            return
        self._look_at_s[look.user] = now_s
        for order, found in zip(look.orders, seen, strict=False):
            record = self._leaving.get(order.attempt)
            if record is None or record.grace is None:
                continue
            record.grace.checkpointed_at_s = found.checkpointed_at_s
            if found.acked_at_s and not record.grace.saved:
                record.grace.saved = True
                record.grace.act_at_s = min(record.grace.act_at_s, now_s)
                at_s = self._memory.now.unix_s
                told_at_s = self._mark(record).told_at_s or _whole(at_s)
                self._note(record, told_at_s=told_at_s, saved_at_s=at_s)

    def looks(self, reports: Mapping[AttemptId, AttemptReport]) -> list[int]:
        """Look at those that have just ended; the numbers of the looks."""
        return self._look([record for record, _ in self._just_ended(reports)], last=True)

    def complete(
        self, reports: Mapping[AttemptId, AttemptReport]
    ) -> dict[AttemptId, AttemptReport]:
        """The same reports, with how those leave that were told to, and what they have left."""
        self._settle(reports)
        return {a: self._memory.told(report) for a, report in reports.items()}

    def _settle(self, reports: Mapping[AttemptId, AttemptReport]) -> None:
        ended = list(self._just_ended(reports))
        for record in self._leaving.values():
            report = reports.get(record.attempt)
            if record.grace and report is not None and not report.state.ended:
                record.grace.shown += bool(self._mark(record).told_at_s)
        for record, report in ended:
            assert record.grace is not None
            record.grace.settled = True
            if record.grace.shown > 1 and report.ended_at_s:  # the second sweep began after that
                told_at_s = min(self._mark(record).told_at_s, report.ended_at_s)  # Slurm's clock
                self._note(record, told_at_s=told_at_s)
            self._note(record, saved_at_s=self._saved_at_s(record, report))

    def _just_ended(
        self, reports: Mapping[AttemptId, AttemptReport]
    ) -> Iterator[tuple[AttemptRecord, AttemptReport]]:
        for attempt, record in self._leaving.items():
            report = reports.get(attempt)
            settled = record.grace is None or record.grace.settled
            if report is not None and report.state.ended and not settled:
                yield record, report

    def _saved_at_s(self, record: AttemptRecord, report: AttemptReport) -> float:
        """When its last checkpoint was complete, by all signs; not after its end."""
        mark = self._mark(record)
        assert record.grace is not None
        signs = [mark.saved_at_s, record.grace.checkpointed_at_s]
        in_grace = mark.told_at_s and report.ended_at_s >= mark.told_at_s and not report.signal
        success = report.state is SiteJobState.COMPLETED and not report.exit_code
        if in_grace and (report.exit_code == _SAVED or success):
            signs.append(report.ended_at_s)
        return min(max(signs), max(report.ended_at_s, mark.told_at_s))

    def swept(self) -> None:
        """After a sweep: those that have gone need no grace any more."""
        for attempt, record in list(self._leaving.items()):
            grace = record.grace
            if record.state not in LEAVING and (grace is None or self._is_gone(record, grace)):
                record.grace = None
                del self._leaving[attempt]
                self._memory.forget_idle(attempt)

    def _is_gone(self, record: AttemptRecord, grace: Grace) -> bool:
        return record.attempt not in self._memory.known or grace.settled


def _term_at_s(grace: Grace) -> float:
    return grace.leave_by_s - min(TERM_BEFORE_S, grace.order.grace_s / 4)


def _by_user(records: list[AttemptRecord]) -> Iterator[tuple[str, tuple[PreemptOrder, ...]]]:
    of_user: dict[str, list[PreemptOrder]] = {}
    for record in records:
        order = record.grace.order if record.grace is not None else None
        if order is not None and order.checkpoint_dir:
            of_user.setdefault(order.user, []).append(order)
    for user, orders in of_user.items():
        yield user, tuple(orders)


def _whole(at_s: float) -> float:
    """Whole seconds, as Slurm gives the ends of jobs."""
    return float(int(at_s))
