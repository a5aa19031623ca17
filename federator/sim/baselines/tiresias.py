"""``tiresias``: jobs that had least service so far go first, and may preempt.

Each pool alone, as a counter. A job's attained service is its GPUs x the time it has run. Queues by
attained service, at bounds of 1, 10 and 100 GPU-hours; a lower queue goes first, and inside a queue
the earlier submission (ties: order of the file). At each arrival, end, or passing of a bound: walk
all unfinished jobs in this order and give each its GPUs if they are still left, skipping those for
which too few are; who runs and is not chosen is preempted, at no cost, and goes on later where it
stopped. Bounds are passed in whole seconds, at the first instant when the service is reached. At
one instant ends come first, then bounds, then arrivals, then the walk, once.

Source:
    Tiresias (NSDI'19) sec. 3.2, discretized two-dimensional LAS; the bounds are those of the fleet
    chapter (shared/spec/fleet.md). The paper tunes bounds to the trace and has a knob that promotes
    who starves; it is off here, as by default there. It places some models on few nodes, by a
    profile that traces do not have; here no nodes. It measures what preemption costs; here nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from federator.sim.fifo_engine import report
from federator.sim.node_pool import Held, counter
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePool

_GPU_HOUR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class TiresiasReplay:
    """Discretized least attained service, for each pool.

    Attributes:
        bounds_gpu_s: between the queues, ascending.
    """

    bounds_gpu_s: tuple[int, ...] = (_GPU_HOUR_S, 10 * _GPU_HOUR_S, 100 * _GPU_HOUR_S)

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        timetable = Timetable.of(trace)
        for pool, rows in zip(trace.pools, trace.by_pool(), strict=True):
            _Las(trace, rows, pool, self.bounds_gpu_s, timetable, options).replay()
        return timetable


class _Las:
    """The replay of one pool. A job is its position in the order of submission."""

    def __init__(
        self,
        trace: Trace,
        rows: Sequence[int],
        pool: TracePool,
        bounds_gpu_s: tuple[int, ...],
        timetable: Timetable,
        options: ReplayOptions,
    ) -> None:
        self.rows, self.bounds, self.timetable, self.options = (
            rows,
            bounds_gpu_s,
            timetable,
            options,
        )
        self.submit_s = [trace.submit_s[row] for row in rows]
        self.left_s = [trace.duration_s[row] for row in rows]
        self.gpus = [trace.gpus[row] for row in rows]
        self.least = min(self.gpus, default=0)
        self.service = [0] * len(rows)  # GPU-seconds attained
        self.space, self.size = counter(pool.gpus, options), pool.gpus
        self.order: list[tuple[int, int]] = []  # queue, job; all that have come and not ended
        self.running: dict[int, tuple[int, Held]] = {}  # by job: since when, and what it holds
        self.events: list[tuple[int, int, int]] = []  # time, job, start of the attempt it is about

    def replay(self) -> None:
        position, count = 0, len(self.rows)
        while position < count or self.order:
            now_s = self._next(self.submit_s[position] if position < count else None)
            while self.events and self.events[0][0] <= now_s:
                _, job, since_s = heappop(self.events)
                if job in self.running and self.running[job][0] == since_s:
                    self._passes(job, now_s)
            while position < count and self.submit_s[position] <= now_s:
                self.order.append((0, position))  # made sorted below
                position += 1
                report(position, self.options)
            self.order.sort()
            self._walk(now_s)

    def _next(self, arrives_s: int | None) -> int:
        if not self.events:
            assert arrives_s is not None, "jobs wait, and nothing runs or comes"
            return arrives_s
        return self.events[0][0] if arrives_s is None else min(arrives_s, self.events[0][0])

    def _passes(self, job: int, now_s: int) -> None:
        """A running job ends, or passes a bound and may run on."""
        queue = self._queue(job)
        held = self._account(job, now_s)
        del self.order[bisect_left(self.order, (queue, job))]
        if self.left_s[job]:
            insort(self.order, (self._queue(job), job))
            self._run(job, now_s, held)
        else:
            self.space.give(held)
            self.timetable.end_s[self.rows[job]] = now_s

    def _queue(self, job: int) -> int:
        return bisect_right(self.bounds, self.service[job])

    def _account(self, job: int, now_s: int) -> Held:
        """A job stops running, if only for an instant."""
        since_s, held = self.running.pop(job)
        self.left_s[job] -= now_s - since_s
        self.service[job] += (now_s - since_s) * self.gpus[job]
        return held

    def _run(self, job: int, now_s: int, held: Held) -> None:
        until_s, queue = self.left_s[job], self._queue(job)
        if queue < len(self.bounds) and self.gpus[job]:
            missing = self.bounds[queue] - self.service[job]
            until_s = min(until_s, -(-missing // self.gpus[job]))
        self.running[job] = (now_s, held)
        heappush(self.events, (now_s + until_s, job, now_s))

    def _walk(self, now_s: int) -> None:
        left, chosen = self.size, set[int]()
        for _, job in self.order:
            if self.gpus[job] <= left:
                chosen.add(job)
                left -= self.gpus[job]
                if left < self.least:
                    break
        for job in sorted(self.running.keys() - chosen):
            # A job keeps its queue while it runs on, and takes the one of its service when it
            # stops; a bound is passed by an event, so both are the same.
            self.space.give(self._account(job, now_s))
            self.timetable.preemptions[self.rows[job]] += 1
        for job in sorted(chosen - self.running.keys()):
            held = self.space.take(self.gpus[job])
            assert held is not None
            self.timetable.start_s[self.rows[job]] = now_s
            self._run(job, now_s, held)
