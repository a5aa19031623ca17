"""How a job's GPUs swing between idle and busy, as the watch counts it."""

from __future__ import annotations

import pytest
from fednode import summary, swings
from fednode.watching import Reading
from hypothesis import given
from hypothesis import strategies as st


def told(*looks: float | None) -> dict[str, object]:
    return swings.as_record(swings.counted({}, looks) if looks else {})


def test_a_sawtooth_has_a_wide_spread_and_falls_again_and_again() -> None:
    assert told(*[1.0, 1.0, 0.0, 0.0] * 10) == {
        "swing_looks": 40,
        "gpu_busy_spread_frac": 0.5,
        "gpu_low_frac": 0.5,
        "gpu_high_frac": 0.5,
        "gpu_falls": 10,
        "gpu_low_longest_frac": 0.05,
    }


def test_a_slow_start_is_one_long_time_without_work_and_no_fall() -> None:
    record = told(*[0.0] * 30, *[1.0] * 70)
    assert (record["gpu_falls"], record["gpu_low_longest_frac"]) == (0, 0.3)


def test_between_high_and_low_lies_neither_and_a_fall_may_take_several_looks() -> None:
    record = told(0.9, 0.5, 0.1, 0.5, 0.1, None, 0.9)
    assert (record["gpu_falls"], record["gpu_low_frac"], record["swing_looks"]) == (1, 0.3333, 6)


def test_what_is_not_known_counts_nothing() -> None:
    assert told() == told(None, None) == {}
    assert swings.mean_busy([]) is None
    assert swings.mean_busy([Reading(1.0, 0.5), None]) is None
    assert swings.mean_busy([Reading(1.0, 0.5), Reading(1.0, None)]) is None
    assert swings.mean_busy([Reading(1.0, 0.5), Reading(None, 0.7)]) == pytest.approx(0.6)


@given(st.lists(st.none() | st.floats(0, 1), max_size=60), st.integers(0, 60))
def test_looks_that_come_in_parts_count_the_same_in_bounded_space(
    looks: list[float | None], cut: int
) -> None:
    whole = swings.counted(None, looks)
    assert swings.counted(swings.counted(None, looks[:cut]), looks[cut:]) == pytest.approx(whole)
    assert len(whole) <= 9


def test_a_tally_of_an_earlier_watch_is_told_as_before_and_goes_on() -> None:
    """One that was kept in watch.json while the hooks were upgraded."""
    tally = {"looks": 2, "busy_n": 2, "busy_sum": 1.0, "busy_most": 0.6}
    tally |= {"memory_n": 2, "memory_sum": 200.0, "memory_most": 100.0}
    assert summary.as_record(tally) == {
        "looks": 2,
        "gpu_busy_mean_frac": 0.5,
        "gpu_busy_most_frac": 0.6,
        "memory_mean_mib": 100,
        "memory_most_mib": 100,
    }
    after = summary.added(tally, [Reading(100.0, 0.5, 81_559.0, 0.25)], [0.5])
    record = summary.as_record(after)
    assert (record["looks"], record["swing_looks"]) == (3, 1)
    assert (record["memory_total_mib"], record["gpu_power_mean_frac"]) == (81_559, 0.25)
