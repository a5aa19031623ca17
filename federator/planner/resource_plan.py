"""Plans amounts over time: how many GPUs are taken at each instant to come.

The logical resource-time plan of SIA sec. 5.1 as a step function: amounts change only at the
instants that are in it. ``reserve`` is the paper's Reserve. Its MaxReservation is asked the other
way round, once for jobs of one size instead of for each: until when does it stay within an amount
(``first_above``)? Instead of clearing all reservations and making them again at every event
(ClearReservations), ``release`` takes back one; a plan whose reservations do not depend on the
event comes out the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

_FIRST_LOOK: Final = 16  # steps; then twice as many each time
_FORGET_AFTER: Final = 4096  # steps of the past; to forget copies what is to come


class ResourcePlan:
    """Reserved amounts from the present on. Instants are whole seconds; intervals are half-open.

    Args:
        reserved: start, end and GPUs of what is reserved at once; none is empty.
    """

    __slots__ = ("_at_s", "_reserved")

    def __init__(self, reserved: Iterable[tuple[int, int, int]] = ()) -> None:
        changes: dict[int, int] = {-(2**62): 0}
        for start_s, end_s, gpus in reserved:
            changes[start_s] = changes.get(start_s, 0) + gpus
            changes[end_s] = changes.get(end_s, 0) - gpus
        self._at_s = sorted(changes)  # each step's begin; it lasts until the next
        self._reserved = list(accumulate(changes[at_s] for at_s in self._at_s))

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

    def first_above(self, start_s: int, until_s: int, gpus: int) -> int:
        """The first instant of [start, until) at which more is reserved; ``until_s`` if none."""
        if start_s >= until_s:
            return until_s
        at_s, reserved = self._at_s, self._reserved
        k, last, size = bisect_right(at_s, start_s) - 1, bisect_left(at_s, until_s), _FIRST_LOOK
        while k < last:
            some = reserved[k : min(k + size, last)]
            if max(some) > gpus:
                return max(start_s, at_s[next(n for n, r in enumerate(some, k) if r > gpus)])
            k += len(some)
            size *= 2
        return until_s

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
