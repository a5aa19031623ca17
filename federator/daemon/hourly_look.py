"""Asks the history a question once an hour, beside the daemon's turns, and tells the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import structlog
from sqlalchemy import Engine

from federator.errors import HistoryError, InvalidRequest
from federator.history.service import JobHistory

LOOK_EVERY_S: Final = 3600.0

Answer = TypeVar("Answer")

log = structlog.get_logger()


class HourlyLook(Generic[Answer]):
    """A question that is asked again and again.

    Args:
        about: in the daemon's log, what it asks for.
        first_s: so long after its beginning it asks first.
        history: is read, by its own thread.
        question: what is to be read now; None: nothing.
        tell: takes what was read.
    """

    def __init__(
        self,
        about: str,
        first_s: float,
        history: JobHistory,
        question: Callable[[], Callable[[Engine], Answer] | None],
        tell: Callable[[Answer], None],
    ) -> None:
        self.name: Final = f"{type(self).__name__} {about}"
        self._about, self._first_s = about, first_s
        self._history, self._question, self._tell = history, question, tell

    async def run(self) -> None:
        """Look for ever."""
        await asyncio.sleep(self._first_s)
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Ask now; what cannot be read is not told, and what was known stays."""
        try:
            read = self._question()
            if read is None:
                return
            try:
                answer = await self._history.read(read)
            except (HistoryError, InvalidRequest):  # away, which it says itself; or too much
                return
            self._tell(answer)
        except Exception:  # a fault of ours must not end the looks
            log.exception("hourly_look_fault", about=self._about)
