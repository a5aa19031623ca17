"""Delays the next pass, so that what comes in is taken and acknowledged meanwhile.

A pass looks at every workload that waits, on every change: while thousands are submitted, passes
would take all of the daemon's time, and each submission would wait for one.
"""

from __future__ import annotations

from typing import Final

_REST: Final = 9.0  # as many times as long as the turn took
_MOST_REST_S: Final = 2.0


class PassThrottle:
    """Keeps the share of time that wakes, and with them passes, may take."""

    def __init__(self) -> None:
        self.rests_until_s = 0.0  # Unix time; no wake is served before
        self._woke_at_s = 0.0

    def turn_took(self, from_s: float, to_s: float, *, woke: bool) -> None:
        """A turn ended; both in Unix time. ``woke``: it served a wake.

        While turns follow each other closely the rest goes on, but wakes are served every
        ``_MOST_REST_S`` all the same.
        """
        if woke:
            self._woke_at_s = to_s
        until_s = min(to_s + _REST * (to_s - from_s), self._woke_at_s + _MOST_REST_S)
        self.rests_until_s = max(self.rests_until_s, until_s)
