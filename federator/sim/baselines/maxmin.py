"""``maxmin``: shares all GPUs among pools with waiting jobs in a max-min fair manner.

One counter of the GPUs of all pools. At each arrival and each end: of the pools whose first waiting
job, in order of submission, fits into what is free, the one with the least GPUs in use by its jobs
relative to its own GPUs starts that job; ties go to the pool named first in P.csv. Repeated until
none fits. Nothing is preempted.

Source:
    SIA sec. 4.1, MMFS: "shares resources in a max-min fair manner between the pools that have
    pending jobs", and the visiting order of its Figure 7, without the bound by quota. The paper
    does not say what becomes of a pool whose next job does not fit: here the next pool may go on,
    and no room is kept for the first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from federator.sim.fifo_engine import Running, next_event, report
from federator.sim.node_pool import counter
from federator.sim.trace import ReplayOptions, Timetable, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxMinReplay:
    """Max-min fair sharing of GPUs between pools."""

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        return _Sharing(trace, options).replay()


class _Sharing:
    """One replay: who waits in each pool, what each pool's jobs use, what is free in all."""

    def __init__(self, trace: Trace, options: ReplayOptions) -> None:
        self.trace, self.options = trace, options
        self.timetable = Timetable.of(trace, shared=True)
        self.space = counter(trace.capacity, options)
        self.free = trace.capacity
        self.used = [0] * len(trace.pools)
        self.size = [pool.gpus for pool in trace.pools]
        self.waiting: dict[int, deque[int]] = {}  # by pool; only pools where one waits
        self.running: Running = []

    def replay(self) -> Timetable:
        trace, rows = self.trace, self.trace.in_order()
        position = 0
        while position < len(rows) or self.waiting:
            arrives_s = trace.submit_s[rows[position]] if position < len(rows) else None
            now_s = next_event(arrives_s, self.running if self.waiting else ())
            self._end(now_s)
            while position < len(rows) and trace.submit_s[rows[position]] <= now_s:
                row = rows[position]
                self.waiting.setdefault(trace.pool[row], deque()).append(row)
                position += 1
                report(position, self.options)
            while (pool := self._neediest()) is not None:
                self._start(pool, now_s)
        return self.timetable

    def _end(self, now_s: int) -> None:
        while self.running and self.running[0][0] <= now_s:
            _, row, held = heappop(self.running)
            self.space.give(held)
            self.free += self.trace.gpus[row]
            self.used[self.trace.pool[row]] -= self.trace.gpus[row]

    def _neediest(self) -> int | None:
        """The pool to start a job of; None if no first job fits."""
        gpus, free = self.trace.gpus, self.free
        shares = [
            (self.used[pool] / self.size[pool], pool)
            for pool, queue in self.waiting.items()
            if gpus[queue[0]] <= free
        ]
        return min(shares)[1] if shares else None

    def _start(self, pool: int, now_s: int) -> None:
        queue = self.waiting[pool]
        row = queue.popleft()
        if not queue:
            del self.waiting[pool]
        held = self.space.take(self.trace.gpus[row])
        assert held is not None
        self.free -= self.trace.gpus[row]
        self.used[pool] += self.trace.gpus[row]
        self.timetable.start_s[row] = now_s
        self.timetable.end_s[row] = ends_s = now_s + self.trace.duration_s[row]
        heappush(self.running, (ends_s, row, held))
