"""Compares when each job ends under two policies.

A job's speed-up is its completion time (end - submission) there / here, so 2 means half the time.

Source:
    SIA sec. 6.1, "Metrics": the speed-up per job, and the additional slow-down of jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from federator.sim.experiments.base import at_fraction, mean
from federator.sim.trace import Timetable, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Some jobs under a policy, beside the same jobs under the base line.

    Attributes:
        speedups: of each job, ascending.
        jct_ratio: mean completion time of the base line / that of the policy.
        slowed_s: by how much each job that ends later does so, ascending.
    """

    speedups: list[float]
    jct_ratio: float
    slowed_s: list[int]

    @property
    def mean(self) -> float:
        return mean(self.speedups)

    @property
    def geometric_mean(self) -> float:
        return exp(mean(map(log, self.speedups)))

    def at(self, frac: float) -> float:
        """The speed-up that this fraction of the jobs do not exceed."""
        return at_fraction(self.speedups, frac)

    @property
    def slowed_frac(self) -> float:
        return len(self.slowed_s) / len(self.speedups)

    @property
    def slowed_total_min(self) -> float:
        return sum(self.slowed_s) / 60

    @property
    def slowed_worst_min(self) -> float:
        return self.slowed_s[-1] / 60 if self.slowed_s else 0.0


def compared(trace: Trace, base: Timetable, other: Timetable, rows: Sequence[int]) -> Comparison:
    """Compare two replays of a trace.

    Args:
        trace: the jobs.
        base: when they ran under the base line.
        other: when they ran under the policy.
        rows: of the jobs to compare, at least one.
    """
    before_s = [base.end_s[row] - trace.submit_s[row] for row in rows]
    after_s = [other.end_s[row] - trace.submit_s[row] for row in rows]
    pairs = list(zip(before_s, after_s, strict=True))
    return Comparison(
        speedups=sorted(before / after for before, after in pairs),
        jct_ratio=sum(before_s) / sum(after_s),
        slowed_s=sorted(after - before for before, after in pairs if after > before),
    )
