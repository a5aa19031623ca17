"""A site's queue by the book: each waiting job planned anew at each event, by trying every step.

What ``federator.sim.slurm_queue`` must give, in the fewest words that say it, and far too slow for
a site's record. Only where a job is placed on given nodes is not done again here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

import numpy as np

from federator.model.site import Node
from federator.sim.backfill_plan import (
    FAR_RESOLUTION_S,
    NEAR_S,
    RESOLUTION_S,
    SHORTEST_S,
    WINDOW_S,
    NodeRoom,
    Taken,
)
from federator.sim.slurm_queue import MOST_PLANNED, QueuedJob


class PlainQueue:
    """The jobs of a site, and who of them runs."""

    def __init__(
        self, jobs: Sequence[QueuedJob], nodes: Sequence[Node], turnaround_s: float
    ) -> None:
        self.jobs, self.turnaround_s = jobs, turnaround_s
        self.room = NodeRoom(nodes)
        self.running: dict[int, tuple[float, Taken]] = {}  # until when they hold which GPUs
        self.starts_s: list[float | None] = [None] * len(jobs)

    def run(self) -> list[float | None]:
        now_s = -inf
        while (now_s := self._next_s(now_s)) < inf:
            for row in [row for row, (until_s, _) in self.running.items() if until_s <= now_s]:
                for node, gpus in self.running.pop(row)[1]:
                    self.room.free[node] += gpus
            steps = _Steps(self, now_s)
            for row in self._waiting(now_s)[:MOST_PLANNED]:
                taken = steps.planned(self.jobs[row])
                if taken is not None:
                    self._start(row, taken, now_s)
        return self.starts_s

    def _next_s(self, now_s: float) -> float:
        waiting = [job for job, at in zip(self.jobs, self.starts_s, strict=True) if at is None]
        times_s = [time_s for job in waiting for time_s in (job.came_s, job.leaves_s)]
        times_s += [until_s for until_s, _ in self.running.values()]
        return min((time_s for time_s in times_s if time_s > now_s), default=inf)

    def _waiting(self, now_s: float) -> list[int]:
        rows = [
            row
            for row, job in enumerate(self.jobs)
            if job.came_s <= now_s < job.leaves_s and self.starts_s[row] is None
        ]
        return sorted(rows, key=lambda row: self.jobs[row].submitted_s)

    def _start(self, row: int, taken: Taken, now_s: float) -> None:
        job = self.jobs[row]
        self.starts_s[row] = now_s
        until_s = min(now_s + job.duration_s, job.leaves_s) + self.turnaround_s
        self.running[row] = (until_s, taken)
        for node, gpus in taken:
            self.room.free[node] -= gpus


class _Steps:
    """What is free from step to step, seen from one moment."""

    def __init__(self, queue: PlainQueue, now_s: float) -> None:
        self.room, self.now_s = queue.room, now_s
        self.times_s, self.free = [now_s], [queue.room.free.copy()]
        for row, (_, taken) in queue.running.items():
            end_s = (queue.starts_s[row] or 0.0) + queue.jobs[row].limit_s
            end_s = max(end_s, now_s + SHORTEST_S)
            if end_s <= now_s + WINDOW_S:
                first = self._step_at(self._rounded(end_s))
                for free in self.free[first:]:
                    for node, gpus in taken:
                        free[node] += gpus

    def planned(self, job: QueuedJob) -> Taken | None:
        """The nodes of a job, if it starts now; it keeps its room from all that come after it."""
        limit_s = max(job.limit_s, SHORTEST_S)
        for row, at_s in enumerate(self.times_s):
            last = row + 1
            while last < len(self.times_s) and self.times_s[last] < at_s + limit_s:
                last += 1
            taken = self.room.place(np.min(self.free[row:last], axis=0), job.parts)
            if taken is not None:
                self._keep(row, at_s + limit_s, taken)
                return taken if row == 0 else None
        return None

    def _keep(self, row: int, until_s: float, taken: Taken) -> None:
        until_s = self._rounded(until_s)
        if until_s <= self.now_s + WINDOW_S:
            self._step_at(until_s)
        for at_s, free in zip(self.times_s[row:], self.free[row:], strict=True):
            if at_s < until_s:
                for node, gpus in taken:
                    free[node] -= gpus

    def _step_at(self, at_s: float) -> int:
        """The step at a time; made if there is none."""
        if at_s not in self.times_s:
            place = sum(each < at_s for each in self.times_s)
            self.times_s.insert(place, at_s)
            self.free.insert(place, self.free[place - 1].copy())
        return self.times_s.index(at_s)

    def _rounded(self, at_s: float) -> float:
        grain_s = RESOLUTION_S if at_s <= self.now_s + NEAR_S else FAR_RESOLUTION_S
        return ceil(at_s / grain_s) * grain_s if at_s < inf else inf
