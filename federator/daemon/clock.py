"""Tells the daemon's time: it goes on from the log, and never stands still or runs backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

CLOCKS_DIFFER_S: Final = 3600.0  # of two hosts, or by a correction, at most

log = structlog.get_logger()


class DaemonClock:
    """Unix time that never stands still or runs backwards, even if the wall clock is set.

    Args:
        latest_s: of the log's last event. Time goes on from there, should this host's clock be
            behind; if it is far ahead some clock was wrong for a while, and it is not believed.
        wall: Unix time; it may be set, also backwards.
        monotonic: seconds since whenever.
    """

    def __init__(
        self, latest_s: float, wall: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        behind_s = latest_s - wall()
        self._now_s = latest_s if behind_s <= CLOCKS_DIFFER_S else 0.0
        if behind_s > CLOCKS_DIFFER_S:
            log.warning("clock_behind_log", behind_s=round(behind_s))
        self._monotonic_s = monotonic()

    def __call__(self) -> float:
        """Now."""
        monotonic_s = self._monotonic()
        elapsed_s = monotonic_s - self._monotonic_s
        self._monotonic_s = monotonic_s
        self._now_s = max(self._now_s + elapsed_s, self._wall())
        return self._now_s
