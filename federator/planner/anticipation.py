"""Chooses who may use idle GPUs now without making their owners wait for them later.

Pools ("queues" in the paper) own GPUs and have waiting jobs. A job starts either **dedicated**, in
order of submission inside its pool's own GPUs; or **spare**, out of order, on what nobody is
expected to need before it ends. Spare jobs do not count against their pool's own GPUs, so its
dedicated ones start as if the spare ones had never been there, as far as forecasts hold.

Pure: the caller says what came, what ended, what is idle and what is forecast.

Source:
    SIA sec. 5.3, Figures 7 and 8. "Next job that fits its quota" is read as: the first one by
    submission, if the pool's GPUs that no dedicated job holds, and all that are idle, suffice for
    it. Out of order, the earliest that fits is taken. Where the paper says CurrentAllocation it is
    dedicated and spare jobs together. Ties go to the pool named first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

WINDOWS_S: Final = (300, 3600, 43_200)
"""How far ahead is looked, shortest first: 5 minutes, 1 hour, 12 hours (SIA sec. 5.4)."""

NewLoad = Callable[[int], Sequence[int]]
"""GPUs that jobs will bring within window k, for each pool."""


def length_class(duration_s: float, windows_s: Sequence[int] = WINDOWS_S) -> int:
    """The first window that a job fits in; ``len(windows_s)`` if it is longer than all."""
    return bisect_left(windows_s, duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStart:
    """A job that starts now, under the number by which it was added."""

    number: int
    gpus: int
    pool: int
    dedicated: bool


class PoolQueue:
    """One pool: its GPUs, what its jobs hold, and who waits.

    Waiting jobs are kept by length and GPUs, each group in order, so that the first that fits is
    found without a look at all of them.

    Args:
        quota_gpus: of its own, at least 1.
    """

    __slots__ = ("_groups", "dedicated_gpus", "pending_gpus", "quota_gpus", "spare_gpus")

    def __init__(self, quota_gpus: int) -> None:
        self.quota_gpus = quota_gpus
        self.dedicated_gpus = 0
        self.spare_gpus = 0
        self.pending_gpus = 0
        self._groups: dict[tuple[int, int], deque[int]] = {}  # by length class and GPUs

    @property
    def waits(self) -> bool:
        return bool(self._groups)

    @property
    def unused_gpus(self) -> int:
        """Of its own, what no dedicated job holds."""
        return self.quota_gpus - self.dedicated_gpus

    @property
    def share(self) -> float:
        """The part that its jobs hold of what it owns."""
        return (self.dedicated_gpus + self.spare_gpus) / self.quota_gpus

    def add(self, number: int, gpus: int, length: int) -> None:
        """A job comes.

        Args:
            number: of the job, larger than that of any job of the pool before it.
            gpus: that it asks for.
            length: its predicted ``length_class``.
        """
        self._groups.setdefault((length, gpus), deque()).append(number)
        self.pending_gpus += gpus

    def first(
        self, max_gpus: float = inf, max_length: float = inf
    ) -> tuple[int, tuple[int, int]] | None:
        """The earliest job that is within both bounds, and its group: length and GPUs."""
        if not self._groups:
            return None
        found = [
            (jobs[0], group)
            for group, jobs in self._groups.items()
            if group[0] <= max_length and group[1] <= max_gpus
        ]
        return min(found) if found else None

    def start(self, group: tuple[int, int], dedicated: bool) -> None:
        """The earliest job of a group starts."""
        jobs, gpus = self._groups[group], group[1]
        jobs.popleft()
        if not jobs:
            del self._groups[group]
        self.pending_gpus -= gpus
        if dedicated:
            self.dedicated_gpus += gpus
        else:
            self.spare_gpus += gpus

    def end(self, gpus: int, dedicated: bool) -> None:
        """A running job ends."""
        if dedicated:
            self.dedicated_gpus -= gpus
        else:
            self.spare_gpus -= gpus


def plan_starts(
    queues: Sequence[PoolQueue],
    idle_gpus: int,
    new_load: NewLoad,
    windows: int = len(WINDOWS_S),
) -> list[PlannedStart]:
    """Start whoever may start now.

    Args:
        queues: all pools; they are told of the starts.
        idle_gpus: of all pools together.
        new_load: asked only for windows in which a waiting job would fit.
        windows: how many there are.

    Returns:
        The starts in the order in which they were decided.
    """
    if not any(queue.waits for queue in queues):
        return []
    starts = list(_dedicated(queues, idle_gpus))
    idle_gpus -= sum(start.gpus for start in starts)
    starts.extend(_spare(queues, idle_gpus, new_load, windows))
    return starts


def _dedicated(queues: Sequence[PoolQueue], idle_gpus: int) -> Iterator[PlannedStart]:
    """In order inside each pool, the pool with the least share first, until none can."""
    while True:
        ready = []
        for pool, queue in enumerate(queues):
            head = queue.first()
            if head is not None and head[1][1] <= min(queue.unused_gpus, idle_gpus):
                ready.append((queue.share, pool, *head))
        if not ready:
            return
        _, pool, number, group = min(ready)
        queues[pool].start(group, dedicated=True)
        idle_gpus -= group[1]
        yield PlannedStart(number=number, gpus=group[1], pool=pool, dedicated=True)


def _spare(
    queues: Sequence[PoolQueue], idle_gpus: int, new_load: NewLoad, windows: int
) -> Iterator[PlannedStart]:
    """Out of order, the shortest class first, on what nobody is expected to need meanwhile."""
    for window in range(windows):
        while any(queue.first(idle_gpus, window) for queue in queues):
            usable = idle_gpus - _reserved(queues, new_load(window))
            ready = [
                (queue.share, pool, *found)
                for pool, queue in enumerate(queues)
                if (found := queue.first(usable, window)) is not None
            ]
            if not ready:
                break
            _, pool, number, group = min(ready)
            queues[pool].start(group, dedicated=False)
            idle_gpus -= group[1]
            yield PlannedStart(number=number, gpus=group[1], pool=pool, dedicated=False)


def _reserved(queues: Sequence[PoolQueue], new_load: Sequence[int]) -> int:
    """The owners' own future demand. All of it from now on, so the sum is the maximum."""
    return sum(
        min(queue.pending_gpus + load, queue.unused_gpus)
        for queue, load in zip(queues, new_load, strict=True)
    )
