"""Looks for what admins change by hand, oftener than sweeps look at everything.

Partitions and reservations are small, and slurmctld answers for both in less than a millisecond
(docs/agent.md). A change is told the core, which sweeps at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from federator.agent.base import SiteDriver
from federator.errors import SiteUnavailable

REST_PER_LOOK: Final = 4.0  # a slow slurmctld is asked less often, as by sweeps


class SettingsWatch:
    """Looks again and again, while Slurm answers.

    Args:
        driver: this site's Slurm.
        interval_s: between two looks, at least.
        changed: is called when there is something new.
    """

    def __init__(self, driver: SiteDriver, interval_s: float, changed: Callable[[], None]) -> None:
        self._driver = driver
        self._interval_s = interval_s
        self._changed = changed

    async def run(self) -> None:
        """Look for as long as the agent lives."""
        clock = asyncio.get_running_loop().time
        pause_s = self._interval_s
        while True:
            await asyncio.sleep(pause_s)
            began_s = clock()
            try:
                if await self._driver.settings_changed():
                    self._changed()
            except SiteUnavailable:
                pass  # the next sweep says so
            pause_s = max(self._interval_s, REST_PER_LOOK * (clock() - began_s))
