"""``federated``: binds each job at its arrival to the pool with the least demand.

At its arrival a job goes to the pool with the lowest demand / supply, and waits there, whatever
comes free elsewhere. Demand: the GPUs of the jobs that run or wait there, the new one not counted;
supply: the pool's GPUs. A job that is larger than a pool is not bound to it; ties go to the pool
named first in P.csv. Of arrivals at one instant each sees the ones before it; what ends at that
instant counts no more. Each pool then serves its jobs as ``pool-fifo`` does, on nodes: so how many
nodes a job gets follows from the nodes of the pool it was bound to. The pool in the trace has no
effect but to say which jobs are too large.

Source:
    MAST sec. 5.6: the federated approach "dispatches a workload to the region with the lowest
    demand over supply rate of the required GPU type". The paper does not say what demand is. Here
    it is GPUs, not GPU-hours, since a dispatcher does not know how long jobs run; and of both
    running and waiting jobs: without the running ones a full pool where nobody waits would look
    empty, without the waiting ones a long queue would not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from federator.sim.fifo_engine import Running, free_ended, report
from federator.sim.node_pool import nodes_of
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePool


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedReplay:
    """Early binding to the pool with the least demand; then first in, first out."""

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        timetable = Timetable.of(trace)
        lines = [_Line(pool, options) for pool in trace.pools]
        present: list[tuple[int, int, int]] = []  # a heap: end, pool, GPUs
        demand = [0] * len(lines)
        for position, row in enumerate(trace.in_order(), 1):
            now_s, gpus = trace.submit_s[row], trace.gpus[row]
            while present and present[0][0] <= now_s:
                _, pool, gone = heappop(present)
                demand[pool] -= gone
            pool = _least_wanted(trace.pools, demand, gpus)
            # Strict order: whoever comes later has no say in when this job starts.
            starts_s = lines[pool].start(now_s, trace.duration_s[row], gpus)
            timetable.start_s[row] = starts_s
            timetable.end_s[row] = starts_s + trace.duration_s[row]
            timetable.site[row] = trace.pools[pool].name
            demand[pool] += gpus
            heappush(present, (timetable.end_s[row], pool, gpus))
            report(position, options)
        return timetable


def _least_wanted(pools: tuple[TracePool, ...], demand: list[int], gpus: int) -> int:
    """The pool to bind a job to; every job fits at least its own."""
    fitting = ((demand[k] / pool.gpus, k) for k, pool in enumerate(pools) if gpus <= pool.gpus)
    return min(fitting)[1]


class _Line:
    """One pool: its nodes, and when the job started last did."""

    def __init__(self, pool: TracePool, options: ReplayOptions) -> None:
        self._space = nodes_of(pool, options)
        self._running: Running = []
        self._now_s = 0

    def start(self, arrives_s: int, duration_s: int, gpus: int) -> int:
        """When the next job of the line starts; it fits the pool."""
        self._now_s = max(self._now_s, arrives_s)
        free_ended(self._running, self._space, self._now_s)
        while (held := self._space.take(gpus)) is None:
            self._now_s = self._running[0][0]
            free_ended(self._running, self._space, self._now_s)
        heappush(self._running, (self._now_s + duration_s, len(self._running), held))
        return self._now_s
