"""Says how much GPU time a productive hour takes in each tier of a site."""

from __future__ import annotations

from typing import Final

from federator.model.prices import PriceList
from federator.usage.report import UsageFound, report
from federator.usage.rows import TIER

BY: Final = ("site", TIER)
LEAST_GPU_MS: Final = 24 * 3_600_000
"""GPU time of which it is known what became of it; of less nothing is said."""


def time_factors(found: UsageFound, prices: PriceList) -> dict[tuple[str, str], float]:
    """GPU time by productive time, at least 1, by site and tier; see ``EFFECTIVE`` of reports.

    Those of which too little is known, or nothing was productive, are left out.

    Args:
        found: in the history, with the columns that prices need.
        prices: whose tiers are meant.
    """
    factors = {}
    for row in report(found, BY, prices, shows_supply=False).rows:
        known = row.held_gpu_ms - row.sums.get("unknown_gpu_ms", 0)
        productive = row.sums.get("productive_gpu_ms", 0)
        if known >= LEAST_GPU_MS and productive > 0:
            factors[row.key[0], row.key[1]] = max(1.0, known / productive)
    return factors
