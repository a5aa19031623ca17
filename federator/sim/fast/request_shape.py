"""The shape of a trace job's request: its GPUs on one node, or a total over the fewest nodes."""

from __future__ import annotations

from dataclasses import dataclass

from federator.sched.bid.fragmentation import shape_of
from federator.sim.trace import Trace
from federator.sim.trace_scenario import job_of


@dataclass(frozen=True, slots=True, eq=False)
class AskedShape:
    """There is one object for each; two that look alike do not occur.

    Attributes:
        gpus: in all.
        spread: over as many nodes as it takes; else all on one.
        counted: nodes and GPUs on each, as the mix of requests counts it.
    """

    gpus: int
    spread: bool
    counted: tuple[int, int]

    def implies(self, other: AskedShape) -> bool:
        """Tell whether ``other`` cannot be placed where this one could not.

        Source:
            ``NegativeCache``: the same or more; of one node, nothing follows for several.
        """
        if other.gpus < self.gpus:
            return False
        return self.spread or not other.spread


def shapes_of(trace: Trace) -> list[AskedShape]:
    """The shape of each row."""
    known: dict[tuple[int, int], AskedShape] = {}  # by GPUs, and GPUs on each node of the pool
    shapes: dict[tuple[int, bool], AskedShape] = {}
    found = []
    for row, (gpus, pool) in enumerate(zip(trace.gpus, trace.pool, strict=True)):
        key = (gpus, trace.pools[pool].gpus_per_node)
        shape = known.get(key)
        if shape is None:
            job = job_of(trace, row)
            spread = job.nodes is None
            new = AskedShape(gpus, spread, shape_of(job))
            shape = known[key] = shapes.setdefault((gpus, spread), new)
        found.append(shape)
    return found
