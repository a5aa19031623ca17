"""``gssf``: treats all pools as one that serves its smallest job, in GPU-seconds, first.

The rules of ``ssf``, with one queue and one counter of the GPUs of all pools. A job that is larger
than its own pool is still left out, so that results are about the same jobs.

Source:
    SIA sec. 4.1: "a global form of SSF that assumes that all resources are in one global shared
    pool". As with ``ssf``, the first job that does not fit blocks the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from federator.sim.baselines.ssf import services
from federator.sim.fifo_engine import least_first
from federator.sim.node_pool import counter
from federator.sim.trace import ReplayOptions, Timetable, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class GssfReplay:
    """Shortest service first, over all pools."""

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        timetable = Timetable.of(trace, shared=True)
        space = counter(trace.capacity, options)
        least_first(trace, trace.in_order(), services(trace), space, timetable, options)
        return timetable
