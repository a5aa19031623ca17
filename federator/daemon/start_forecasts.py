"""Estimates starts between the daemon's turns: a turn waits for one play or view of the queue.

It takes a small part of the time: after the plays of one look it rests ``REST`` times as long as
they took, and likewise after those of a trial. An error here is logged and ends the look alone:
nothing depends on estimates.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Final, NamedTuple

import structlog

from federator.daemon.starts_file import NOWHERE, StartsFile
from federator.model.start_estimate import NoEstimate, StartEstimate, StartHelp
from federator.model.workload import Workload, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.starts.calibration import COVERAGE
from federator.sched.starts.estimates import StartEstimates
from federator.sched.starts.plays import Plays
from federator.wire.status_rows import StartsRow

EVERY_S: Final = 10.0  # between two looks at the least
SAVE_S: Final = 60.0  # between two writings of what was learned at the least
KEEP_S: Final = 60.0  # so old the plays become while somebody waits
REST: Final = 20.0
MOST_TRIALS: Final = 8  # that wait for their plays
PATIENCE_S: Final = 3.0  # then the bids of a trial are told without an estimate
_TURN_S: Final = 0.002  # between two looks whether a turn is over
_NOT_YET: Final = StartEstimate(none=NoEstimate.NOT_YET.value)

log = structlog.get_logger()

Tell = Callable[[StartEstimate], None]


class _Trial(NamedTuple):
    """One that is not queued, or the id of one whose changes are tried; whom to tell, by when."""

    workload: Workload | WorkloadId
    tell: Callable[[Any], None]
    none: StartEstimate | tuple[StartHelp, ...]  # told where it takes too long
    until_s: float  # as ``elapsed``


class StartForecasts:
    """The estimates of one term, and who is told them.

    Args:
        federation: read only.
        clock: returns Unix time.
        elapsed: seconds that never run backwards.
        between_turns: whether the daemon is in no turn: a play never begins within one.
        kept: where what an earlier term has learned stands, and what this one learns is to.

    Attributes:
        estimates: made so far.
    """

    def __init__(
        self,
        federation: Federation,
        clock: Callable[[], float],
        elapsed: Callable[[], float],
        between_turns: Callable[[], bool] = lambda: True,
        kept: StartsFile = NOWHERE,
    ) -> None:
        self._federation, self._clock, self._elapsed = federation, clock, elapsed
        self._between_turns = between_turns
        self.estimates = StartEstimates(federation)
        self.estimates.calibration.restore(kept.read())
        self._kept, self._saved = kept, self.estimates.calibration.judged
        self._save_at_s = 0.0  # as ``elapsed``
        self._trials: deque[_Trial] = deque()
        self._asked = asyncio.Event()
        self._played_at_s = 0.0
        self._look_at_s = self._try_at_s = 0.0  # as ``elapsed``

    def of(self, id_: WorkloadId) -> StartEstimate:
        """When a workload is estimated to start, by the latest plays."""
        return self.estimates.of(id_, self._clock())

    def try_out(self, workload: Workload, tell: Tell) -> None:
        """Estimate the start of one that is not queued, and tell it, within some seconds.

        Trials have a rest of their own. Where they come faster, or their plays take long, some are
        told that there is no estimate yet.
        """
        if len(self._trials) >= MOST_TRIALS:
            tell(_NOT_YET)
            return
        self._trials.append(_Trial(workload, tell, _NOT_YET, self._elapsed() + PATIENCE_S))
        self._asked.set()

    def try_changes(self, id_: WorkloadId, tell: Callable[[tuple[StartHelp, ...]], None]) -> None:
        """Find out what would have one that waits start sooner, as a trial; nothing if too many."""
        if len(self._trials) >= MOST_TRIALS:
            tell(())
            return
        self._trials.append(_Trial(id_, tell, (), self._elapsed() + PATIENCE_S))
        self._asked.set()

    def row(self) -> StartsRow:
        """How good they were."""
        known = self.estimates.calibration
        return StartsRow(
            frac=COVERAGE,
            judged=known.judged,
            latest=known.latest,
            hit_frac=known.hit_frac,
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

    def save(self) -> None:
        """Keep what was learned since the last time, for the next term."""
        known = self.estimates.calibration
        if known.judged != self._saved:
            self._kept.write(known.saved())
            self._saved = known.judged

    async def _rest(self) -> None:
        """Until it is time to look, to try one out, or to tell one that it takes too long."""
        until_s = self._look_at_s
        if self._trials:
            until_s = min(until_s, max(self._try_at_s, 0.0), self._trials[0].until_s)
        self._asked.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until_s - self._elapsed())):
                await self._asked.wait()

    async def _renew(self) -> None:
        await self._gap()
        now_s, began_s = self._clock(), self._elapsed()
        try:
            lacks = self.estimates.look(now_s)
            if began_s >= self._save_at_s:
                self._save_at_s = began_s + SAVE_S
                self.save()
            waits = bool(self._federation.ledger.backlog)
            if lacks or (waits and now_s - self._played_at_s >= KEEP_S):
                plays = self.estimates.begin(now_s)
                await self._play(plays)
                await self._gap()
                self.estimates.finish(plays)
                self._played_at_s = now_s
        finally:
            took_s = self._elapsed() - began_s
            self._look_at_s = began_s + took_s + max(EVERY_S, REST * took_s)

    async def _try_out_some(self) -> None:
        self._end_patience()
        while self._trials and self._elapsed() >= self._try_at_s:
            trial, began_s = self._trials.popleft(), self._elapsed()
            try:
                await self._try_out(trial)
            finally:
                self._try_at_s = self._elapsed() + REST * (self._elapsed() - began_s)
            self._end_patience()

    async def _try_out(self, trial: _Trial) -> None:
        found = trial.none
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

    async def _helps_of(self, id_: WorkloadId, until_s: float) -> tuple[StartHelp, ...]:
        played = []
        for change, plays in self.estimates.begin_changes(id_, self._clock()):
            if not await self._play(plays, until_s):
                break
            played.append((change, plays))
        return self.estimates.helps(id_, played, self._clock())

    def _end_patience(self) -> None:
        """Tell those that have waited too long; they stand in the order in which they came."""
        while self._trials and self._trials[0].until_s <= self._elapsed():
            trial = self._trials.popleft()
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
