"""Divergences are counted by site, account and reason, with the interval of the share."""

from __future__ import annotations

import pytest

from federator.sim.report.divergence_counts import clopper_pearson, count_divergences


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [
        # Closed forms: 0.05 ** (1 / n), 1 - 0.05 ** (1 / n); 1 of 2: 1 - sqrt(0.95), sqrt(0.95).
        (10, 10, 0.741134, 1.0),
        (0, 10, 0.0, 0.258866),
        (1, 1, 0.05, 1.0),
        (1, 2, 0.025321, 0.974679),
        # symmetric: the ends of 3 of 10 are those of 7 of 10, from the other side
        (7, 10, 1 - 0.606624, 1 - 0.087264),
        (3, 10, 0.087264, 0.606624),
    ],
)
def test_the_interval_is_the_exact_one(hits: int, tries: int, low: float, high: float) -> None:
    found = clopper_pearson(hits, tries)
    assert found.low == pytest.approx(low, abs=1e-6)
    assert found.high == pytest.approx(high, abs=1e-6)


def test_the_interval_of_a_million_narrows_to_the_share() -> None:
    found = clopper_pearson(990_000, 1_000_000)
    assert found.low < 0.99 < found.high
    assert found.high - found.low < 0.0004
    half = clopper_pearson(500_000, 1_000_000)
    assert half.low == pytest.approx(1 - half.high, abs=1e-9)


def test_without_a_divergence_nothing_is_in_the_way() -> None:
    found = count_divergences("bio", [])
    assert (found.divergences, found.with_reason_frac, found.interval) == (0, 1.0, None)
