"""A stream of jobs for one load: seeded arrivals, sizes and durations, or those of a trace.

Drawn: GPU counts from a mix; durations are log-normal, whatever the size; submissions are uniform
over a time that is as long as the load asks for, so that the load is met exactly. Of a trace, pools
are left aside, and the times between submissions are stretched or shortened to meet the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from random import Random
from typing import Final

from federator.sim.trace import Trace

LONGEST: Final = 40.0  # times the median


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    at_s: float
    duration_s: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOf:
    """What a stream is drawn from.

    Attributes:
        sizes: GPU counts.
        shares: of the jobs that have each of them.
        median_s: of the durations.
        sigma: of the logarithm of the durations.
    """

    sizes: Sequence[int]
    shares: Sequence[float]
    median_s: float
    sigma: float

    def draw(self, jobs: int, load: float, gpus: int, draw: Random) -> list[StreamJob]:
        """So many jobs, by submission, that bring this load to so many GPUs."""
        sizes = draw.choices(self.sizes, self.shares, k=jobs)
        lengths = [draw.lognormvariate(log(self.median_s), self.sigma) for _ in sizes]
        lengths_s = [max(1.0, min(length, LONGEST * self.median_s)) for length in lengths]
        span_s = sum(n * s for n, s in zip(sizes, lengths_s, strict=True)) / (load * gpus)
        times_s = sorted(draw.uniform(0.0, span_s) for _ in sizes)
        return [
            StreamJob(at_s=at_s, duration_s=length_s, gpus=size)
            for at_s, length_s, size in zip(times_s, lengths_s, sizes, strict=True)
        ]


def of_trace(trace: Trace, jobs: int, load: float, gpus: int, node_gpus: int) -> list[StreamJob]:
    """The first jobs of a trace, by submission, that bring this load to so many GPUs.

    More than a node's GPUs are asked for as whole nodes, so rounded up.

    Args:
        trace: whose jobs.
        jobs: how many, at most.
        load: GPU-seconds asked for / those there are until the last submission.
        gpus: of the fleet.
        node_gpus: of a node.
    """
    rows = trace.in_order()[:jobs]
    if not rows:
        return []
    sizes = [_whole(trace.gpus[row], node_gpus) for row in rows]
    work = sum(n * trace.duration_s[row] for n, row in zip(sizes, rows, strict=True))
    first_s = trace.submit_s[rows[0]]
    stretch = work / (load * gpus) / max(1, trace.submit_s[rows[-1]] - first_s)
    return [
        StreamJob(
            at_s=(trace.submit_s[row] - first_s) * stretch,
            duration_s=float(max(1, trace.duration_s[row])),
            gpus=size,
        )
        for row, size in zip(rows, sizes, strict=True)
    ]


def _whole(gpus: int, node_gpus: int) -> int:
    return max(1, gpus) if gpus <= node_gpus else -(-gpus // node_gpus) * node_gpus
