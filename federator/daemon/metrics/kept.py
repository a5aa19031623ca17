"""Keeps what is costly to count for a hundred times as long as it took.

So it costs the loop a hundredth of its time at most, however often it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

KEEP: Final = 100.0  # times as long as it took
LEAST_S: Final = 1.0

T = TypeVar("T")


class Kept(Generic[T]):
    """A view that is made anew now and then.

    Args:
        look: makes it.
        clock: seconds that never run backwards.
    """

    def __init__(self, look: Callable[[], T], clock: Callable[[], float]) -> None:
        self._look, self._clock = look, clock
        self._last: tuple[T, float] | None = None  # and how long it is kept

    def now(self) -> T:
        """The view as things are, or were not long ago."""
        began_s = self._clock()
        if self._last is not None and began_s < self._last[1]:
            return self._last[0]
        found = self._look()
        now_s = self._clock()
        self._last = found, now_s + max(LEAST_S, KEEP * (now_s - began_s))
        return found
