"""Passes over a long queue leave time for what comes in."""

from __future__ import annotations

from federator.daemon.pass_throttle import PassThrottle


def test_a_quick_turn_delays_the_next_pass_by_next_to_nothing() -> None:
    pace = PassThrottle()
    pace.turn_took(100.0, 100.001, woke=True)
    assert pace.rests_until_s < 100.011


def test_wakes_get_a_tenth_of_the_time_while_passes_are_long() -> None:
    pace = PassThrottle()
    pace.turn_took(100.0, 100.125, woke=True)
    assert pace.rests_until_s == 101.25


def test_a_short_turn_after_a_long_one_does_not_shorten_its_rest() -> None:
    pace = PassThrottle()
    pace.turn_took(100.0, 100.125, woke=True)
    pace.turn_took(100.15, 100.175, woke=False)
    assert pace.rests_until_s == 101.25


def test_no_rest_is_longer_than_two_seconds() -> None:
    pace = PassThrottle()
    pace.turn_took(100.0, 110.0, woke=True)
    assert pace.rests_until_s == 112.0


def test_turns_without_end_put_a_wake_off_for_no_more_than_two_seconds() -> None:
    pace = PassThrottle()
    pace.turn_took(100.0, 100.125, woke=True)
    for k in range(1_000):
        pace.turn_took(100.125 + k / 64, 100.125 + (k + 1) / 64, woke=False)
    assert pace.rests_until_s == 102.125
