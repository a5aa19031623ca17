"""Tells a planner's time: that of the log goes on, where the host's clock is behind it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf


class PlannerClock:
    """Unix time, at least that of the log's last record and what has passed since it was read.

    The daemon's time goes on from the log, also where the wall clock is set back. By that clock
    alone the plans of a planner would have expired before the daemon hears of them.

    Args:
        wall: Unix time; it may be set, also backwards.
        monotonic: seconds since whenever.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._latest_s, self._ahead_s = 0.0, -inf  # of the log, and of ``monotonic``

    def hear(self, latest_s: float) -> None:
        """Take in the time of the log's last record."""
        if latest_s != self._latest_s:
            self._latest_s = latest_s
            self._ahead_s = max(self._ahead_s, latest_s - self._monotonic())

    def __call__(self) -> float:
        """Now."""
        return max(self._wall(), self._monotonic() + self._ahead_s)
