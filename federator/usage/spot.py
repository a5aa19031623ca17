"""Tells what spot capacity costs once its interruptions are counted."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

DAY_H: Final = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms:
    """How spot capacity is sold, and what a workload makes of it."""

    gpu_h: float  # the price of a GPU hour
    interruptions_day: float = 0.0
    lost_h: float = 0.0  # by each: work since the last save, and start-up
    save_frac: float = 0.0  # of productive time, that saves take on top


def total_hours(productive_h: float, terms: SpotTerms) -> float:
    """The hours that a workload takes with saves and interruptions.

    Interruptions are counted by the days of productive work, which is a little too few.
    *Source*: fleet.md, capacity and cost.
    """
    lost_h = productive_h / DAY_H * terms.interruptions_day * terms.lost_h
    return productive_h * (1 + terms.save_frac) + lost_h


def effective_gpu_h(productive_h: float, terms: SpotTerms) -> float:
    """The price of a productive GPU hour: the spot price times total by productive hours."""
    if productive_h <= 0:
        return inf
    return terms.gpu_h * total_hours(productive_h, terms) / productive_h
