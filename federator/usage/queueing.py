"""Tells how long work waits by how full a pool is and how much its run times vary."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, pstdev
from typing import Final

TARGET: Final = (0.70, 0.85)
"""The loads that a pool should have: below, GPUs are idle; above, waits grow without bound.
*Source*: fleet.md, queueing."""


def wait_ratio(load_frac: float, variation: float, servers: float = 1.0) -> float:
    """The mean wait by the mean run time; inf: the queue grows for ever.

    Args:
        load_frac: how much of the pool is held.
        variation: of the run times, their standard deviation by their mean.
        servers: how many jobs of the usual size run at once.

    *Source*: fleet.md, queueing, ``rho / (1 - rho) * (1 + C^2) / 2`` for one server; of several it
    does not speak: H. Sakasegawa, An approximation formula L_q = a * rho^b / (1 - rho), 1977, which
    is the same for one.
    """
    if load_frac >= 1:
        return inf
    count = max(1.0, servers)
    queue: float = max(0.0, load_frac) ** (sqrt(2 * (count + 1)) - 1)
    return queue / (count * (1 - load_frac)) * (1 + variation**2) / 2


def variation_of(times_s: Sequence[float]) -> float:
    """The standard deviation of run times by their mean; 0 of none."""
    mean = fmean(times_s) if times_s else 0.0
    return pstdev(times_s) / mean if mean > 0 else 0.0
