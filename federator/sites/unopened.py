"""Names the files that Slurm could not open for attempts that it therefore ended.

Slurm says no more than signal 53 then (22.05, 24.11 and 26.05; a job's own ``kill -53`` looks the
same). The files are looked at from the login node, as the user, once and before the end is
reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from federator.errors import FederatorError
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import AttemptId
from federator.sites.base import SiteDriver
from federator.sites.kept_orders import KeptOrders
from federator.sites.leaving import LOOK_TAKES_S

NOT_OPENED: Final = 53  # the signal that Slurm names
LOOKS_AT_ONCE: Final = 8


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
        await asyncio.gather(*(self._look(a) for a in ended - self._found.keys()))
        found = self._found
        return {a: replace(r, unopened=found[a]) if a in found else r for a, r in reports.items()}

    async def _look(self, attempt: AttemptId) -> None:
        self._found[attempt] = ""
        order = self._kept.order(attempt)
        if order is None or not order.submission.components:
            return
        try:
            async with asyncio.timeout(LOOK_TAKES_S), self._turns:
                self._found[attempt] = await self._driver.inspect(order)
        except (FederatorError, TimeoutError):
            return


def _was_not_opened(report: AttemptReport) -> bool:
    return report.state is SiteJobState.FAILED and report.signal == NOT_OPENED
