"""Looks now and then for what ``federator doctor`` would find, for metrics and alerts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from federator.config_tenants import gpu_quotas
from federator.daemon.own_config import OwnConfig
from federator.errors import HistoryError, InvalidRequest
from federator.history import doctor_answer
from federator.history.service import JobHistory
from federator.usage.diagnosis import OF_JOBS, OF_QUOTAS
from federator.wire.usage_messages import DoctorCall, DoctorReply

FIRST_S: Final = 300.0
LOOK_EVERY_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_DAYS: Final[Mapping[bool, int]] = {False: 7, True: 28}
"""The days that are judged: of jobs, and of quotas; as the command's."""

log = structlog.get_logger()


class DoctorLook:
    """Counts findings by kind, beside the daemon's turns.

    Args:
        history: is read, by its own thread.
        own: the daemon's configuration, which a reload may change.
        clock: Unix time.

    Attributes:
        findings: by kind, of the last look that could be made; 0 until there was one.
    """

    def __init__(self, history: JobHistory, own: OwnConfig, clock: Callable[[], float]) -> None:
        self._history, self._own, self._clock = history, own, clock
        self.findings: dict[str, int] = dict.fromkeys((*OF_JOBS, *OF_QUOTAS), 0)
        self._now = asyncio.Event()

    async def run(self) -> None:
        """Look for ever."""
        await self._wait(FIRST_S)
        while True:
            await self.look()
            await self._wait(LOOK_EVERY_S)

    def look_now(self) -> None:
        """Look without waiting: the quotas may be others, or an admin has mended something."""
        self._now.set()

    async def _wait(self, span_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(span_s):
                await self._now.wait()
        self._now.clear()

    async def look(self) -> None:
        """Count what is found now; of what cannot be read the last counts stay."""
        for quotas, kinds in ((False, OF_JOBS), (True, OF_QUOTAS)):
            try:
                reply = await self._found(quotas)
            except (HistoryError, InvalidRequest):  # away, which it says itself; or too much
                continue
            except Exception:  # a fault of ours must not end the looks
                log.exception("doctor_fault")
                continue
            found = Counter(made.kind for made in reply.findings)
            self.findings |= {kind: found[kind] for kind in kinds}

    async def _found(self, quotas: bool) -> DoctorReply:
        now_s, config = self._clock(), self._own.now
        call = DoctorCall(start_s=now_s - _DAYS[quotas] * _DAY_S, end_s=now_s, quotas=quotas)
        return await self._history.read(
            partial(
                doctor_answer.answer,
                call=call,
                viewer=None,
                federation=config.federation,
                quotas=gpu_quotas(config.tenants),
            )
        )
