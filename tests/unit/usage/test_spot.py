"""What spot capacity costs, by the case of fleet.md: 512 GPUs for 14 days at $2 an hour."""

from __future__ import annotations

from math import inf

import pytest

from federator.usage.spot import SpotTerms, effective_gpu_h, total_hours

GPUS, HOURS, ON_DEMAND = 512, 336.0, 2.0
SPOT = SpotTerms(gpu_h=ON_DEMAND * 0.35, interruptions_day=14, lost_h=0.5, save_frac=0.05)


def test_the_case_of_the_spec_saves_half() -> None:
    assert GPUS * HOURS * ON_DEMAND == 344_064
    assert total_hours(HOURS, SPOT) == pytest.approx(450.8)
    spent = GPUS * HOURS * effective_gpu_h(HOURS, SPOT)
    assert round(spent) == 161_567
    assert 1 - spent / 344_064 == pytest.approx(0.53, abs=0.005)


def test_without_interruptions_and_saves_it_is_the_spot_price() -> None:
    assert effective_gpu_h(HOURS, SpotTerms(gpu_h=0.7)) == 0.7


def test_it_is_dearer_than_on_demand_once_interruptions_take_too_much() -> None:
    often = SpotTerms(gpu_h=0.7, interruptions_day=90, lost_h=0.5)
    assert effective_gpu_h(HOURS, often) > ON_DEMAND


def test_what_produces_nothing_has_no_price() -> None:
    assert effective_gpu_h(0.0, SPOT) == inf
