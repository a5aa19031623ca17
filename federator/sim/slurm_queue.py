"""Replays the queue of one site as its Slurm serves it: by submission, with backfill.

Slurm's backfill plans every waiting job in its order, each at the earliest time at which it finds
room beside those planned before it, by time limits; a job starts if that time is now. So who starts
early delays nobody ahead of it. Bounds are Slurm's defaults (bf_window, bf_resolution,
bf_max_job_test), but that times far ahead are coarser. Nothing is preempted.

Source: slurm.conf(5), SchedulerParameters; https://slurm.schedmd.com/sched_config.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf, isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from federator.model.site import Node
from federator.model.workload import Job

WINDOW_S: Final = 86_400.0  # nobody is planned later
RESOLUTION_S: Final = 60.0  # expected ends are rounded up to it
NEAR_S: Final = 7200.0  # and those that are further ahead
FAR_RESOLUTION_S: Final = 600.0  # to this
SHORTEST_S: Final = 1.0  # that a job is planned for
MOST_PLANNED: Final = 500  # of those that wait, at a time

Taken = list[tuple[int, int]]  # node and GPUs of it


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


class _Room:
    """The nodes of a site, and what of them is free; rows and GPUs of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.free = np.array([node.gpus for node in nodes], dtype=np.int32)
        self._types = [node.gpu_type for node in nodes]
        self._masks: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    def of_types(self, types: tuple[str, ...]) -> NDArray[np.bool_]:
        """Which nodes have one of these types of GPU; all of them if none is named."""
        found = self._masks.get(types)
        if found is None:
            found = np.array([not types or each in types for each in self._types], dtype=np.bool_)
            self._masks[types] = found
        return found

    def place(self, free: NDArray[np.int32], parts: Sequence[Job]) -> Taken | None:
        """Nodes for all parts where so much is free: the fullest that fit; None: they do not."""
        left = free
        taken: Taken = []
        for part in parts:
            found = self._place_one(left, part)
            if found is None:
                return None
            taken += found
            if len(parts) > 1:
                left = left.copy()
                for node, gpus in found:
                    left[node] -= gpus
        return taken

    def _place_one(self, free: NDArray[np.int32], part: Job) -> Taken | None:
        allowed = self.of_types(part.gpu_types)
        if part.nodes is not None:
            each = part.gpus_per_node
            fitting = np.flatnonzero(allowed & (free >= each))
            if len(fitting) < part.nodes:
                return None
            fullest = fitting[np.argsort(free[fitting], kind="stable")[: part.nodes]]
            return [(int(node), each) for node in fullest]
        return self._spread(free, np.flatnonzero(allowed), part.gpus)

    def _spread(self, free: NDArray[np.int32], nodes: NDArray[np.intp], gpus: int) -> Taken | None:
        """On one node, the fullest that fits; else on the freest, as few as hold them."""
        fitting = nodes[free[nodes] >= gpus]
        if len(fitting):
            return [(int(fitting[np.argmin(free[fitting])]), gpus)]
        taken: Taken = []
        for node in nodes[np.argsort(-free[nodes], kind="stable")]:
            part = min(int(free[node]), gpus)
            if part <= 0:
                return None
            taken.append((int(node), part))
            gpus -= part
            if not gpus:
                return taken
        return None


class _Plan:
    """What will be free, from step to step, as time limits and jobs planned before say."""

    def __init__(self, room: _Room, now_s: float, endings: Sequence[tuple[float, Taken]]) -> None:
        self._room = room
        self._now_s = now_s
        self._soonest: dict[tuple[Job, ...], list[tuple[float, float]]] = {}
        steps: dict[float, Taken] = {}
        for end_s, taken in endings:
            at_s = max(end_s, now_s + SHORTEST_S)
            if at_s <= now_s + WINDOW_S:
                steps.setdefault(self._rounded(at_s), []).extend(taken)
        times_s = sorted(steps)
        self._times_s = np.array([now_s, *times_s])
        self._free = np.zeros((len(self._times_s), len(room.free)), dtype=np.int32)
        self._free[0] = room.free
        for row, at_s in enumerate(times_s, start=1):
            for node, gpus in steps[at_s]:
                self._free[row, node] += gpus
        np.cumsum(self._free, axis=0, out=self._free)

    def start(self, job: QueuedJob) -> Taken | None:
        """Plan a job; its nodes if it starts now. One for which there is no room is not planned."""
        limit_s = max(job.limit_s, SHORTEST_S)
        known = self._soonest.setdefault(job.parts, [])
        soonest_s = max((at_s for shorter_s, at_s in known if shorter_s <= limit_s), default=0.0)
        first = int(np.searchsorted(self._times_s, soonest_s, side="left"))
        until_s = self._times_s[first:] + limit_s
        ends = np.searchsorted(self._times_s, until_s, side="left")
        for row in self._candidates(job.parts, first, ends):
            taken = self._room.place(self._free[row : ends[row - first]].min(axis=0), job.parts)
            if taken is not None:
                known.append((limit_s, float(self._times_s[row])))
                self._take(row, float(self._times_s[row] + limit_s), taken)
                return taken if row == 0 else None
        known.append((limit_s, inf))
        return None

    def _candidates(
        self, parts: Sequence[Job], first: int, ends: NDArray[np.intp]
    ) -> Iterator[int]:
        """Steps at which there may be room, the first one first; of even jobs: there is.

        Args:
            parts: of a job.
            first: it finds no room before this step.
            ends: of each step from there on, the first that it would not hold any more.
        """
        free = self._free[first:]
        if len(parts) > 1 or parts[0].nodes is None:
            wanted = sum(part.total_gpus for part in parts)
            rows = free.sum(axis=1) >= wanted
        else:
            fits = self._room.of_types(parts[0].gpu_types) & (free >= parts[0].gpus_per_node)
            steps = np.arange(len(fits))[:, None]
            lacks = np.where(fits, len(fits), steps)  # by node, the step that has too little
            first_lack = np.minimum.accumulate(lacks[::-1], axis=0)[::-1]
            rows = (first_lack >= ends[:, None] - first).sum(axis=1) >= parts[0].nodes
        yield from (first + np.flatnonzero(rows)).tolist()

    def _take(self, row: int, until_s: float, taken: Taken) -> None:
        end = len(self._times_s)
        if isfinite(until_s):
            until_s = self._rounded(until_s)
            end = int(np.searchsorted(self._times_s, until_s, side="left"))
            if until_s <= self._now_s + WINDOW_S and (
                end == len(self._times_s) or self._times_s[end] > until_s
            ):
                self._times_s = np.insert(self._times_s, end, until_s)
                self._free = np.insert(self._free, end, self._free[end - 1], axis=0)
        for node, gpus in taken:
            self._free[row:end, node] -= gpus

    def _rounded(self, at_s: float) -> float:
        grain_s = RESOLUTION_S if at_s <= self._now_s + NEAR_S else FAR_RESOLUTION_S
        return ceil(at_s / grain_s) * grain_s


class _Queue:
    """Who waits and who runs, from event to event."""

    def __init__(
        self, jobs: Sequence[QueuedJob], nodes: Sequence[Node], turnaround_s: float
    ) -> None:
        self._jobs, self._turnaround_s = jobs, turnaround_s
        self._room = _Room(nodes)
        self._rank = {row: rank for rank, row in enumerate(_order(jobs))}
        self._waiting: list[int] = []
        self._running: list[tuple[float, int, Taken]] = []  # a heap by end
        self.starts_s: list[float | None] = [None] * len(jobs)

    def run(self) -> None:
        coming = sorted(range(len(self._jobs)), key=lambda row: self._jobs[row].came_s)
        coming.reverse()
        while (now_s := self._next_s(coming)) < inf:
            while self._running and self._running[0][0] <= now_s:
                for node, gpus in heappop(self._running)[2]:
                    self._room.free[node] += gpus
            while coming and self._jobs[coming[-1]].came_s <= now_s:
                self._waiting.append(coming.pop())
            self._waiting = [row for row in self._waiting if self._jobs[row].leaves_s > now_s]
            self._waiting.sort(key=self._rank.__getitem__)
            self._pass(now_s)

    def _next_s(self, coming: Sequence[int]) -> float:
        """When a job comes, ends or leaves the queue next; ``inf``: never."""
        return min(
            self._jobs[coming[-1]].came_s if coming else inf,
            self._running[0][0] if self._running else inf,
            min((self._jobs[row].leaves_s for row in self._waiting), default=inf),
        )

    def _pass(self, now_s: float) -> None:
        """Start who may; jobs behind the last that finds room now need not be planned."""
        last = self._last_that_fits()
        if last < 0:
            return
        endings = [
            ((self.starts_s[row] or 0.0) + self._jobs[row].limit_s, taken)
            for _, row, taken in self._running
        ]
        plan = _Plan(self._room, now_s, endings)
        stays = []
        for place, row in enumerate(self._waiting):
            taken = plan.start(self._jobs[row]) if place <= last else None
            if taken is None:
                stays.append(row)
                continue
            for node, gpus in taken:
                self._room.free[node] -= gpus
            self.starts_s[row] = now_s
            job = self._jobs[row]
            over_s = min(now_s + job.duration_s, job.leaves_s) + self._turnaround_s
            heappush(self._running, (over_s, row, taken))
        self._waiting = stays

    def _last_that_fits(self) -> int:
        """The place of the last job that would find room now if nobody were ahead; -1: none."""
        known: dict[tuple[Job, ...], bool] = {}
        for place in range(min(len(self._waiting), MOST_PLANNED) - 1, -1, -1):
            parts = self._jobs[self._waiting[place]].parts
            if parts not in known:
                known[parts] = self._room.place(self._room.free, parts) is not None
            if known[parts]:
                return place
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
