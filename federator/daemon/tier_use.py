"""Looks once an hour how much GPU time a productive hour takes in each tier, if prices count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from federator.daemon.own_config import OwnConfig
from federator.errors import HistoryError, InvalidRequest
from federator.history.service import JobHistory
from federator.history.tier_use import tier_factors
from federator.model.message import TiersMeasured
from federator.model.workload import SiteName

FIRST_S: Final = 30.0
LOOK_EVERY_S: Final = 3600.0

log = structlog.get_logger()


class TierUse:
    """Measures tiers for the core, beside the daemon's turns.

    Args:
        history: is read, by its own thread.
        own: the daemon's configuration, which a reload may change.
        clock: Unix time.
        observe: takes what was measured.
    """

    def __init__(
        self,
        history: JobHistory,
        own: OwnConfig,
        clock: Callable[[], float],
        observe: Callable[[TiersMeasured], None],
    ) -> None:
        self._history, self._own, self._clock = history, own, clock
        self._observe = observe

    async def run(self) -> None:
        """Look for ever."""
        await asyncio.sleep(FIRST_S)
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Measure now; what cannot be read is not measured, and what was known stays."""
        config = self._own.now
        if not (config.policy.price_weight and config.prices.rules):
            return
        read = partial(tier_factors, prices=config.prices.price_list(), now_s=self._clock())
        try:
            factors = await self._history.read(read)
        except (HistoryError, InvalidRequest):  # away, which it says itself; or too much
            return
        except Exception:  # a fault of ours must not end the looks
            log.exception("tier_use_fault")
            return
        by_site = {(SiteName(site), tier): factor for (site, tier), factor in factors.items()}
        self._observe(TiersMeasured(factors=by_site))
