"""``pool-sjf`` and ``pool-sjf-count``: each pool serves its shortest job first.

Rules (the project's own; see docs/simulator.md): as ``pool-fifo``, with the order by recorded
duration, ties by earlier submission, then by the order of the file. Not preemptive; durations are
known.
``pool-sjf`` places jobs on nodes, see ``NodeSpace``; for ``pool-sjf-count`` a pool is a counter.
"""

from __future__ import annotations

from dataclasses import dataclass

from federator.sim.fifo_engine import least_first
from federator.sim.node_pool import counter, nodes_of
from federator.sim.trace import ReplayOptions, Timetable, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class SjfReplay:
    """Shortest job first, for each pool."""

    placed: bool = True  # on nodes

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        timetable = Timetable.of(trace)
        for pool, rows in zip(trace.pools, trace.by_pool(), strict=True):
            space = nodes_of(pool, options) if self.placed else counter(pool.gpus, options)
            least_first(trace, rows, trace.duration_s, space, timetable, options)
        return timetable
