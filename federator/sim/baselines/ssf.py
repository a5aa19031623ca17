"""``ssf``: each pool serves its smallest job, in GPU-seconds, first.

Shortest service first: order by GPUs x recorded duration; ties by earlier submission, then by the
order of the file. Each pool alone, as a counter; nothing is preempted.

Source:
    SIA sec. 4.1: "shortest service first within each pool with no sharing". It does not say what
    happens when the first job does not fit; here it blocks the rest, as with ``pool-sjf``. A pool
    is "a quota of fungible GPUs" there, so no nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from federator.sim.fifo_engine import least_first
from federator.sim.node_pool import counter
from federator.sim.trace import ReplayOptions, Timetable, Trace


def services(trace: Trace) -> list[int]:
    """GPU-seconds of each row."""
    return [gpus * time_s for gpus, time_s in zip(trace.gpus, trace.duration_s, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SsfReplay:
    """Shortest service first, for each pool."""

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        timetable, key = Timetable.of(trace), services(trace)
        for pool, rows in zip(trace.pools, trace.by_pool(), strict=True):
            least_first(trace, rows, key, counter(pool.gpus, options), timetable, options)
        return timetable
