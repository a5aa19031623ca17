"""A replay, said as plainly as possible: the reference that every replay must equal.

Written from the rules in docs/simulator.md, second by second, with loops over plain lists: no
heaps, no events, no sets of nodes, nothing kept sorted. It takes nothing from ``federator.sim`` but
the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from federator.sim.trace import Trace

Nodes = dict[int, int]  # GPUs by node


def naive_place(free: Sequence[int], gpus: int, per_node: int) -> Nodes | None:
    """The nodes of a job, by the rules of placement; None if it does not fit."""
    numbers = range(len(free))
    if gpus <= per_node:
        fits = [n for n in numbers if free[n] >= gpus]
        return {min(fits, key=lambda n: (free[n], n)): gpus} if fits else None
    whole = [n for n in numbers if free[n] == per_node][: gpus // per_node]
    if len(whole) < gpus // per_node:
        return None
    nodes = dict.fromkeys(whole, per_node)
    part = gpus % per_node
    if part:
        fits = [n for n in numbers if n not in nodes and free[n] >= part]
        if not fits:
            return None
        nodes[min(fits, key=lambda n: (-free[n], n))] = part
    return nodes


@dataclass
class NaiveJob:
    row: int
    submit_s: int
    duration_s: int
    gpus: int
    pool: int
    ran_s: int = 0
    start_s: int = -1
    end_s: int = -1
    preemptions: int = 0
    is_running: bool = False
    nodes: Nodes = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int]:
        return self.submit_s, self.row


Schedule = Callable[[list[NaiveJob], int], None]
"""Starts and stops jobs: all that have come and not ended, and the time."""


def _run(trace: Trace, schedule: Schedule) -> list[NaiveJob]:
    """Second by second: ends, arrivals, then the queue once."""
    jobs = [
        NaiveJob(row, trace.submit_s[row], trace.duration_s[row], trace.gpus[row], trace.pool[row])
        for row in range(len(trace))
    ]
    now_s = 0
    while any(job.end_s < 0 for job in jobs):
        for job in jobs:
            if job.is_running and job.ran_s == job.duration_s:
                job.is_running, job.end_s = False, now_s
        schedule([job for job in jobs if job.submit_s <= now_s and job.end_s < 0], now_s)
        for job in jobs:
            job.ran_s += job.is_running
        now_s += 1
    return jobs


def _start(job: NaiveJob, now_s: int) -> None:
    job.is_running, job.start_s = True, now_s


def _used(jobs: Sequence[NaiveJob]) -> int:
    return sum(job.gpus for job in jobs if job.is_running)


def naive_strict(
    trace: Trace, key: Callable[[NaiveJob], int], placed: bool, shared: bool = False
) -> list[NaiveJob]:
    """In the order of ``key``, then submission; the first that does not fit blocks the rest."""

    def schedule(jobs: list[NaiveJob], now_s: int) -> None:
        for k, pool in enumerate(trace.pools[:1] if shared else trace.pools):
            own = [job for job in jobs if shared or job.pool == k]
            for job in sorted(own, key=lambda job: (key(job), *job.order)):
                if job.is_running:
                    continue
                if placed:
                    free = [pool.gpus_per_node] * pool.nodes
                    for other in own:
                        for node, gpus in other.nodes.items() if other.is_running else ():
                            free[node] -= gpus
                    nodes = naive_place(free, job.gpus, pool.gpus_per_node)
                    if nodes is None:
                        break
                    job.nodes = nodes
                elif _used(own) + job.gpus > (trace.capacity if shared else pool.gpus):
                    break
                _start(job, now_s)

    return _run(trace, schedule)


def naive_maxmin(trace: Trace) -> list[NaiveJob]:
    def schedule(jobs: list[NaiveJob], now_s: int) -> None:
        while True:
            can = []
            for k, pool in enumerate(trace.pools):
                own = [job for job in jobs if job.pool == k]
                waiting = sorted((j for j in own if not j.is_running), key=lambda j: j.order)
                if waiting and _used(jobs) + waiting[0].gpus <= trace.capacity:
                    can.append((Fraction(_used(own), pool.gpus), k, waiting[0]))
            if not can:
                return
            _start(min(can, key=lambda c: c[:2])[2], now_s)

    return _run(trace, schedule)


def _give(order: Sequence[NaiveJob], gpus: int, now_s: int) -> None:
    """All GPUs go to jobs in this order; who runs and gets none is preempted."""
    for job in order:
        if job.gpus <= gpus:
            gpus -= job.gpus
            if not job.is_running:
                _start(job, now_s)
        elif job.is_running:
            job.is_running = False
            job.preemptions += 1


def naive_tiresias(trace: Trace, bounds_gpu_s: Sequence[int]) -> list[NaiveJob]:
    def queue(job: NaiveJob) -> int:
        return sum(job.ran_s * job.gpus >= bound for bound in bounds_gpu_s)

    def schedule(jobs: list[NaiveJob], now_s: int) -> None:
        for k, pool in enumerate(trace.pools):
            own = [job for job in jobs if job.pool == k]
            _give(sorted(own, key=lambda job: (queue(job), *job.order)), pool.gpus, now_s)

    return _run(trace, schedule)


def naive_themis(trace: Trace, lease_s: int | None) -> list[NaiveJob]:
    first_s = min(trace.submit_s, default=0)

    def schedule(jobs: list[NaiveJob], now_s: int) -> None:
        def rho(job: NaiveJob) -> Fraction:
            left_s = job.duration_s - job.ran_s
            return Fraction(now_s - job.submit_s + left_s, job.duration_s)

        order = sorted(jobs, key=lambda job: (-rho(job), *job.order))
        if lease_s is not None and (now_s - first_s) % lease_s == 0:
            _give(order, trace.capacity, now_s)
            return
        for job in order:
            if not job.is_running and _used(jobs) + job.gpus <= trace.capacity:
                _start(job, now_s)

    return _run(trace, schedule)


def naive_federated(trace: Trace) -> tuple[list[NaiveJob], dict[int, int]]:
    """Jobs, and the pool that each was bound to, by row."""
    bound: dict[int, int] = {}

    def schedule(jobs: list[NaiveJob], now_s: int) -> None:
        for job in sorted(jobs, key=lambda job: job.order):
            if job.row not in bound:
                demand = [
                    sum(other.gpus for other in jobs if bound.get(other.row) == k)
                    for k in range(len(trace.pools))
                ]
                bound[job.row] = min(
                    (k for k, pool in enumerate(trace.pools) if job.gpus <= pool.gpus),
                    key=lambda k: (Fraction(demand[k], trace.pools[k].gpus), k),
                )
        for k, pool in enumerate(trace.pools):
            own = sorted((j for j in jobs if bound[j.row] == k), key=lambda job: job.order)
            for job in own:
                if job.is_running:
                    continue
                free = [pool.gpus_per_node] * pool.nodes
                for other in own:
                    for node, gpus in other.nodes.items() if other.is_running else ():
                        free[node] -= gpus
                nodes = naive_place(free, job.gpus, pool.gpus_per_node)
                if nodes is None:
                    break
                job.nodes = nodes
                _start(job, now_s)

    return _run(trace, schedule), bound


def naive_sia_vc(trace: Trace) -> list[NaiveJob]:
    """SIA's Figure 6, letter by letter: all jobs by virtual start, from the first after a start."""
    virtual_s = [job.start_s for job in naive_strict(trace, lambda _: 0, placed=False)]
    by_virtual_start = sorted(
        range(len(trace)), key=lambda row: (virtual_s[row], trace.submit_s[row], row)
    )
    finished: set[int] = set()
    seen: set[int] = set()

    def schedule(jobs: list[NaiveJob], now_s: int) -> None:
        present = {job.row: job for job in jobs}
        finished.update(seen - present.keys())
        seen.update(present)
        while start_one(present, now_s):
            pass

    def start_one(present: dict[int, NaiveJob], now_s: int) -> bool:
        plan = [0] * 2000  # GPUs at each second from now
        for running in present.values():
            for at in range(running.duration_s - running.ran_s) if running.is_running else ():
                plan[at] += running.gpus
        for row in by_virtual_start:
            job = present.get(row)
            if row in finished or (job is not None and job.is_running):
                continue
            gpus, lasts_s = trace.gpus[row], trace.duration_s[row]
            if job is not None and max(plan[:lasts_s]) + gpus <= trace.capacity:
                _start(job, now_s)
                return True
            assert virtual_s[row] >= now_s
            for at in range(virtual_s[row] - now_s, virtual_s[row] - now_s + lasts_s):
                plan[at] += gpus
        return False

    return _run(trace, schedule)


Load = Callable[[int, int], Sequence[int]]
"""GPUs that will come to each pool: by the time, and the window in seconds."""


def naive_perfect_load(trace: Trace) -> Load:
    def load(now_s: int, window_s: int) -> list[int]:
        return [
            sum(
                trace.gpus[row]
                for row in range(len(trace))
                if trace.pool[row] == k and now_s < trace.submit_s[row] < now_s + window_s
            )
            for k in range(len(trace.pools))
        ]

    return load


def naive_sia(trace: Trace, windows_s: Sequence[int], load: Load) -> list[NaiveJob]:
    """SIA's Figures 7 and 8, letter by letter, with durations known and loads as given."""
    figures = _SiaFigures(trace, windows_s, load)
    before: set[int] = set()

    def schedule(jobs: list[NaiveJob], now_s: int) -> None:
        rows = {job.row for job in jobs}
        if rows != before or (now_s - min(trace.submit_s)) % 300 == 0:
            figures.allocate(jobs, now_s)
        before.clear()
        before.update(rows)

    return _run(trace, schedule)


@dataclass
class _SiaFigures:
    trace: Trace
    windows_s: Sequence[int]
    load: Load
    dedicated: set[int] = field(default_factory=set)  # rows

    def allocate(self, jobs: list[NaiveJob], now_s: int) -> None:
        while self._start_dedicated(jobs, now_s):
            pass
        for window_s in self.windows_s:
            while self._start_spare(jobs, now_s, window_s):
                pass

    def _start_dedicated(self, jobs: list[NaiveJob], now_s: int) -> bool:
        idle = self.trace.capacity - _used(jobs)
        for k in self._pools_in_turn(jobs):
            for job in self._waiting(jobs, k)[:1]:
                if job.gpus <= self._unused(jobs, k) and job.gpus <= idle:
                    self.dedicated.add(job.row)
                    _start(job, now_s)
                    return True
        return False

    def _start_spare(self, jobs: list[NaiveJob], now_s: int, window_s: int) -> bool:
        new_load = self.load(now_s, window_s)
        reserved = 0
        for k in range(len(self.trace.pools)):
            pending = sum(job.gpus for job in self._waiting(jobs, k))
            reserved += min(pending + new_load[k], self._unused(jobs, k))
        usable = self.trace.capacity - _used(jobs) - reserved
        for k in self._pools_in_turn(jobs):
            for job in self._waiting(jobs, k):
                if job.gpus <= usable and job.duration_s <= window_s:
                    _start(job, now_s)
                    return True
        return False

    def _pools_in_turn(self, jobs: list[NaiveJob]) -> list[int]:
        def share(k: int) -> Fraction:
            return Fraction(_used([j for j in jobs if j.pool == k]), self.trace.pools[k].gpus)

        return sorted(range(len(self.trace.pools)), key=lambda k: (share(k), k))

    def _waiting(self, jobs: list[NaiveJob], k: int) -> list[NaiveJob]:
        return sorted((j for j in jobs if j.pool == k and not j.is_running), key=lambda j: j.order)

    def _unused(self, jobs: list[NaiveJob], k: int) -> int:
        own = [j for j in jobs if j.pool == k and j.row in self.dedicated]
        return self.trace.pools[k].gpus - _used(own)
