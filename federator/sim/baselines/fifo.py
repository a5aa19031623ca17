"""``pool-fifo`` and ``pool-fifo-count``: each pool serves its jobs strictly in order of submission.

Rules (the project's own; see docs/simulator.md): each pool alone; ties of submission in the order
of the file; the first job that does not fit blocks the rest; nothing is preempted. ``pool-fifo``
places jobs on nodes, see ``NodeSpace``; for ``pool-fifo-count`` a pool is a counter. The daemon's
``global-fifo`` is another thing: one queue for all pools, which blocks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from federator.sim.fifo_engine import first_come
from federator.sim.node_pool import counter, nodes_of
from federator.sim.trace import ReplayOptions, Timetable, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoReplay:
    """First in, first out, for each pool."""

    placed: bool = True  # on nodes

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        timetable = Timetable.of(trace)
        for pool, rows in zip(trace.pools, trace.by_pool(), strict=True):
            space = nodes_of(pool, options) if self.placed else counter(pool.gpus, options)
            first_come(trace, rows, space, timetable, options)
        return timetable
