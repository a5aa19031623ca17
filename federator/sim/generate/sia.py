"""Generates the synthetic workload by which SIA's authors judged anticipation.

Some queues of 8 GPUs each, bursts of jobs, two lengths of jobs, for three days; and eight variants
that differ in one thing. Times are whole seconds. The same seed gives the same trace.

Source:
    SIA appendices A.1 and C. What the paper does not say, or not there, and what is done here:

    - Both the widths of jobs and the total width of a burst are given, and bursts cannot keep
      both. Widths are drawn one after the other, as given, and are dealt out to bursts: a burst
      ends before the job that would take it beyond its drawn total, or with its first job. So
      widths are as the paper has them, and a burst never exceeds its queue.
    - "Poisson distributed to match a desired total load": a queue gets bursts until their
      GPU-seconds are its load x its GPUs x the span; the gaps between them are exponential, scaled
      to the span. So the load is met up to the last burst, and bursts are Poisson given their
      number.
    - Jobs arrive for three days. No users and no CPUs. Each queue is one node, or some of 8 GPUs
      (sec. 6.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from types import MappingProxyType
from typing import Final

import numpy as np

from federator.errors import InvalidRequest
from federator.sim.importers.trace_csv import TraceBuilder
from federator.sim.trace import Trace, TracePool

WIDTHS: Final = (1, 2, 4, 8)
_SHORTEST_MIN: Final = sqrt(10)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaWorkload:
    """The parameters; by default those of the base workload.

    Attributes:
        queues: pools.
        queue_gpus: of each; at least the widest job.
        queue_nodes: that these are on, as many on each.
        span_s: in which jobs arrive.
        load_frac: of each queue, drawn uniformly between the two.
        load_factor: on what was drawn.
        lengths_min: kinds of jobs, each with its probability and its bounds in minutes.
        width_shares: probability of each of ``WIDTHS``.
    """

    queues: int = 4
    queue_gpus: int = 8
    queue_nodes: int = 1
    span_s: int = 3 * 86_400
    load_frac: tuple[float, float] = (0.6, 0.95)
    load_factor: float = 1.0
    lengths_min: tuple[tuple[float, float, float], ...] = (
        (0.8, _SHORTEST_MIN, 100.0),
        (0.2, 100.0, 1000.0),
    )
    width_shares: tuple[float, float, float, float] = (0.7, 0.1, 0.15, 0.05)

    def generate(self, seed: int = 0) -> Trace:
        """Draw a trace; its jobs are in order of submission."""
        draw = np.random.default_rng(seed)
        pools = tuple(
            TracePool(
                name=f"q{k}",
                nodes=self.queue_nodes,
                gpus_per_node=self.queue_gpus // self.queue_nodes,
            )
            for k in range(self.queues)
        )
        jobs = [
            (at_s, k, duration_s, gpus)
            for k in range(self.queues)
            for at_s, duration_s, gpus in self._queue(draw)
        ]
        builder = TraceBuilder(pools)
        for number, (at_s, k, duration_s, gpus) in enumerate(sorted(jobs, key=_when), 1):
            builder.add(
                job_id=str(number),
                line=0,
                submit_s=at_s,
                duration_s=duration_s,
                gpus=gpus,
                num_nodes=1,
                cpus=None,
                pool=pools[k].name,
                user="",
            )
        return builder.trace

    def _queue(self, draw: np.random.Generator) -> Iterator[tuple[int, int, int]]:
        """Jobs of one queue: submission, duration, GPUs."""
        load = draw.uniform(*self.load_frac) * self.load_factor
        wanted_gpu_s = load * self.queue_gpus * self.span_s
        bursts: list[list[tuple[int, int]]] = []
        drawn_gpu_s, kept = 0, self._job(draw)
        while drawn_gpu_s < wanted_gpu_s:
            room = int(draw.integers(1, self.queue_gpus, endpoint=True))
            burst = [kept]
            kept = self._job(draw)
            while sum(gpus for _, gpus in burst) + kept[1] <= room:
                burst.append(kept)
                kept = self._job(draw)
            bursts.append(burst)
            drawn_gpu_s += sum(duration_s * gpus for duration_s, gpus in burst)
        gaps = np.cumsum(draw.exponential(size=len(bursts) + 1))
        for burst, at_frac in zip(bursts, gaps[:-1] / gaps[-1], strict=True):
            for duration_s, gpus in burst:
                yield int(at_frac * self.span_s), duration_s, gpus

    def _job(self, draw: np.random.Generator) -> tuple[int, int]:
        """Duration and GPUs."""
        kind = draw.choice(len(self.lengths_min), p=[share for share, _, _ in self.lengths_min])
        _, least_min, most_min = self.lengths_min[kind]
        gpus = int(draw.choice(WIDTHS, p=self.width_shares))
        return round(60 * draw.uniform(least_min, most_min)), gpus


def _when(job: tuple[int, int, int, int]) -> tuple[int, int]:
    """Ties by queue; inside one as drawn."""
    return job[:2]


_BASE: Final = SiaWorkload()

SIA_VARIANTS: Final[Mapping[str, SiaWorkload]] = MappingProxyType(
    {
        "base": _BASE,
        "higher-load": replace(_BASE, load_factor=1.05),
        "lower-load": replace(_BASE, load_factor=0.75),
        "more-queues": replace(_BASE, queues=8),
        "fewer-queues": replace(_BASE, queues=2),
        "more-skewed": replace(
            _BASE, lengths_min=((0.9, _SHORTEST_MIN, 100.0), (0.1, 100.0, 2000.0))
        ),
        "less-skewed": replace(_BASE, lengths_min=((1.0, _SHORTEST_MIN, 300.0),)),
        "more-wide": replace(_BASE, width_shares=(0.25, 0.25, 0.25, 0.25)),
        "fewer-wide": replace(_BASE, width_shares=(0.9, 0.033, 0.05, 0.017)),
    }
)
"""By name; each differs from the base workload in one thing."""


def sia_workload(variant: str) -> SiaWorkload:
    """The workload of this name.

    Raises:
        InvalidRequest: there is none.
    """
    if variant not in SIA_VARIANTS:
        known = ", ".join(SIA_VARIANTS)
        raise InvalidRequest(f"--variant: {variant[:60]!r} is unknown; expected one of {known}")
    return SIA_VARIANTS[variant]
