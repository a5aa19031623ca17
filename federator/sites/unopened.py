"""Names the files that Slurm could not open for attempts that it therefore ended.

Slurm says no more than signal 53 then (22.05, 24.11 and 26.05; a job's own ``kill -53`` looks the
same). The files are looked at from the login node, as the user, once and before the end is
reported; those of one user together, since a whole array may have ended at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from federator.errors import FederatorError
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import AttemptId
from federator.sites.base import SiteDriver
from federator.sites.kept_orders import KeptOrders
from federator.sites.leaving import LOOK_TAKES_S
from federator.sites.protocol import LaunchOrder

NOT_OPENED: Final = 53  # the signal that Slurm names
LOOKS_AT_ONCE: Final = 8
ORDERS_PER_LOOK: Final = 500


class Unopened:
    """Completes reports with what could not be opened.

    Args:
        driver: this site's Slurm.
        kept: knows what was ordered.
    """

    def __init__(self, driver: SiteDriver, kept: KeptOrders) -> None:
        self._driver = driver
        self._kept = kept
        self._turns = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._found: dict[AttemptId, str] = {}

    async def complete(
        self, reports: Mapping[AttemptId, AttemptReport]
    ) -> dict[AttemptId, AttemptReport]:
        """The same reports, with ``unopened``; within ``LOOK_TAKES_S``, as sweeps wait."""
        ended = {a for a, r in reports.items() if _was_not_opened(r)}
        self._found = {a: text for a, text in self._found.items() if a in ended}
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_TAKES_S):
                await asyncio.gather(*map(self._look, self._by_user(ended - self._found.keys())))
        found = self._found
        return {a: replace(r, unopened=found[a]) if a in found else r for a, r in reports.items()}

    def _by_user(self, attempts: Iterable[AttemptId]) -> Iterator[Sequence[LaunchOrder]]:
        """The orders that are known of them, not too many of one user at a time."""
        users: dict[str, list[LaunchOrder]] = {}
        for attempt in attempts:
            order = self._kept.order(attempt)
            if order is not None and order.submission.components:
                users.setdefault(order.user, []).append(order)
            else:
                self._found[attempt] = ""
        for orders in users.values():
            for start in range(0, len(orders), ORDERS_PER_LOOK):
                yield orders[start : start + ORDERS_PER_LOOK]

    async def _look(self, orders: Sequence[LaunchOrder]) -> None:
        """Look once; what is still waiting for its turn when time is over is looked at later."""
        async with self._turns:
            self._found |= dict.fromkeys((order.attempt for order in orders), "")
            try:
                seen = await self._driver.inspect(orders[0].user, orders)
            except FederatorError:
                return
            self._found |= {o.attempt: text for o, text in zip(orders, seen, strict=True)}


def _was_not_opened(report: AttemptReport) -> bool:
    return report.state is SiteJobState.FAILED and report.signal == NOT_OPENED
