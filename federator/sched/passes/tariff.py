"""Tells what GPUs cost at a site, as bids are compared, and who takes no spot partitions any more.

A price counts as what a *productive* hour costs: times the part of GPU time that was worth
nothing, as it was measured of the site's tier. It counts in steps, so that a difference that is
smaller than one leaves the word to the terms behind it.

Source:
    Fleet spec, "Capacity and cost": C_eff = C_spot * T_total / T_productive, and that large models
    leave spot at about 4 interruptions a day. The steps are our choice: terms of a score are
    compared one after another, so a weight can only say how fine a difference counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from federator.model.prices import SPOT, PriceList
from federator.model.workload import Job, SiteName
from federator.sched.bid.score import Prices
from federator.sched.passes.site_view import SiteView
from federator.sched.state.rules import Rules
from federator.sched.state.workload_record import WorkloadRecord

DAY_S: Final = 86_400.0
MOST_FACTOR: Final = 100.0  # of GPU time that little came of; nothing is known of such a tier
NO_PRICES: Final[Prices] = {}


class Tariff:
    """Prices and tiers by the present configuration.

    Args:
        rules: see ``Rules``.
        factors: GPU time by productive time, at least 1, by site and tier; 1 where nothing is
            known of it.
    """

    def __init__(
        self, rules: Rules, factors: Mapping[tuple[SiteName, str], float] | None = None
    ) -> None:
        self._weight = rules.price_weight
        self._interruptions = rules.spot_interruptions
        self._list = PriceList(rules.prices)
        self.factors: Mapping[tuple[SiteName, str], float] = {} if factors is None else factors
        self._has_spot = any(rule.tier == SPOT for rule in rules.prices)

    def at(self, site: SiteName, view: SiteView, now_s: float) -> Prices:
        """The steps that a GPU costs for an hour, by partition and GPU type of a site."""
        if not self._weight:
            return NO_PRICES
        types = ["", *(name for name in view.gpus_by_type if name)]
        day = int(now_s // DAY_S)
        found = {
            partition: {
                name: steps for name in types if (steps := self._steps(site, partition, name, day))
            }
            for partition in view.partitions
        }
        return {partition: by_type for partition, by_type in found.items() if by_type}

    def _steps(self, site: SiteName, partition: str, gpu_type: str, day: int) -> float:
        price = self._list.rates(site, partition, gpu_type, day).gpu_h or 0.0
        tier = self._list.tier(site, partition, gpu_type, day)
        factor = min(MOST_FACTOR, max(1.0, self.factors.get((site, tier), 1.0)))
        return float(round(price * factor * self._weight))

    # ---- spot ----

    def avoids_spot_until_s(self, entry: WorkloadRecord, now_s: float) -> float:
        """Unix time until which a workload takes no spot partition; 0: it takes them.

        As long as so many interruptions that it met there are within a day.
        """
        most = self._interruptions
        if not (most and self._has_spot and len(entry.interruptions) >= most):
            return 0.0
        met = [
            at_s
            for at_s, site, partition, gpu_type in entry.interruptions
            if at_s > now_s - DAY_S and self._is_spot(site, partition, gpu_type, at_s)
        ]
        return sorted(met)[-most] + DAY_S if len(met) >= most else 0.0  # later than now

    def _is_spot(self, site: SiteName, partition: str, gpu_type: str, at_s: float) -> bool:
        return self._list.tier(site, partition, gpu_type, int(at_s // DAY_S)) == SPOT

    def without_spot(
        self, jobs: Iterable[Job], site: SiteName, partitions: tuple[str, ...], now_s: float
    ) -> tuple[tuple[str, ...], ...] | None:
        """The partitions of a site that are left to each job without spot; None: one has none."""
        found = []
        for job in jobs:
            allowed = [name for name in partitions if not job.partitions or name in job.partitions]
            types = job.gpu_types or ("",)
            left = tuple(
                name
                for name in allowed
                if not any(self._is_spot(site, name, gpu_type, now_s) for gpu_type in types)
            )
            if not left:
                return None
            found.append(left)
        return tuple(found)
