"""Keeps the QOS of a site, for sweeps, which do not wait for slurmdbd."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from federator.errors import SiteUnavailable
from federator.slurm.accounting_names import AccountingNames

FRESH_S: Final = 60.0
"""A new QOS can be asked for so long after it was added, at the latest."""


class RecentQos:
    """The QOS as they were when slurmdbd last told them.

    Args:
        accounting: asks for them; None: nobody does.
        clock: in seconds.
    """

    def __init__(
        self, accounting: AccountingNames | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._accounting = accounting
        self._clock = clock
        self._known: frozenset[str] | None = None
        self._asked_s = -FRESH_S
        self._asking: asyncio.Task[None] | None = None

    def names(self) -> frozenset[str] | None:
        """Those known; None: not told, as where there is no slurmdbd. It may ask meanwhile."""
        due = self._clock() - self._asked_s >= FRESH_S
        if due and self._accounting is not None and (self._asking is None or self._asking.done()):
            self._asked_s = self._clock()
            self._asking = asyncio.create_task(self._ask(self._accounting))
        return self._known

    async def _ask(self, accounting: AccountingNames) -> None:
        """No answer is no knowledge: then sbatch judges. Whoever has slurmdbd has a QOS."""
        try:
            self._known = await accounting.qos() or None
        except SiteUnavailable:
            self._known = None
