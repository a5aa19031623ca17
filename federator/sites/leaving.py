"""Who was told to leave this site, and are they gone in time? Grace, kept by the agent.

Each attempt is told once, by its own signal and with its deadline in its checkpoint folder. It may
go by itself, say that it has saved (it is ended at once then), or requeue itself (the site's copy
is taken back). Shortly before the deadline TERM goes to all of it. Slurm itself ends a job only by
TERM and, KillWait later, KILL to all its processes, so it is cancelled that long before the
deadline; whatever is left then is killed, again and again. What was begun is in the journal, so
that an agent that comes after this one keeps the same deadline.

A signal that asks for a save is sent at once, not a lead time before the deadline: somebody waits
for the nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from federator.errors import FederatorError
from federator.model.site import AttemptReport, Leave, SiteJobState
from federator.model.workload import AttemptId
from federator.sites.base import Seen, SiteDriver
from federator.sites.journal import Journal, Mark, Step
from federator.sites.protocol import PreemptOrder, SignalTo

TERM_BEFORE_S: Final = 15.0  # the deadline; of a short grace its last quarter
LOOK_EVERY_S: Final = 1.0
AGAIN_S: Final = 2.0  # between two tries to tell or to kill
LAST_LOOK_S: Final = 5.0  # a report waits no longer for what its job has left
ACTS_AT_ONCE: Final = 8
_SAVED: Final = 85  # exit status: "checkpointed, start me again"


@dataclass(slots=True)
class _Leaver:
    order: PreemptOrder
    mark: Mark
    seen: Seen = Seen()
    kill_wait_s: float = 30.0
    warned: bool = False  # by TERM
    cancelled: bool = False
    requeued_at_s: float = 0.0  # by itself
    settled: bool = False  # all that can be known of it is known

    @property
    def term_at_s(self) -> float:
        return self.mark.leave_by_s - min(TERM_BEFORE_S, self.order.grace_s / 4)

    @property
    def cancel_at_s(self) -> float:
        """With a KillWait that long, half of the grace is left to the job all the same."""
        return self.mark.leave_by_s - min(self.kill_wait_s, self.order.grace_s / 2)


class Departures:
    """Attempts of this site that must leave.

    Args:
        driver: this site's Slurm.
        journal: remembers deadlines.
        clock: returns Unix time.
        known: the attempts of the last sweep.
        start: runs a task to its end.
        watch: asks for sweeps in short order.
    """

    def __init__(  # each is one edge of the agent
        self,
        driver: SiteDriver,
        journal: Journal,
        clock: Callable[[], float],
        *,
        known: Callable[[], Mapping[AttemptId, AttemptReport]],
        start: Callable[[Coroutine[Any, Any, None]], None],
        watch: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._journal = journal
        self._clock = clock
        self._known = known
        self._start = start
        self._watch = watch
        self._leaving: dict[AttemptId, _Leaver] = {}
        self._slots = asyncio.Semaphore(ACTS_AT_ONCE)
        self._looking = False
        self._kill_wait_s: float | None = None  # of this site; asked once

    # ---- orders ----

    def begin(self, order: PreemptOrder) -> None:
        """See an attempt off; one that is being seen off already is not told anew."""
        if order.attempt in self._leaving:
            return
        now_s = self._clock()
        mark = self._journal.get(order.attempt) or Mark(
            step=Step.JOB, at_s=now_s, user=order.user, job_id=order.site_job_id
        )
        if not mark.leave_by_s:
            mark = replace(mark, leave_by_s=now_s + order.grace_s)
            self._journal.put(order.attempt, mark)
        self._leaving[order.attempt] = leaver = _Leaver(order, mark)
        self._start(self._see_off(leaver))
        if not self._looking:
            self._looking = True
            self._start(self._look_now_and_then())

    # ---- one attempt ----

    async def _see_off(self, leaver: _Leaver) -> None:
        while not self._gone(leaver):
            self._watch()
            try:
                await self._act(leaver)
            except FederatorError:  # it may be gone; else Slurm may answer the next time
                await asyncio.sleep(AGAIN_S)
            await asyncio.sleep(self._pause_s(leaver))

    async def _act(self, leaver: _Leaver) -> None:
        order, now_s = leaver.order, self._clock()
        user, job_id = order.user, order.site_job_id
        async with self._slots:
            if self._kill_wait_s is None:
                self._kill_wait_s = await self._driver.kill_wait_s()
            leaver.kill_wait_s = self._kill_wait_s
            if self._has_requeued_itself(leaver) or leaver.seen.acked_at_s:
                await self._driver.cancel(user, job_id, pending_only=False)
            elif now_s >= leaver.mark.leave_by_s:
                await self._driver.signal(user, job_id, "KILL", SignalTo.ALL)
                await self._driver.cancel(user, job_id, pending_only=False)
            elif now_s >= leaver.cancel_at_s:
                await self._cancel(leaver)
            elif not leaver.mark.told_at_s:
                await self._driver.tell(order, leaver.mark.leave_by_s)
                # Whole seconds, as Slurm gives the ends of jobs.
                self._note(leaver, told_at_s=float(int(now_s)))
            elif now_s >= leaver.term_at_s and not leaver.warned:
                await self._driver.signal(user, job_id, "TERM", SignalTo.ALL)
                leaver.warned = True

    async def _cancel(self, leaver: _Leaver) -> None:
        """Once: Slurm does the rest."""
        if not leaver.cancelled:
            self._note(leaver, forced=True)
            await self._driver.cancel(
                leaver.order.user, leaver.order.site_job_id, pending_only=False
            )
            leaver.cancelled = True

    def _pause_s(self, leaver: _Leaver) -> float:
        """Until the next thing is due, at most until the next look."""
        now_s, mark = self._clock(), leaver.mark
        if now_s >= mark.leave_by_s or leaver.seen.acked_at_s or leaver.requeued_at_s:
            return AGAIN_S
        due = (leaver.term_at_s, leaver.cancel_at_s, mark.leave_by_s)
        next_s = min((at_s for at_s in due if at_s > now_s), default=now_s)
        return min(LOOK_EVERY_S / 2, max(0.01, next_s - now_s))

    def _gone(self, leaver: _Leaver) -> bool:
        report = self._known().get(leaver.order.attempt)
        if report is not None and not (report.state.ended and leaver.settled):
            return False
        self._leaving.pop(leaver.order.attempt, None)
        return True

    def _has_requeued_itself(self, leaver: _Leaver) -> bool:
        report = self._known().get(leaver.order.attempt)
        pending = report is not None and report.state is SiteJobState.PENDING
        if pending and not leaver.requeued_at_s:
            leaver.requeued_at_s = self._clock()
            self._note(leaver, saved_at_s=max(leaver.mark.saved_at_s, leaver.requeued_at_s))
        return leaver.requeued_at_s > 0

    def _note(self, leaver: _Leaver, **fields: Any) -> None:
        leaver.mark = replace(leaver.mark, **fields)
        self._journal.put(leaver.order.attempt, leaver.mark)

    # ---- what they leave behind ----

    async def _look_now_and_then(self) -> None:
        while self._leaving:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look([each for each in self._leaving.values() if each.mark.told_at_s])
        self._looking = False

    async def _look(self, leavers: list[_Leaver]) -> None:
        """Read what they have left in their folders: one question for each user."""
        of_user: dict[str, list[_Leaver]] = {}
        for leaver in leavers:
            if leaver.order.checkpoint_dir:
                of_user.setdefault(leaver.order.user, []).append(leaver)
        for user, own in of_user.items():
            try:
                seen = await self._driver.look(user, [leaver.order for leaver in own])
            except FederatorError:
                continue
            for leaver, found in zip(own, seen, strict=False):
                leaver.seen = found

    async def settle(self, known: Mapping[AttemptId, AttemptReport]) -> None:
        """Before a sweep is reported: see what those have left that have just ended."""
        ended = [
            leaver for attempt, leaver in self._leaving.items()
            if not leaver.settled and (r := known.get(attempt)) is not None and r.state.ended
        ]  # fmt: skip
        if ended:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look(ended), LAST_LOOK_S)
        for leaver in ended:
            leaver.settled = True
            saved_s = self._saved_at_s(leaver, known[leaver.order.attempt])
            self._note(leaver, saved_at_s=saved_s)

    def _saved_at_s(self, leaver: _Leaver, report: AttemptReport) -> float:
        """When its last checkpoint was complete, by all signs; not after its end."""
        seen, mark = leaver.seen, leaver.mark
        signs = [mark.saved_at_s, seen.acked_at_s, seen.checkpointed_at_s]
        by_itself = report.state is not SiteJobState.CANCELLED and not report.exit_code
        in_grace = mark.told_at_s and report.ended_at_s >= mark.told_at_s and not report.signal
        if in_grace and (report.exit_code == _SAVED or by_itself):
            signs.append(report.ended_at_s)
        latest_s = report.ended_at_s + LOOK_EVERY_S  # Slurm's second may just have begun
        return max((sign for sign in signs if sign <= latest_s), default=0.0)

    def told(self, report: AttemptReport) -> AttemptReport:
        """A report, with how the attempt leaves if it was told to."""
        mark = self._journal.get(report.attempt)
        if mark is None or not mark.told_at_s:
            return report
        saved_at_s = mark.saved_at_s
        leave = Leave(told_at_s=mark.told_at_s, saved_at_s=saved_at_s, forced=mark.forced)
        return replace(report, leave=leave)
