"""What an hour costs: the first rule that has a price, and Slurm's billing weights."""

from __future__ import annotations

import pytest

from federator.model.prices import PriceList, PriceRule, Rates
from federator.usage.prices import cost, of_weights


def test_of_each_price_the_first_rule_that_matches_and_has_it_counts() -> None:
    prices = PriceList(
        [
            PriceRule(site="alpine", gpu_type="h100", rates=Rates(gpu_h=4.0)),
            PriceRule(partition="debug", rates=Rates(gpu_h=0.0, cpu_h=0.0)),
            PriceRule(gpu_type="h100", rates=Rates(gpu_h=5.0)),
            PriceRule(rates=Rates(gpu_h=1.0, cpu_h=0.1)),
        ]
    )
    assert prices.rates("alpine", "gpu", "h100") == Rates(4.0, 0.1, None)
    assert prices.rates("birch", "gpu", "h100") == Rates(5.0, 0.1, None)
    assert prices.rates("birch", "long,debug", "a100") == Rates(0.0, 0.0, None)
    assert prices.rates("birch", "gpu", "") == Rates(1.0, 0.1, None)


def test_a_cost_is_none_where_nothing_has_a_price_and_zero_where_it_is_free() -> None:
    hour_ms = 3_600_000
    assert cost(Rates(), 8 * hour_ms, 1, 1) is None
    assert cost(Rates(gpu_h=0.0), 8 * hour_ms, 1, 1) == 0.0
    rates = Rates(gpu_h=2.0, cpu_h=0.5, mem_gib_h=0.25)
    assert cost(rates, 8 * hour_ms, 4 * hour_ms, 2 * 1024 * 3600) == pytest.approx(18.5)


def test_weights_are_read_as_slurm_reads_them() -> None:
    found = of_weights("CPU=1.0,Mem=0.25G,GRES/gpu=2.0,GRES/gpu:a100=3.0", 0.5)
    assert found == {"": Rates(1.0, 0.5, 0.125), "a100": Rates(1.5, 0.5, 0.125)}
    assert of_weights("Mem=1", 1.0)[""] == Rates(None, None, 1024.0), "of a MiB, where none is said"


@pytest.mark.parametrize("text", ["CPU", "CPU=x", "CPU=1G", "license/matlab=3", "CPU=1;Mem=2"])
def test_weights_that_cannot_be_accounted_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"TRES=WEIGHT|for Mem alone|not accounted"):
        of_weights(text, 1.0)
