"""Takes the steps of copies of data sets to this site, as their owners, as the daemon orders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from federator.errors import SiteRefused, SiteUnavailable
from federator.model.dataset import CopyPhase
from federator.wire.agent_protocol import CopyOrder, CopyStatus

AT_ONCE: Final = 2  # steps; each is short, and the copies go on beside them


class CopyDriver(Protocol):
    """The part of a ``SiteDriver`` that is needed here."""

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        """As ``SiteDriver.copy``."""
        ...


class DataCopies:
    """Carries out the daemon's orders; none is kept here but those under way.

    Args:
        driver: this site's Slurm.
        tell: sends an answer to the daemon.
    """

    def __init__(self, driver: CopyDriver, tell: Callable[[CopyStatus], None]) -> None:
        self._driver = driver
        self._tell = tell
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._begun = set[tuple[str, str, str]]()  # copies with a step that waits or is under way

    async def step(self, order: CopyOrder) -> None:
        """Take one step, and tell where the copy stands; nothing where that cannot be known.

        The daemon orders again what was not answered; that is passed over while a step lasts.
        """
        key = order.name, order.version, order.domain
        if key in self._begun:
            return
        self._begun.add(key)
        try:
            async with self._turn:
                phase, copied, detail = await self._driver.copy(order)
        except SiteRefused as error:
            phase, copied, detail = CopyPhase.FAILED, 0, str(error)
        except SiteUnavailable:  # the daemon orders again
            return
        finally:
            self._begun.discard(key)
        status = CopyStatus(
            name=order.name,
            version=order.version,
            domain=order.domain,
            digest=order.digest,
            phase=phase,
            copied_bytes=copied,
            detail=detail[:300],
        )
        self._tell(status)
