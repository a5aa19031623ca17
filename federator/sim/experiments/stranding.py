"""Measures GPUs that one rule of placing leaves useless, and the jobs that wait for it.

The queue is strict: the first job that does not fit blocks the rest, so that waits tell of
placement alone. At one instant ends come before arrivals, then the queue is served.

A free GPU is stranded for a size of job as far as no more jobs of that size fit on what is free:
parts of a node on the nodes, whole nodes in one site. Stranded is the mean over the sizes, by
their shares of the jobs. That is the index of Weng et al. (ATC'23), with gangs inside a site; the
score of the federation counts racks instead, so it is not judged by its own measure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from federator.sim.experiments.placers import NODE_GPUS, Layout, Placer
from federator.sim.experiments.stream import StreamJob


@dataclass(slots=True, kw_only=True)
class Stranding:
    """What was seen between two instants.

    Attributes:
        wait_s: of each job that was submitted then, by its number.
        free_gpu_s: free, over time.
        stranded_gpu_s: of those, of no use.
        lasted_s: how long it was watched.
        one_rack: gangs that got one rack, and those that could have.
        samples: time in seconds, free GPUs and stranded GPUs, at the end of equal steps.
    """

    wait_s: dict[int, float] = field(default_factory=dict)
    free_gpu_s: float = 0.0
    stranded_gpu_s: float = 0.0
    lasted_s: float = 0.0
    one_rack: tuple[int, int] = (0, 0)
    samples: list[tuple[float, int, float]] = field(default_factory=list)


class Floor:
    """Free GPUs of every node, and how many nodes of each site have how many.

    Args:
        layout: of the fleet, all free.
        mix: sizes of jobs with their shares, which sum to 1.
    """

    def __init__(self, layout: Layout, mix: Sequence[tuple[int, float]]) -> None:
        self._layout, self._mix = layout, tuple(mix)
        self.free = [NODE_GPUS] * (layout.sites * layout.site_nodes)
        self.free_gpus = layout.gpus
        whole = [0] * NODE_GPUS + [layout.site_nodes]
        self._levels = [whole[:] for _ in range(layout.sites)]
        self._known: dict[tuple[int, ...], float] = {}

    def change(self, nodes: Sequence[int], gpus: int) -> None:
        """So many GPUs come free on each of these nodes; fewer than none: are taken."""
        for node in nodes:
            levels, before = self._levels[node // self._layout.site_nodes], self.free[node]
            after = before + gpus
            assert 0 <= after <= NODE_GPUS, f"node {node} is used twice, or freed twice"
            levels[before] -= 1
            levels[after] += 1
            self.free[node] = after
        self.free_gpus += gpus * len(nodes)

    @property
    def stranded(self) -> float:
        """Expected GPUs of no use."""
        return sum(map(self._of_site, map(tuple, self._levels)))

    def _of_site(self, levels: tuple[int, ...]) -> float:
        known = self._known.get(levels)
        if known is None:
            free = sum(gpus * nodes for gpus, nodes in enumerate(levels))
            known = sum(share * (free - _of_use(levels, size)) for size, share in self._mix)
            self._known[levels] = known
        return known


def _of_use(levels: Sequence[int], size: int) -> int:
    """GPUs of a site that jobs of one size could take, given its nodes by free GPUs."""
    if size <= NODE_GPUS:
        return sum(nodes * (gpus - gpus % size) for gpus, nodes in enumerate(levels))
    return levels[NODE_GPUS] * NODE_GPUS // size * size


class Watch:
    """One replay.

    Args:
        layout: of the fleet.
        floor: the same, all free.
        placer: that places the jobs.
        jobs: by submission.
        warm_up_frac: of the time of submissions, before which nothing is counted.
        steps: of the samples.
    """

    def __init__(
        self,
        layout: Layout,
        floor: Floor,
        placer: Placer,
        jobs: Sequence[StreamJob],
        *,
        warm_up_frac: float,
        steps: int,
    ) -> None:
        self._layout, self._floor, self._placer, self._jobs = layout, floor, placer, jobs
        self._until_s = jobs[-1].at_s
        self._from_s = warm_up_frac * self._until_s
        self._step_s = (self._until_s - self._from_s) / steps
        self._waiting: deque[int] = deque()
        self._ends: list[tuple[float, int, list[int]]] = []
        self._now_s = 0.0
        self.seen = Stranding()

    def run(self) -> Stranding:
        at, jobs = 0, self._jobs
        while at < len(jobs) or self._waiting:
            times = [jobs[at].at_s] if at < len(jobs) else []
            times += [self._ends[0][0]] if self._ends else []
            self._pass_to(min(times))
            freed = False
            while self._ends and self._ends[0][0] <= self._now_s:
                self._end()
                freed = True
            while at < len(jobs) and jobs[at].at_s <= self._now_s:
                freed = freed or not self._waiting
                self._waiting.append(at)
                at += 1
            if freed:  # else the first in the queue still does not fit
                self._serve()
        return self.seen

    def _pass_to(self, to_s: float) -> None:
        floor, seen = self._floor, self.seen
        begin_s, end_s = max(self._now_s, self._from_s), min(to_s, self._until_s)
        if end_s > begin_s:
            stranded = floor.stranded
            seen.lasted_s += end_s - begin_s
            seen.free_gpu_s += (end_s - begin_s) * floor.free_gpus
            seen.stranded_gpu_s += (end_s - begin_s) * stranded
            while (at_s := self._from_s + (len(seen.samples) + 1) * self._step_s) <= end_s:
                seen.samples.append((at_s, floor.free_gpus, stranded))
        self._now_s = to_s

    def _end(self) -> None:
        _, job, nodes = heappop(self._ends)
        self._placer.release(job)
        self._floor.change(nodes, self._jobs[job].gpus // len(nodes))

    def _serve(self) -> None:
        while self._waiting:
            number = self._waiting[0]
            job = self._jobs[number]
            nodes = self._placer.place(number, job.gpus, self._floor.free)
            if nodes is None:
                return
            self._waiting.popleft()
            self._floor.change(nodes, -(job.gpus // len(nodes)))
            heappush(self._ends, (self._now_s + job.duration_s, number, nodes))
            if job.at_s >= self._from_s:
                self.seen.wait_s[number] = self._now_s - job.at_s
                self._count_rack(nodes)

    def _count_rack(self, nodes: Sequence[int]) -> None:
        if 1 < len(nodes) <= self._layout.nodes:
            one = len({self._layout.rack_of(node) for node in nodes}) == 1
            before = self.seen.one_rack
            self.seen.one_rack = before[0] + one, before[1] + 1
