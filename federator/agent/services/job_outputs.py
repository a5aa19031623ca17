"""Seals and removes, as their users, the data sets that jobs have written, as the daemon orders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from federator.errors import SiteRefused, SiteUnavailable
from federator.model.dataset import CopyPhase
from federator.wire.agent_protocol import OutputOrder, OutputStatus

AT_ONCE: Final = 2  # steps; each is short, and what it began goes on beside it


class OutputDriver(Protocol):
    """The part of a ``SiteDriver`` that is needed here."""

    async def output(self, order: OutputOrder) -> OutputStatus:
        """As ``SiteDriver.output``."""
        ...


class JobOutputs:
    """Carries out the daemon's orders; none is kept here but those under way.

    Args:
        driver: this site's Slurm.
        tell: sends an answer to the daemon.
    """

    def __init__(self, driver: OutputDriver, tell: Callable[[OutputStatus], None]) -> None:
        self._driver = driver
        self._tell = tell
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._begun = set[tuple[int, str]]()  # folders with a step that waits or is under way

    async def step(self, order: OutputOrder) -> None:
        """Take one step, and tell where it stands; nothing where that cannot be known.

        The daemon orders again what was not answered; that is passed over while a step lasts.
        """
        key = order.place.id, order.place.domain
        if key in self._begun:
            return
        self._begun.add(key)
        try:
            async with self._turn:
                status = await self._driver.output(order)
        except SiteRefused as error:
            status = status_of(order, CopyPhase.FAILED, str(error))
        except SiteUnavailable:  # the daemon orders again
            return
        finally:
            self._begun.discard(key)
        self._tell(replace(status, detail=status.detail[:300]))


def status_of(order: OutputOrder, phase: CopyPhase, detail: str = "") -> OutputStatus:
    """The answer to an order, without what was sealed."""
    return OutputStatus(
        workload=order.place.id,
        attempt=order.attempt,
        domain=order.place.domain,
        phase=phase,
        detail=detail,
    )
