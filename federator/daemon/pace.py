"""When may the next pass begin, so that what comes in is taken and acknowledged meanwhile?

A pass looks at every workload that waits, on every change: while thousands are submitted, passes
would take all of the daemon's time, and each submission would wait for one.
"""

from __future__ import annotations

from typing import Final

_REST: Final = 9.0  # as many times as long as the turn took
_MOST_REST_S: Final = 2.0


class Pace:
    """Keeps the share of time that wakes, and with them passes, may take."""

    def __init__(self) -> None:
        self.rests_until_s = 0.0  # Unix time; no wake is served before

    def turn_took(self, from_s: float, to_s: float) -> None:
        """A turn ended; both in Unix time."""
        rest_s = min(_REST * (to_s - from_s), _MOST_REST_S)
        self.rests_until_s = max(self.rests_until_s, to_s + rest_s)
