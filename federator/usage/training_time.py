"""Says how much of its GPU time a site's training spends on steps that are kept."""

from __future__ import annotations

from typing import Final

from federator.model.prices import PriceList
from federator.usage.report import UsageFound, report
from federator.usage.tiers import LEAST_GPU_MS

BY: Final = ("site",)


def training_ratios(found: UsageFound) -> dict[str, float]:
    """The effective training time ratio by site, 0 to 1: ``productive_frac`` of a report by site.

    Sites of which too little is known, or where no steps were kept, are left out.

    Args:
        found: in the history, with the columns that prices need.

    Source:
        ByteRobust (2025): effective training time by wall-clock time, of one job. Of a site it is
        ours: each job counts by the GPU time that it held, so that large gangs count most.
    """
    ratios = {}
    for row in report(found, BY, PriceList(), shows_supply=False).rows:
        known = row.held_gpu_ms - row.sums.get("unknown_gpu_ms", 0)
        if known >= LEAST_GPU_MS and row.productive_frac is not None:
            ratios[row.key[0]] = row.productive_frac
    return ratios
