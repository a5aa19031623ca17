"""Collects what a daemon decides on in its next turn: observations, and wakes that are due."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from federator.daemon.pass_throttle import PassThrottle
from federator.model.message import Observation, Tick

BATCH: Final = 256  # observations that share one commit


class Inbox:
    """What has come in, in its order, and when the next wake is due.

    Args:
        clock: returns Unix time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._come: asyncio.Queue[Observation] = asyncio.Queue()
        self._wakes: list[float] = []  # a heap
        self._pace = PassThrottle()

    def put(self, observation: Observation) -> None:
        """Add an observation."""
        self._come.put_nowait(observation)

    def wake(self, at_s: float) -> None:
        """Have a ``Tick`` among the observations of the first turn from then on."""
        heapq.heappush(self._wakes, at_s)

    async def gather(self) -> Sequence[Observation]:
        """Wait for an observation or the next wake; then take what else is there."""
        wake_s = max(self._wakes[0], self._pace.rests_until_s) if self._wakes else inf
        pause_s = max(0.0, wake_s - self._clock()) if wake_s < inf else None
        found: list[Observation] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                found.append(await self._come.get())
        # One commit for all that waits; bounded, so that no reply waits for a long turn.
        while not self._come.empty() and len(found) < BATCH:
            found.append(self._come.get_nowait())
        now_s = self._clock()
        if wake_s <= now_s:
            while self._wakes and self._wakes[0] <= now_s:
                heapq.heappop(self._wakes)
            found.append(Tick())
        return found

    def take_all(self) -> list[Observation]:
        """Take all observations that are there, without waiting."""
        return [self._come.get_nowait() for _ in range(self._come.qsize())]

    def decided(self, observations: Sequence[Observation], from_s: float) -> None:
        """A turn has decided on these, from this Unix time until now: wakes rest accordingly."""
        woke = any(isinstance(o, Tick) for o in observations)
        self._pace.turn_took(from_s, self._clock(), woke=woke)
