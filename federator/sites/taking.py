"""How are optional components of a het job ended, while the rest of it runs on?

Slurm ends a component alone only while the job runs, and never the first one. Nothing needs to be
remembered: an order comes again until a report shows that the components have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from federator.errors import FederatorError
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import AttemptId
from federator.sites.base import SiteDriver
from federator.sites.calls import Message
from federator.sites.protocol import CancelFailed, ShrinkOrder

AT_ONCE: Final = 4


class Taking:
    """Orders to shrink jobs of this site.

    Args:
        driver: this site's Slurm.
        known: the attempts of the last sweep.
        sweep: looks again.
        send: sends a message to the daemon.
        watch: asks for sweeps in short order.
    """

    def __init__(
        self,
        driver: SiteDriver,
        *,
        known: Callable[[], Mapping[AttemptId, AttemptReport]],
        sweep: Callable[[], Awaitable[bool]],
        send: Callable[[Message], None],
        watch: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._known = known
        self._sweep = sweep
        self._send = send
        self._watch = watch
        self._under_way: set[ShrinkOrder] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def take(self, order: ShrinkOrder) -> None:
        """End the components that run; harmless for those that have ended, or for another's job."""
        if order in self._under_way:  # the daemon repeats what takes long
            return
        self._under_way.add(order)
        try:
            if order.attempt not in self._known():
                await self._sweep()
            report = self._known().get(order.attempt)
            if report is not None and report.user == order.user:
                for number in order.components:
                    found = report.components.get(number)
                    if number > 0 and found is not None and found.state is SiteJobState.RUNNING:
                        await self._end(order, found.job_id)
                self._watch()
        finally:
            self._under_way.discard(order)

    async def _end(self, order: ShrinkOrder, job_id: int) -> None:
        try:
            async with self._slots:
                await self._driver.cancel(order.user, job_id, pending_only=False)
        except FederatorError as error:
            self._send(CancelFailed(attempt=order.attempt, detail=str(error)))
