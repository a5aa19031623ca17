"""Replays the queue of one site as its Slurm serves it: by submission, with backfill.

Slurm's backfill plans every waiting job in its order, each at the earliest time at which it finds
room beside those planned before it, by time limits; a job starts if that time is now. So who starts
early delays nobody ahead of it. Bounds are Slurm's defaults (bf_window, bf_resolution,
bf_max_job_test), but that times far ahead are coarser. Nothing is preempted.

Source: slurm.conf(5), SchedulerParameters; https://slurm.schedmd.com/sched_config.html.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Final

from federator.model.site import Node
from federator.model.workload import Job
from federator.sim.backfill_plan import BackfillPlan, NodeRoom, NodesHeld, Taken

MOST_PLANNED: Final = 500  # of those that wait, at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job, or the components of a het job, which start together. Times in seconds.

    Attributes:
        submitted_s: who was submitted sooner goes first; ties: in the order given.
        came_s: when it could first start.
        leaves_s: when it leaves the queue, or ends if it has started; ``inf``: it stays.
        limit_s: its time limit; ``inf``: none.
        duration_s: how long it runs.
        parts: what its components ask for: GPUs, their types and nodes count.
    """

    submitted_s: float
    came_s: float
    leaves_s: float = inf
    limit_s: float
    duration_s: float
    parts: tuple[Job, ...]


class _Queue:
    """Who waits and who runs, from event to event."""

    def __init__(
        self, jobs: Sequence[QueuedJob], nodes: Sequence[Node], turnaround_s: float
    ) -> None:
        self._jobs, self._turnaround_s = jobs, turnaround_s
        self._room = NodeRoom(nodes)
        shapes: dict[tuple[Job, ...], int] = {}
        self._shape = [shapes.setdefault(job.parts, len(shapes)) for job in jobs]
        self._shapes = tuple(shapes)
        self._too_large: set[int] = set()  # shapes for which too little is free
        self._rank = {row: rank for rank, row in enumerate(_order(jobs))}
        self._waiting: list[int] = []  # by rank
        self._leaving: list[tuple[float, int]] = []  # a heap by time; some have started
        self._running: list[tuple[float, int, Taken]] = []  # a heap by end
        self._held = NodesHeld.of(0, 0.0, [])
        self.starts_s: list[float | None] = [None] * len(jobs)

    def run(self) -> None:
        coming = sorted(range(len(self._jobs)), key=lambda row: self._jobs[row].came_s)
        coming.reverse()
        while (now_s := self._next_s(coming)) < inf:
            self._end(now_s)
            while coming and self._jobs[coming[-1]].came_s <= now_s:
                row = coming.pop()
                insort(self._waiting, row, key=self._rank.__getitem__)
                if self._jobs[row].leaves_s < inf:
                    heappush(self._leaving, (self._jobs[row].leaves_s, row))
            while self._leaving and self._leaving[0][0] <= now_s:
                self._leave(heappop(self._leaving)[1])
            self._pass(now_s)

    def _next_s(self, coming: Sequence[int]) -> float:
        """When a job comes, ends or leaves the queue next; ``inf``: never."""
        while self._leaving and self.starts_s[self._leaving[0][1]] is not None:
            heappop(self._leaving)
        return min(
            self._jobs[coming[-1]].came_s if coming else inf,
            self._running[0][0] if self._running else inf,
            self._leaving[0][0] if self._leaving else inf,
        )

    def _end(self, now_s: float) -> None:
        ended = []
        while self._running and self._running[0][0] <= now_s:
            _, row, taken = heappop(self._running)
            ended.append(row)
            for node, gpus in taken:
                self._room.free[node] += gpus
        if ended:
            self._held = self._held.without(ended)
            self._too_large.clear()

    def _leave(self, row: int) -> None:
        if self.starts_s[row] is None:
            rank_of = self._rank.__getitem__
            del self._waiting[bisect_left(self._waiting, rank_of(row), key=rank_of)]

    def _pass(self, now_s: float) -> None:
        """Start who may; jobs behind the last that may start now need not be planned."""
        last = self._last_that_fits()
        if last < 0:
            return
        plan = BackfillPlan(self._room, self._shapes, now_s, self._held)
        started = []
        for place, row in enumerate(self._waiting):
            while last >= place and not plan.could_start(*self._asked(self._waiting[last])):
                last -= 1
            if last < place:
                break
            taken = plan.start(*self._asked(row))
            if taken is not None:
                started.append((row, taken))
        for row, taken in started:
            self._start(row, taken, now_s)
        if started:
            self._waiting = [row for row in self._waiting if self.starts_s[row] is None]

    def _asked(self, row: int) -> tuple[int, float]:
        return self._shape[row], self._jobs[row].limit_s

    def _start(self, row: int, taken: Taken, now_s: float) -> None:
        for node, gpus in taken:
            self._room.free[node] -= gpus
        self.starts_s[row] = now_s
        job = self._jobs[row]
        self._held = self._held.beside(NodesHeld.of(row, now_s + job.limit_s, taken))
        over_s = min(now_s + job.duration_s, job.leaves_s) + self._turnaround_s
        heappush(self._running, (over_s, row, taken))

    def _last_that_fits(self) -> int:
        """The place of the last job that may find room now; -1: none.

        One part finds the most room if nobody is ahead. A het job may find room that others leave
        (``NodeRoom.place``), so that it has to be planned.
        """
        for place in range(min(len(self._waiting), MOST_PLANNED) - 1, -1, -1):
            shape = self._shape[self._waiting[place]]
            if shape in self._too_large:
                continue
            parts = self._shapes[shape]
            if len(parts) > 1 or self._room.place(self._room.free, parts) is not None:
                return place
            self._too_large.add(shape)
        return -1


def _order(jobs: Sequence[QueuedJob]) -> list[int]:
    return sorted(range(len(jobs)), key=lambda row: jobs[row].submitted_s)


def slurm_starts_s(
    jobs: Sequence[QueuedJob], nodes: Sequence[Node], turnaround_s: float = 0.0
) -> list[float | None]:
    """When each job would start at a site that has these nodes and nobody else's jobs.

    Args:
        jobs: of the site.
        nodes: of the site, those with GPUs, all of them up.
        turnaround_s: from the end of a job until another has its GPUs.

    Returns:
        For each job the time of its start, on the clock of the jobs; None: never.
    """
    queue = _Queue(jobs, nodes, turnaround_s)
    queue.run()
    return queue.starts_s
