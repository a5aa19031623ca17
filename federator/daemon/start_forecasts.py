"""Estimates starts beside the daemon's turns: a play of the queue at a time, so that none waits.

It takes a small part of the time: after the plays of one look it rests ``REST`` times as long as
they took. An error here is logged and ends the look alone: nothing depends on estimates.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from federator.model.start_estimate import NoEstimate, StartEstimate
from federator.model.workload import Workload, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.starts.calibration import COVERAGE
from federator.sched.starts.estimates import StartEstimates
from federator.sched.starts.plays import Plays
from federator.wire.status_rows import StartsRow

EVERY_S: Final = 10.0  # between two looks at the least
KEEP_S: Final = 60.0  # so old the plays become while somebody waits
REST: Final = 20.0
MOST_TRIALS: Final = 8  # that wait for their plays

log = structlog.get_logger()

Tell = Callable[[StartEstimate], None]


class StartForecasts:
    """The estimates of one term, and who is told them.

    Args:
        federation: read only.
        clock: returns Unix time.
        elapsed: seconds that never run backwards.

    Attributes:
        estimates: made so far.
    """

    def __init__(
        self, federation: Federation, clock: Callable[[], float], elapsed: Callable[[], float]
    ) -> None:
        self._federation, self._clock, self._elapsed = federation, clock, elapsed
        self.estimates = StartEstimates(federation)
        self._trials: deque[tuple[Workload, Tell]] = deque()
        self._asked = asyncio.Event()
        self._played_at_s = 0.0

    def of(self, id_: WorkloadId) -> StartEstimate:
        """When a workload is estimated to start, by the latest plays."""
        return self.estimates.of(id_, self._clock())

    def try_out(self, workload: Workload, tell: Tell) -> None:
        """Estimate the start of one that is not queued, and tell it."""
        if len(self._trials) >= MOST_TRIALS:
            tell(StartEstimate(none=NoEstimate.NOT_YET.value))
            return
        self._trials.append((workload, tell))
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
        rest_s = EVERY_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._asked.wait()
            self._asked.clear()
            began_s = self._elapsed()
            try:
                await self.look()
            except Exception:  # an estimate is worth no fault of the daemon
                log.exception("start_estimates_fault")
            rest_s = max(EVERY_S, REST * (self._elapsed() - began_s))

    async def look(self) -> None:
        """Learn from what has started, answer trials, and play anew if somebody waits."""
        now_s = self._clock()
        lacks = self.estimates.look(now_s)
        while self._trials:
            await self._try_out(*self._trials.popleft())
        waits = bool(self._federation.ledger.backlog)
        if lacks or (waits and now_s - self._played_at_s >= KEEP_S):
            plays = self.estimates.begin(now_s)
            await _play(plays)
            self.estimates.finish(plays)
            self._played_at_s = now_s

    async def _try_out(self, workload: Workload, tell: Tell) -> None:
        found = StartEstimate(none=NoEstimate.NOT_YET.value)
        try:
            begun = self.estimates.begin_trial(workload, self._clock())
            if isinstance(begun, Plays):
                await _play(begun)
                begun = self.estimates.of_trial(begun, workload.id, self._clock())
            found = begun
        finally:
            tell(found)


async def _play(plays: Plays) -> None:
    while not plays.over:
        plays.play()
        await asyncio.sleep(0)  # the daemon's turns come first
