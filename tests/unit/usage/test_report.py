"""Costs of a report by tier and day, and what a productive hour costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from federator.model.prices import PriceList, PriceRule, Rates
from federator.usage.days import MEASURES
from federator.usage.report import UsageFound, report, with_prices
from federator.usage.rows import UsageRow

HOUR_MS = 3_600_000
PRICES = PriceList(
    [
        PriceRule(partition="burst", rates=Rates(gpu_h=0.7), tier="spot"),
        PriceRule(rates=Rates(gpu_h=2.0), tier="on-demand"),
    ]
)


def sums(**hours: float) -> list[int]:
    """GPU hours by class."""
    found = dict.fromkeys(MEASURES, 0)
    for name, amount in hours.items():
        found[f"{name}_gpu_ms"] = round(amount * HOUR_MS)
    return list(found.values())


def rows(
    parts: Mapping[tuple[str | int, ...], Sequence[int]],
    by: tuple[str, ...],
    prices: PriceList = PRICES,
) -> dict[tuple[str, ...], UsageRow]:
    found = UsageFound(
        columns=with_prices(by, dated=bool(prices.periods(0, 100))),
        sums=parts,
        supply={},
        held={},
        start_s=0.0,
        end_s=86_400.0,
        at_s=86_400.0,
    )
    return {row.key: row for row in report(found, by, prices).rows}


def test_the_case_of_the_chapter_costs_by_tier_what_it_says() -> None:
    """512 GPUs for 336 productive hours: $2 on demand, or spot at 65 % off with 14 losses a day."""
    gpus, hours = 512, 336.0
    productive, save = gpus * hours, gpus * hours * 0.05
    lost = gpus * hours / 24 * 14 * 0.5  # half an hour for each loss
    found = rows(
        {
            ("alpine", "gpu", "h100"): sums(productive=productive),
            ("alpine", "burst", "h100"): sums(productive=productive, save=save, lost_failure=lost),
        },
        ("tier",),
    )
    on_demand, spot = found[("on-demand",)], found[("spot",)]
    assert on_demand.cost == pytest.approx(344_064)
    assert on_demand.effective_gpu_h == pytest.approx(2.0)
    assert round(spot.cost or 0.0) == 161_567
    assert spot.effective_gpu_h == pytest.approx(0.7 * 450.8 / 336)


def test_what_is_not_known_to_be_productive_has_no_part_in_the_effective_price() -> None:
    (row,) = rows({("a", "gpu", "h100"): sums(productive=10, unknown=90)}, ("tier",)).values()
    assert row.cost == pytest.approx(200.0)
    assert row.effective_gpu_h == pytest.approx(2.0)
    (row,) = rows({("a", "gpu", "h100"): sums(unknown=90)}, ("tier",)).values()
    assert row.effective_gpu_h is None, "no steps are known"


def test_steps_without_a_price_have_no_part_in_the_effective_price() -> None:
    prices = PriceList([PriceRule(gpu_type="h100", rates=Rates(gpu_h=2.0))])
    parts: dict[tuple[str | int, ...], list[int]] = {
        ("vision", "a", "gpu", "h100"): sums(productive=10, save=10),
        ("vision", "a", "gpu", "t4"): sums(productive=90),
        ("nlp", "a", "gpu", "t4"): sums(productive=90),
    }
    found = rows(parts, ("tenant",), prices)
    assert found[("vision",)].effective_gpu_h == pytest.approx(4.0)
    assert found[("nlp",)].effective_gpu_h is None


def test_each_day_costs_what_it_cost_then() -> None:
    rule = PriceRule(rates=Rates(gpu_h=5.0), since_day=8, until_day=9, tier="reserved")
    dated = PriceList([rule, *PRICES.rules])
    parts: dict[tuple[str | int, ...], list[int]] = {
        ("vision", "a", "gpu", "h100", day): sums(unknown=1) for day in (7, 8, 9)
    }
    (row,) = rows(parts, ("tenant",), dated).values()
    assert row.cost == pytest.approx(2.0 + 5.0 + 2.0)
    parts = {("a", "gpu", "h100", day): sums(unknown=1) for day in (7, 8, 9)}
    by_tier = rows(parts, ("tier",), dated)
    assert {key: row.cost for key, row in by_tier.items()} == {
        ("on-demand",): 4.0,
        ("reserved",): 5.0,
    }
