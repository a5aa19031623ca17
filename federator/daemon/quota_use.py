"""Looks once an hour which quotas are hardly used, where the configuration lends those."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from federator.config_tenants import lendable_quotas
from federator.daemon.own_config import OwnConfig
from federator.errors import HistoryError, InvalidRequest
from federator.history.quota_use import unused_quotas
from federator.history.service import JobHistory
from federator.model.message import QuotasMeasured

FIRST_S: Final = 330.0  # not with the doctor's look
LOOK_EVERY_S: Final = 3600.0

log = structlog.get_logger()


class QuotaUse:
    """Measures the use of quotas for the core, beside the daemon's turns.

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
        observe: Callable[[QuotasMeasured], None],
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
        """Measure now; what cannot be read is not measured."""
        config = self._own.now
        quotas = lendable_quotas(config.tenants, config.policy.unused_quota.mode)
        if not quotas:
            return
        rules = config.policy.unused_quota.rules
        read = partial(unused_quotas, quotas=quotas, rules=rules, now_s=self._clock())
        try:
            unused = await self._history.read(read)
        except (HistoryError, InvalidRequest):  # away, which it says itself; or too much
            return
        except Exception:  # a fault of ours must not end the looks
            log.exception("quota_use_fault")
            return
        if unused is not None:
            self._observe(QuotasMeasured(unused=unused))
