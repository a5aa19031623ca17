"""Draws days anew, with replacement, to say how far a figure depends on which days were seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

DRAWS: Final = 400
FEWEST_DAYS: Final = 3  # from fewer no interval can be told
_SIDES: Final = (5.0, 95.0)


class Interval(Struct, frozen=True):
    """Nine of ten draws of the days give a value in it."""

    low: float
    high: float


def mean_interval(values: Sequence[float], days: Sequence[int], seed: int) -> Interval | None:
    """Of the mean of values, each of a day; None: there are too few days."""
    totals: dict[int, tuple[float, int]] = {}
    for value, day in zip(values, days, strict=True):
        total, count = totals.get(day, (0.0, 0))
        totals[day] = (total + value, count + 1)
    parts = {day: total for day, (total, _) in totals.items()}
    wholes = {day: float(count) for day, (_, count) in totals.items()}
    return ratio_interval(parts, wholes, seed)


def ratio_interval(
    parts: Mapping[int, float], wholes: Mapping[int, float], seed: int
) -> Interval | None:
    """Of the sum of parts by the sum of wholes, both by day; None: there are too few days."""
    days = sorted(wholes)
    if len(days) < FEWEST_DAYS:
        return None
    part = np.array([parts.get(day, 0.0) for day in days])
    whole = np.array([wholes[day] for day in days])
    drawn: NDArray[np.int64] = np.random.default_rng(seed).integers(
        0, len(days), size=(DRAWS, len(days))
    )
    sums = whole[drawn].sum(axis=1)
    ratios = part[drawn].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.percentile(ratios, _SIDES)
    return Interval(float(low), float(high))
