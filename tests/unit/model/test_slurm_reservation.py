"""Occurrences of reservations that come again, and the windows that they make."""

from __future__ import annotations

import pytest

from federator.model.slurm_reservation import SlurmReservation
from federator.model.window import windows_of

HOUR_S = 3_600.0
DAY_S = 86_400.0


def reservation(*flags: str, name: str = "m", at_s: float = 1_000.0) -> SlurmReservation:
    return SlurmReservation(
        name=name, starts_at_s=at_s, ends_at_s=at_s + HOUR_S, nodes=("n1", "n2"), flags=flags
    )


def test_the_occurrence_that_slurm_names_counts_until_its_end() -> None:
    one = reservation("DAILY")
    assert one.occurrence(0.0) == (1_000.0, 4_600.0)
    assert one.occurrence(4_599.0) == (1_000.0, 4_600.0)


def test_a_reservation_that_is_over_has_no_occurrence() -> None:
    assert reservation("MAINT").occurrence(4_600.0) is None


@pytest.mark.parametrize(
    ("flag", "in_s"),
    [
        ("HOURLY", HOUR_S),
        ("DAILY", DAY_S),
        ("WEEKDAY", DAY_S),
        ("WEEKEND", DAY_S),
        ("WEEKLY", 7 * DAY_S),
    ],
)
def test_until_slurm_names_the_next_one_it_comes_as_early_as_it_can(flag: str, in_s: float) -> None:
    start_s, end_s = reservation(flag).occurrence(4_600.0) or (0.0, 0.0)
    assert (start_s, end_s) == (1_000.0 + in_s, 4_600.0 + in_s)


def test_occurrences_that_were_missed_are_passed_over() -> None:
    assert reservation("DAILY").occurrence(10 * DAY_S) == (
        1_000.0 + 10 * DAY_S,
        4_600.0 + 10 * DAY_S,
    )


def test_windows_come_by_their_starts_with_the_nodes_that_matter() -> None:
    late, early = reservation(at_s=9_000.0), reservation("MAINT", name="x", at_s=10.0)
    none = reservation(name="elsewhere")
    windows = windows_of([late, early, none], {"n2": 64}, 0.0)
    assert [(w.name, w.nodes) for w in windows] == [
        ("x", ("n2",)),
        ("elsewhere", ("n2",)),
        ("m", ("n2",)),
    ]
    assert windows_of([late], {"n3": 64}, 0.0) == ()
