"""Tells the daemon what attempts have used, as the site measured it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from federator.agent.base import SiteDriver
from federator.errors import SiteUnavailable
from federator.model.tagged import Message
from federator.wire.agent_protocol import UsageAsk, UsageTaken


class Measurements:
    """The answers to ``UsageAsk``, one at a time: slurmdbd has more to do.

    Args:
        driver: this site's Slurm.
        send: sends a message to the daemon.
    """

    def __init__(self, driver: SiteDriver, send: Callable[[Message], None]) -> None:
        self._driver = driver
        self._send = send
        self._turn = asyncio.Lock()

    async def tell(self, ask: UsageAsk) -> None:
        """Answer; of what cannot be asked now nothing is known."""
        async with self._turn:
            try:
                used = tuple(await self._driver.measured(ask.jobs))
            except SiteUnavailable:
                used = (None,) * len(ask.jobs)
        self._send(UsageTaken(ask_id=ask.ask_id, used=used))
