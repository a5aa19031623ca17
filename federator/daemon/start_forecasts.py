"""Estimates starts between the daemon's turns: a turn waits for one play or view of the queue.

It takes a small part of the time: after the plays of one look it rests ``REST`` times as long as
they took, and likewise, each by itself, after those of a trial and of the changes of a job. An
error here is logged and ends the look alone: without them data is copied by what has been waited.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final, NamedTuple

import structlog

from federator.daemon.starts_file import NOWHERE, LearnedStarts, StartsFile
from federator.model.mappings import NOTHING
from federator.model.message import StartsEstimated
from federator.model.start_estimate import NoEstimate, StartEstimate, StartHelp
from federator.model.workload import Workload, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.starts.calibration import COVERAGE, HitRate
from federator.sched.starts.estimates import StartEstimates
from federator.sched.starts.plays import Plays
from federator.sched.starts.rated_classes import read_class
from federator.wire.status_rows import StartsClassRow, StartsRow

EVERY_S: Final = 10.0  # between two looks at the least
KEEP_S: Final = 60.0  # so old the plays become while somebody waits
REST: Final = 20.0
MOST_TRIALS: Final = 8  # that wait for their plays; so of changes
PATIENCE_S: Final = 3.0  # then the bids of a trial are told without an estimate
_TURN_S: Final = 0.002  # between two looks whether a turn is over
_NOT_YET: Final = StartEstimate(none=NoEstimate.NOT_YET.value)

log = structlog.get_logger()

Tell = Callable[[StartEstimate], None]
Helps = tuple[StartHelp, ...] | None
"""None: they were not tried, or not all and none that was helps."""


class _Trial(NamedTuple):
    """One that is not queued, or the id of one whose changes are tried; whom to tell, by when."""

    workload: Workload | WorkloadId
    tell: Callable[[Any], None]
    none: StartEstimate | None  # told where it takes too long
    until_s: float  # as ``elapsed``


class _Line:
    """Trials of one kind, in the order in which they came, and until when they rest."""

    def __init__(self) -> None:
        self.trials: deque[_Trial] = deque()
        self.try_at_s = 0.0  # as ``elapsed``


class StartForecasts:
    """The estimates of one term, and who is told them.

    Args:
        federation: read only.
        clock: returns Unix time.
        elapsed: seconds that never run backwards.
        between_turns: whether the daemon is in no turn: a play never begins within one.
        kept: where what an earlier term has learned stands, and what this one learns is to.
        observe: is given what the core may know: when jobs may start where their data is.

    Attributes:
        estimates: made so far.
        learned: what of them is kept.
    """

    def __init__(
        self,
        federation: Federation,
        clock: Callable[[], float],
        elapsed: Callable[[], float],
        between_turns: Callable[[], bool] = lambda: True,
        kept: StartsFile = NOWHERE,
        observe: Callable[[StartsEstimated], None] | None = None,
    ) -> None:
        self._federation, self._clock, self._elapsed = federation, clock, elapsed
        self._between_turns = between_turns
        self._observe = observe
        self._sent: Mapping[WorkloadId, float] = NOTHING
        self.estimates = StartEstimates(federation)
        self.learned = LearnedStarts(self.estimates.calibration, kept)
        self._trials, self._changes = _Line(), _Line()
        self._with_changes: set[str] = set()  # users who wait for theirs
        self._asked = asyncio.Event()
        self._played_at_s = 0.0
        self._look_at_s = 0.0  # as ``elapsed``

    def of(self, id_: WorkloadId) -> StartEstimate:
        """When a workload is estimated to start, by the latest plays."""
        return self.estimates.of(id_, self._clock())

    def try_out(self, workload: Workload, tell: Tell) -> None:
        """Estimate the start of one that is not queued, and tell it, within some seconds.

        Trials have a rest of their own. Where they come faster, or their plays take long, some are
        told that there is no estimate yet.
        """
        self._add(self._trials, _Trial(workload, tell, _NOT_YET, self._elapsed() + PATIENCE_S))

    def try_changes(self, id_: WorkloadId, user: str, tell: Callable[[Helps], None]) -> None:
        """Find out what would have one that waits start sooner, and tell it, within some seconds.

        They have a line and a rest of their own, and ``user``, who asks, has one of them at a time:
        they take the longest, and no trial is to wait for them.
        """
        if user in self._with_changes:
            tell(None)
            return

        def answered(found: Helps) -> None:
            self._with_changes.discard(user)
            tell(found)

        self._with_changes.add(user)
        self._add(self._changes, _Trial(id_, answered, None, self._elapsed() + PATIENCE_S))

    def _add(self, line: _Line, trial: _Trial) -> None:
        if len(line.trials) >= MOST_TRIALS:
            trial.tell(trial.none)
            return
        line.trials.append(trial)
        self._asked.set()

    def row(self) -> StartsRow:
        """How good they were."""
        known = self.estimates.calibration
        return StartsRow(
            frac=COVERAGE,
            judged=known.judged,
            latest=known.latest,
            hit_frac=known.hit_frac,
            classes=_by_class(known.rates()),
        )

    async def run(self) -> None:
        """Estimate for ever."""
        self._look_at_s = self._elapsed() + EVERY_S
        while True:
            await self._rest()
            try:
                await self._try_out_some()
                if self._elapsed() >= self._look_at_s:
                    await self._renew()
            except Exception:  # an estimate is worth no fault of the daemon
                log.exception("start_estimates_fault")

    async def look(self) -> None:
        """Learn from what has started, answer trials, and play anew if somebody waits."""
        await self._try_out_some()
        await self._renew()

    async def _rest(self) -> None:
        """Until it is time to look, to try one out, or to tell one that it takes too long."""
        until_s = self._look_at_s
        for line in (self._trials, self._changes):
            if line.trials:
                until_s = min(until_s, line.try_at_s, line.trials[0].until_s)
        self._asked.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until_s - self._elapsed())):
                await self._asked.wait()

    async def _renew(self) -> None:
        await self._gap()
        now_s, began_s = self._clock(), self._elapsed()
        try:
            lacks = self.estimates.look(now_s)
            if await self.learned.save_beside(began_s):
                await self._gap()
            waits = bool(self._federation.ledger.backlog)
            if lacks or (waits and now_s - self._played_at_s >= KEEP_S):
                plays = self.estimates.begin(now_s)
                await self._play(plays)
                await self._gap()
                self.estimates.finish(plays)
                self._played_at_s = now_s
            self._tell_core(now_s)
        finally:
            took_s = self._elapsed() - began_s
            self._look_at_s = began_s + took_s + max(EVERY_S, REST * took_s)

    def _tell_core(self, now_s: float) -> None:
        """Tell the core of jobs that wait where their data is, if that is news."""
        if self._observe is None or not self._federation.rules.staging.copies:
            return
        starts = self.estimates.where_data_is(now_s)
        if starts != self._sent:
            self._sent = starts
            self._observe(StartsEstimated(starts=starts))

    async def _try_out_some(self) -> None:
        await self._try_out_those(self._trials)
        await self._try_out_those(self._changes)

    async def _try_out_those(self, line: _Line) -> None:
        self._end_patience()
        while line.trials and self._elapsed() >= line.try_at_s:
            trial, began_s = line.trials.popleft(), self._elapsed()
            try:
                await self._try_out(trial)
            finally:
                line.try_at_s = self._elapsed() + REST * (self._elapsed() - began_s)
            self._end_patience()

    async def _try_out(self, trial: _Trial) -> None:
        found: StartEstimate | Helps = trial.none
        try:
            if await self._gap(trial.until_s):
                if isinstance(trial.workload, Workload):
                    found = await self._start_of(trial.workload, trial.until_s)
                else:
                    found = await self._helps_of(trial.workload, trial.until_s)
        finally:
            trial.tell(found)

    async def _start_of(self, workload: Workload, until_s: float) -> StartEstimate:
        begun = self.estimates.begin_trial(workload, self._clock())
        if isinstance(begun, StartEstimate):
            return begun
        if not await self._play(begun, until_s):
            return _NOT_YET
        return self.estimates.of_trial(begun, self._clock())

    async def _helps_of(self, id_: WorkloadId, until_s: float) -> Helps:
        played = []
        to_play, over = self.estimates.begin_changes(id_, self._clock()), False
        while not over and await self._gap(until_s):
            begun = next(to_play, None)
            if begun is None:
                over = True
            elif await self._play(begun[1], until_s):
                played.append(begun)
                await self._try_out_those(self._trials)  # which are short
        return self.estimates.helps(id_, played, self._clock()) or (() if over else None)

    def _end_patience(self) -> None:
        """Tell those that have waited too long; they stand in the order in which they came."""
        for line in (self._trials, self._changes):
            while line.trials and line.trials[0].until_s <= self._elapsed():
                trial = line.trials.popleft()
                trial.tell(trial.none)

    async def _play(self, plays: Plays, until_s: float = inf) -> bool:
        """Play between turns, a play at a time; tell whether it was over in time."""
        while not plays.over:
            if not await self._gap(until_s):
                return False
            plays.play()
        return True

    async def _gap(self, until_s: float = inf) -> bool:
        """Let others have the loop until no turn is under way; tell whether there is time left."""
        pause_s = 0.0
        while True:
            await asyncio.sleep(pause_s)
            self._end_patience()
            if self._elapsed() >= until_s:
                return False
            if self._between_turns():
                return True
            pause_s = _TURN_S


def _by_class(rates: Iterable[HitRate]) -> tuple[StartsClassRow, ...]:
    """The rates of all that name a class: what was kept in a file may name others."""
    rows = []
    for rate in rates:
        found = read_class(rate.of)
        if found is not None:
            row = StartsClassRow(
                gpus=found.gpus, quota=found.quota, latest=rate.latest, hit_frac=rate.hit_frac
            )
            rows.append(row)
    return tuple(sorted(rows, key=lambda row: (int(row.gpus.split("-")[0]), row.quota)))
