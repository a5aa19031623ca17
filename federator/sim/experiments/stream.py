"""A seeded stream of jobs for one load: arrivals, sizes and durations.

GPU counts are drawn from a mix; durations are log-normal, whatever the size. Submissions are
uniform over a time that is as long as the load asks for, so that the load is met exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from random import Random
from typing import Final

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
