"""Who was told to leave this site, and are they gone in time? Grace, kept by the agent.

Each attempt is told once, by its own signal and with its deadline in its checkpoint folder. It may
go by itself, say that it has saved (it is ended at once then), or requeue itself (the site's copy
is taken back). Shortly before the deadline TERM goes to all of it. Slurm itself ends a job only by
TERM and, KillWait later, KILL to all its processes, so it is cancelled that long before the
deadline; whatever is left then is killed, again and again. What was begun is in the journal, so
that an agent that comes after this one keeps the same deadline.

A signal that asks for a save is sent at once, not a lead time before the deadline: somebody waits
for the nodes. Deadlines wait for nothing that a user's folder can hold up: telling and looking have
time limits and turns of their own. While the site has no daemon it has no agent, and nobody is
ended; what is over its deadline then is ended first thing afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from math import inf
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
LOOK_TAKES_S: Final = 5.0  # at most; a folder that does not answer is left alone for a while
LOOK_AGAIN_S: Final = 30.0
ACTS_AT_ONCE: Final = 8  # of each kind
_LEAVING: Final = ("leave_by_s", "told_at_s", "saved_at_s", "forced")  # fields of a mark
_SAVED: Final = 85  # exit status: "checkpointed, start me again"


@dataclass(slots=True)
class _Leaver:
    order: PreemptOrder
    mark: Mark
    leave_by_s: float  # as the mark's, by a clock that is never set
    restarts: int = 0  # that Slurm had counted when the order came
    checkpointed_at_s: float = 0.0
    acked: bool = False
    kill_wait_s: float = 30.0
    warned: bool = False  # by TERM
    cancelled: bool = False
    requeued_at_s: float = 0.0  # by itself
    shown: int = 0  # so many sweeps ended after it was told and showed it alive
    settled: bool = False  # all that can be known of it is known

    @property
    def term_at_s(self) -> float:
        return self.leave_by_s - min(TERM_BEFORE_S, self.order.grace_s / 4)

    @property
    def cancel_at_s(self) -> float:
        """With a KillWait that long, half of the grace is left to the job all the same."""
        return self.leave_by_s - min(self.kill_wait_s, self.order.grace_s / 2)


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
        self._turns = {name: asyncio.Semaphore(ACTS_AT_ONCE) for name in ("tell", "end", "kill")}
        self._looking = False
        self._look_at_s: dict[str, float] = {}  # not before; by user whose folders do not answer
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
        report = self._known().get(order.attempt)
        restarts = report.restarts if report is not None else 0
        left_s = min(mark.leave_by_s - now_s, order.grace_s)  # clocks are set
        leaver = _Leaver(order, mark, self._elapsed_s() + left_s, restarts)
        self._leaving[order.attempt] = leaver
        self._start(self._see_off(leaver))
        if not self._looking:
            self._looking = True
            self._start(self._look_now_and_then())

    # ---- one attempt ----

    async def _see_off(self, leaver: _Leaver) -> None:
        telling = asyncio.create_task(self._tell(leaver))
        try:
            while not self._gone(leaver):
                self._watch()
                try:
                    await self._act(leaver)
                except FederatorError:  # it may be gone; else Slurm may answer the next time
                    await asyncio.sleep(AGAIN_S)
                await asyncio.sleep(self._pause_s(leaver))
        finally:
            telling.cancel()

    async def _tell(self, leaver: _Leaver) -> None:
        while not leaver.mark.told_at_s:
            now_s = self._clock()
            try:
                async with self._turns["tell"]:
                    await self._driver.tell(leaver.order, leaver.mark.leave_by_s)
            except FederatorError:
                await asyncio.sleep(AGAIN_S)
            else:
                self._note(leaver, told_at_s=_whole(now_s))

    async def _act(self, leaver: _Leaver) -> None:
        now_s = self._elapsed_s()
        if self._kill_wait_s is None:
            self._kill_wait_s = await self._driver.kill_wait_s()
        leaver.kill_wait_s = self._kill_wait_s
        if self._has_requeued(leaver):
            await self._cancel(leaver)
        elif leaver.acked:  # what it has to say is said: no KillWait for whoever handles TERM
            await self._kill(leaver)
        elif now_s >= leaver.leave_by_s:
            if not leaver.mark.forced:
                self._note(leaver, forced=True)
            await self._kill(leaver)
        elif now_s >= leaver.cancel_at_s and not leaver.cancelled:
            self._note(leaver, forced=True)
            await self._cancel(leaver)
            leaver.cancelled = True  # Slurm does the rest
        elif leaver.term_at_s <= now_s < leaver.cancel_at_s and not leaver.warned:
            async with self._turns["end"]:
                await self._signal(leaver, "TERM")
            leaver.warned = True

    async def _cancel(self, leaver: _Leaver) -> None:
        order = leaver.order
        async with self._turns["end"]:
            await self._driver.cancel(order.user, order.site_job_id, pending_only=False)

    async def _kill(self, leaver: _Leaver) -> None:
        try:
            async with self._turns["kill"]:
                await self._signal(leaver, "KILL")
        finally:
            await self._cancel(leaver)

    async def _signal(self, leaver: _Leaver, name: str) -> None:
        order = leaver.order
        await self._driver.signal(order.user, order.site_job_id, name, SignalTo.ALL)

    def _pause_s(self, leaver: _Leaver) -> float:
        """Until the next thing is due, at most until the next look."""
        now_s = self._elapsed_s()
        if now_s >= leaver.leave_by_s or leaver.acked or leaver.requeued_at_s:
            return AGAIN_S
        due = (leaver.term_at_s, leaver.cancel_at_s, leaver.leave_by_s)
        next_s = min((at_s for at_s in due if at_s > now_s), default=now_s)
        return min(LOOK_EVERY_S / 2, max(0.01, next_s - now_s))

    def _gone(self, leaver: _Leaver) -> bool:
        report = self._known().get(leaver.order.attempt)
        if report is not None and not (report.state.ended and leaver.settled):
            return False
        self._leaving.pop(leaver.order.attempt, None)
        return True

    def _has_requeued(self, leaver: _Leaver) -> bool:
        """Whether it was put back into the site's queue, and may run there once more already.

        By itself, once it had saved; or by the site, for a node or a local job.
        """
        report = self._known().get(leaver.order.attempt)
        if report is None or leaver.requeued_at_s:
            return leaver.requeued_at_s > 0
        if report.state is SiteJobState.PENDING or report.restarts > leaver.restarts:
            leaver.requeued_at_s = self._clock()
            if leaver.mark.told_at_s and not (report.preempted or report.failed_nodes):
                self._note(leaver, saved_at_s=leaver.requeued_at_s)
        return leaver.requeued_at_s > 0

    def _note(self, leaver: _Leaver, **fields: Any) -> None:
        """Whatever else has been noted of it since stays."""
        mine = {name: getattr(leaver.mark, name) for name in _LEAVING}
        known = self._journal.get(leaver.order.attempt) or leaver.mark
        leaver.mark = replace(known, **(mine | fields))
        self._journal.put(leaver.order.attempt, leaver.mark)

    @staticmethod
    def _elapsed_s() -> float:
        return asyncio.get_running_loop().time()

    # ---- what they leave behind ----

    async def _look_now_and_then(self) -> None:
        while self._leaving:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look(list(self._leaving.values()))
        self._looking = False

    async def _look(self, leavers: list[_Leaver], *, last: bool = False) -> None:
        """Read what they have left in their folders: one question for each user.

        ``last``: they have ended, so that another look under way does not do.
        """
        of_user: dict[str, list[_Leaver]] = {}
        for leaver in leavers:
            if leaver.order.checkpoint_dir:
                of_user.setdefault(leaver.order.user, []).append(leaver)
        now_s = self._elapsed_s()
        await asyncio.gather(
            *(
                self._look_at(user, own)
                for user, own in of_user.items()
                if (at_s := self._look_at_s.get(user, -inf)) <= now_s or (last and at_s == inf)
            )
        )

    async def _look_at(self, user: str, leavers: list[_Leaver]) -> None:
        self._look_at_s[user] = inf  # one look at a time
        wait_s = 0.0
        try:
            orders = [leaver.order for leaver in leavers]
            seen = await asyncio.wait_for(self._driver.look(user, orders), LOOK_TAKES_S)
        except (FederatorError, TimeoutError) as error:
            wait_s = LOOK_AGAIN_S if isinstance(error, TimeoutError) else AGAIN_S
            return
        finally:
            self._look_at_s[user] = self._elapsed_s() + wait_s
        for leaver, found in zip(leavers, seen, strict=False):
            self._take(leaver, found)

    def _take(self, leaver: _Leaver, found: Seen) -> None:
        """What a job says counts from when it is seen: a file server has a clock of its own."""
        leaver.checkpointed_at_s = found.checkpointed_at_s
        if found.acked_at_s and not leaver.acked:
            now_s = self._clock()
            leaver.acked = True
            told_at_s = leaver.mark.told_at_s or _whole(now_s)
            self._note(leaver, told_at_s=told_at_s, saved_at_s=now_s)

    async def settle(self, known: Mapping[AttemptId, AttemptReport]) -> None:
        """Before a sweep is reported: see what those have left that have just ended."""
        ended = [
            leaver for attempt, leaver in self._leaving.items()
            if not leaver.settled and (r := known.get(attempt)) is not None and r.state.ended
        ]  # fmt: skip
        await self._look(ended, last=True)
        for leaver in self._leaving.values():
            report = known.get(leaver.order.attempt)
            if leaver.mark.told_at_s and report is not None and not report.state.ended:
                leaver.shown += 1
        for leaver in ended:
            leaver.settled = True
            report = known[leaver.order.attempt]
            if leaver.shown > 1 and report.ended_at_s:  # the second sweep began after that
                told_at_s = min(leaver.mark.told_at_s, report.ended_at_s)  # by Slurm's clock
                self._note(leaver, told_at_s=told_at_s)
            saved_s = self._saved_at_s(leaver, report)
            self._note(leaver, saved_at_s=saved_s)

    def _saved_at_s(self, leaver: _Leaver, report: AttemptReport) -> float:
        """When its last checkpoint was complete, by all signs; not after its end."""
        mark = leaver.mark
        signs = [mark.saved_at_s, leaver.checkpointed_at_s]
        in_grace = mark.told_at_s and report.ended_at_s >= mark.told_at_s and not report.signal
        success = report.state is SiteJobState.COMPLETED and not report.exit_code
        if in_grace and (report.exit_code == _SAVED or success):
            signs.append(report.ended_at_s)
        return min(max(signs), max(report.ended_at_s, mark.told_at_s))

    def told(self, report: AttemptReport) -> AttemptReport:
        """A report, with how the attempt leaves if it was told to."""
        mark = self._journal.get(report.attempt)
        if mark is None or not mark.told_at_s:
            return report
        saved_at_s = mark.saved_at_s
        leave = Leave(told_at_s=mark.told_at_s, saved_at_s=saved_at_s, forced=mark.forced)
        return replace(report, leave=leave)


def _whole(at_s: float) -> float:
    """Whole seconds, as Slurm gives the ends of jobs."""
    return float(int(at_s))
