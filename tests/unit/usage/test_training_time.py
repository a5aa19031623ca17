"""The effective training time ratio of sites."""

from __future__ import annotations

import pytest

from federator.usage.report import UsageFound, with_prices
from federator.usage.training_time import BY, training_ratios
from tests.unit.usage.test_report import sums


def ratios(parts: dict[tuple[str | int, ...], list[int]]) -> dict[str, float]:
    found = UsageFound(
        columns=with_prices(BY),
        sums=parts,
        supply={},
        held={},
        start_s=0.0,
        end_s=86_400.0,
        at_s=86_400.0,
    )
    return training_ratios(found)


def test_kept_steps_count_of_all_time_whose_class_is_known_by_site() -> None:
    parts: dict[tuple[str | int, ...], list[int]] = {
        ("alpine", "gpu", "a100"): sums(productive=970, save=10, start_up=10, unknown=5000),
        ("alpine", "debug", "h100"): sums(lost_failure=10),
        ("baker", "gpu", "a100"): sums(productive=50, restore=50),
    }
    assert ratios(parts) == {"alpine": pytest.approx(0.97), "baker": pytest.approx(0.5)}


def test_of_what_is_hardly_known_nothing_is_said() -> None:
    parts: dict[tuple[str | int, ...], list[int]] = {
        ("alpine", "gpu", "a100"): sums(productive=2, lost_failure=21, unknown=900),
        ("baker", "gpu", "a100"): sums(start_up=500),
    }
    assert ratios(parts) == {}
