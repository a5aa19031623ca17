"""GPU time by productive time, by site and tier."""

from __future__ import annotations

import pytest

from federator.usage.report import UsageFound, with_prices
from federator.usage.tiers import BY, time_factors
from tests.unit.usage.test_report import PRICES, sums


def factors(parts: dict[tuple[str | int, ...], list[int]]) -> dict[tuple[str, str], float]:
    found = UsageFound(
        columns=with_prices(BY),
        sums=parts,
        supply={},
        held={},
        start_s=0.0,
        end_s=86_400.0,
        at_s=86_400.0,
    )
    return time_factors(found, PRICES)


def test_the_case_of_the_chapter_takes_451_hours_for_336() -> None:
    spot = sums(productive=336, save=16.8, lost_failure=98, unknown=5000)
    assert factors({("alpine", "burst", "a100"): spot}) == {
        ("alpine", "spot"): pytest.approx(450.8 / 336)
    }


def test_partitions_and_types_of_one_tier_count_together_and_sites_apart() -> None:
    parts: dict[tuple[str | int, ...], list[int]] = {
        ("alpine", "gpu", "a100"): sums(productive=50),
        ("alpine", "debug", "h100"): sums(productive=50, failed=100),
        ("baker", "gpu", "a100"): sums(productive=50, start_up=50),
    }
    assert factors(parts) == {("alpine", "on-demand"): 2.0, ("baker", "on-demand"): 2.0}


def test_of_what_is_hardly_known_nothing_is_said() -> None:
    parts: dict[tuple[str | int, ...], list[int]] = {
        ("alpine", "gpu", "a100"): sums(productive=2, lost_failure=21, unknown=900),
        ("baker", "gpu", "a100"): sums(start_up=500),
    }
    assert factors(parts) == {}
