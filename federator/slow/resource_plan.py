"""How many GPUs are spoken for at each instant to come? A plan of amounts over time.

The logical resource-time plan of SIA sec. 5.1 as a step function: amounts change only at the
instants that are in it. ``reserve`` is the paper's Reserve and ``most`` its MaxReservation. Instead
of clearing all reservations and making them again at every event (ClearReservations), ``release``
takes back one; a plan whose reservations do not depend on the event comes out the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

_FORGET_AFTER: Final = 4096  # steps of the past; to forget copies what is to come


class ResourcePlan:
    """Reserved amounts from the present on. Instants are whole seconds; intervals are half-open."""

    __slots__ = ("_at_s", "_reserved")

    def __init__(self) -> None:
        self._at_s = [-(2**62)]  # each step's begin; it lasts until the next
        self._reserved = [0]

    def reserve(self, start_s: int, end_s: int, gpus: int) -> None:
        """Speak for so many GPUs over [start, end); nothing if it is empty."""
        if start_s >= end_s or not gpus:
            return
        first, last, reserved = self._step(start_s), self._step(end_s), self._reserved
        for k in range(first, last):
            reserved[k] += gpus

    def release(self, start_s: int, end_s: int, gpus: int) -> None:
        """Take back what was reserved."""
        self.reserve(start_s, end_s, -gpus)

    def most(self, start_s: int, end_s: int) -> int:
        """The largest amount reserved at any instant of [start, end); 0 if it is empty."""
        if start_s >= end_s:
            return 0
        first = bisect_right(self._at_s, start_s) - 1
        return max(self._reserved[first : bisect_left(self._at_s, end_s)])

    def forget(self, before_s: int) -> None:
        """Nothing before this instant will be asked for again."""
        past = bisect_right(self._at_s, before_s) - 1
        if past > _FORGET_AFTER:
            del self._at_s[:past], self._reserved[:past]

    def _step(self, at_s: int) -> int:
        """The step that begins at this instant; made if there is none."""
        k = bisect_left(self._at_s, at_s)
        if k == len(self._at_s) or self._at_s[k] != at_s:
            self._at_s.insert(k, at_s)
            self._reserved.insert(k, self._reserved[k - 1])
        return k
