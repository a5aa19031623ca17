"""Laws of estimated starts, whatever the waits are."""

from __future__ import annotations

from math import inf
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.sched.starts.calibration import COVERAGE, Calibration, Wait
from federator.sched.starts.estimates import MOST_S, kept_back
from federator.sched.starts.plays import quantile

WAITS_S = st.floats(0.0, 1e6)
CLASSES = st.sampled_from(("size 1", "size 2", "size 4"))


@given(
    st.lists(st.tuples(WAITS_S, CLASSES), max_size=60),
    st.lists(WAITS_S, min_size=3, max_size=3).map(sorted),
)
def test_an_interval_is_in_order_and_not_in_the_past(
    seen: list[tuple[float, str]], played: list[float]
) -> None:
    known = Calibration()
    for wait_s, size in seen:
        shown = known.corrected(Wait(*played), (size,))
        assert 0.0 <= shown.earliest_s <= shown.likely_s <= shown.latest_s < inf
        known.gave((size,))
        known.judge(shown, (size,), wait_s)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.05, 20.0),
    st.floats(0.3, 2.0),
    st.floats(0.5, 3.0),
)
def test_nine_of_ten_hold_in_each_class_however_wrong_the_plays_are(
    seed: int, bias: float, spread: float, true_spread: float
) -> None:
    """Waits that are exchangeable within a class; each class is wrong in its own way."""
    draw, known = Random(seed), Calibration()
    hits: dict[str, list[bool]] = {"size 1": [], "size 4": []}
    for _ in range(1500):
        for size, by in (("size 1", 1.0), ("size 4", bias)):
            wait_s = 600.0 * by * draw.lognormvariate(0.0, true_spread)
            played = Wait(*(600.0 * draw.uniform(0.8, 1.2) * f for f in _ends(spread)))
            shown = known.corrected(played, (size,))
            hits[size].append(shown.holds(wait_s))
            known.judge(shown, (size,), wait_s)
    for of_class in hits.values():
        later = of_class[300:]
        assert abs(sum(later) / len(later) - COVERAGE) < 0.03


def _ends(spread: float) -> tuple[float, float, float]:
    return 1 / (1 + spread), 1.0, 1.0 + spread


@given(st.lists(st.floats(0.0, 1e6) | st.just(inf), min_size=1, max_size=64))
def test_quantiles_of_plays_are_in_order_and_among_them(starts_s: list[float]) -> None:
    ascending = sorted(starts_s)
    found = [quantile(ascending, q / 20) for q in range(20)]
    assert found == sorted(found)
    assert set(found) <= set(starts_s)


@given(WAITS_S, WAITS_S, WAITS_S)
def test_an_interval_without_an_end_is_never_shown(a: float, b: float, c: float) -> None:
    low, likely, high = sorted((a, b, c))
    assert kept_back(Wait(low, likely, inf)) is not None
    assert (kept_back(Wait(likely, likely, likely)) is None) == (likely <= MOST_S)
    wider = Wait(low, likely, high + 1.0)
    if kept_back(Wait(low, likely, high)) is not None:
        assert kept_back(wider) is not None
