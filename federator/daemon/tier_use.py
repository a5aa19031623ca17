"""Looks once an hour how much GPU time a productive hour takes in each tier, if prices count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from sqlalchemy import Engine

from federator.daemon.hourly_look import HourlyLook
from federator.daemon.own_config import OwnConfig
from federator.history.service import JobHistory
from federator.history.tier_use import tier_factors
from federator.model.message import TiersMeasured
from federator.model.workload import SiteName

FIRST_S: Final = 30.0

Factors = Mapping[tuple[str, str], float]


def tier_look(
    history: JobHistory,
    own: OwnConfig,
    clock: Callable[[], float],
    observe: Callable[[TiersMeasured], None],
) -> HourlyLook[Factors]:
    """Measures tiers for the core.

    Args:
        history: is read.
        own: the daemon's configuration, which a reload may change.
        clock: Unix time.
        observe: takes what was measured.
    """

    def question() -> Callable[[Engine], Factors] | None:
        config = own.now
        if not (config.policy.price_weight and config.prices.rules):
            return None
        return partial(tier_factors, prices=config.prices.price_list(), now_s=clock())

    def tell(factors: Factors) -> None:
        by_site = {(SiteName(site), tier): factor for (site, tier), factor in factors.items()}
        observe(TiersMeasured(factors=by_site))

    return HourlyLook("tiers", FIRST_S, history, question, tell)
