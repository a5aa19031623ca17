"""Passes over a long queue leave time for what comes in."""

from __future__ import annotations

from federator.daemon.pace import Pace


def test_a_quick_turn_delays_the_next_pass_by_next_to_nothing() -> None:
    pace = Pace()
    pace.turn_took(100.0, 100.001)
    assert pace.rests_until_s < 100.011


def test_wakes_get_a_tenth_of_the_time_while_passes_are_long() -> None:
    pace = Pace()
    pace.turn_took(100.0, 100.125)
    assert pace.rests_until_s == 101.25


def test_a_short_turn_after_a_long_one_does_not_shorten_its_rest() -> None:
    pace = Pace()
    pace.turn_took(100.0, 100.125)
    pace.turn_took(100.15, 100.175)
    assert pace.rests_until_s == 101.25


def test_no_rest_is_longer_than_two_seconds() -> None:
    pace = Pace()
    pace.turn_took(100.0, 110.0)
    assert pace.rests_until_s == 112.0
