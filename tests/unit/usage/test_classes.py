"""An attempt's time is believed as far as the federation's own clock bears it out."""

from __future__ import annotations

from federator.usage.classes import AttemptTimes, RecordFlag, Split, TimeClass, split

T0_S = 1_790_000_000.0
DAY_S = 86_400.0


def hours(found: Split) -> dict[TimeClass, float]:
    return {span.kind: (span.end_ms - span.start_ms) / 3.6e6 for span in found.spans}


def times(awarded_at_s: float, started_at_s: float, ended_at_s: float) -> AttemptTimes:
    return AttemptTimes(
        attempt=1,
        awarded_at_s=awarded_at_s,
        started_at_s=started_at_s,
        ended_at_s=ended_at_s,
        known_at_s=T0_S + 3600,
        state="COMPLETED",
    )


def test_a_start_long_before_the_award_counts_from_two_minutes_before_it() -> None:
    found = split(times(T0_S, T0_S - 100 * DAY_S, T0_S + 3480))
    assert hours(found) == {TimeClass.UNKNOWN: 1.0}
    assert found.flags == {RecordFlag.CLOCK}


def test_a_start_a_little_before_the_award_is_that_of_another_clock() -> None:
    found = split(times(T0_S, T0_S - 120, T0_S + 3480))
    assert hours(found) == {TimeClass.UNKNOWN: 1.0}
    assert not found.flags


def test_a_start_after_it_was_over_counts_as_launching_until_then() -> None:
    for ended_at_s in (0.0, T0_S + 60 * DAY_S):
        found = split(times(T0_S, T0_S + 50 * DAY_S, ended_at_s))
        assert hours(found) == {TimeClass.LAUNCHING: 1.0}
        assert found.flags == {RecordFlag.CLOCK}


def test_what_was_awarded_at_no_known_time_is_believed() -> None:
    """As what a daemon adopted after its log had lost the award."""
    found = split(times(0.0, T0_S - 100 * DAY_S, T0_S))
    assert hours(found) == {TimeClass.UNKNOWN: 2400.0}
    assert not found.flags
