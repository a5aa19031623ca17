"""Corrected intervals: wide where they failed, and told together with how often they held."""

from __future__ import annotations

from math import inf

from federator.sched.starts.calibration import (
    COVERAGE,
    GRAIN_S,
    KEPT_OF_CLASS,
    RATED_CLASSES,
    Calibration,
    HitRate,
    SavedCalibration,
    Wait,
)

PLAYED = Wait(60.0, 120.0, 240.0)


def judged(known: Calibration, classes: tuple[str, ...], wait_s: float, times: int = 1) -> None:
    for _ in range(times):
        given = known.corrected(PLAYED, classes)
        known.judge(given, classes, wait_s)


def test_before_anything_is_known_the_ends_are_twice_as_far_as_played() -> None:
    given = Calibration().corrected(PLAYED, ("size 1",))
    assert [round(wait_s) for wait_s in given] == [13, 120, 542]


def test_starts_beyond_one_end_move_that_end_alone() -> None:
    known = Calibration()
    first = known.corrected(PLAYED, ())
    for _ in range(10):
        given = known.corrected(PLAYED, ())
        known.judge(given, (), given.latest_s + 1.0)
    after = known.corrected(PLAYED, ())
    assert (after.latest_s + GRAIN_S) / (after.likely_s + GRAIN_S) > 2 * (
        (first.latest_s + GRAIN_S) / (first.likely_s + GRAIN_S)
    )
    assert (after.likely_s + GRAIN_S) / (after.earliest_s + GRAIN_S) < (
        (first.likely_s + GRAIN_S) / (first.earliest_s + GRAIN_S)
    )


def test_what_always_comes_later_than_played_is_moved_there() -> None:
    known = Calibration()
    judged(known, ("size 1",), 1200.0, 400)
    given = known.corrected(PLAYED, ("size 1",))
    assert 1100 < given.likely_s < 1300
    assert given.holds(1200.0)


def test_an_interval_that_always_holds_becomes_narrower() -> None:
    known = Calibration()
    first = known.corrected(PLAYED, ())
    judged(known, (), 120.0, 200)
    given = known.corrected(PLAYED, ())
    assert given.latest_s - given.earliest_s < 0.5 * (first.latest_s - first.earliest_s)
    assert given.earliest_s <= given.likely_s <= given.latest_s


def test_a_class_that_fails_widens_itself_more_than_others() -> None:
    known = Calibration()
    judged(known, ("size 1",), 3000.0, 20)
    judged(known, ("size 2",), 120.0, 20)
    failed, held = known.corrected(PLAYED, ("size 1",)), known.corrected(PLAYED, ("size 2",))
    assert failed.likely_s > held.likely_s


def test_what_lies_beyond_the_horizon_stays_there() -> None:
    known = Calibration()
    judged(known, (), 120.0, 30)
    assert known.corrected(Wait(60.0, 120.0, inf), ()).latest_s == inf


def test_the_hit_rate_is_of_the_latest_that_were_judged() -> None:
    known = Calibration()
    assert (known.judged, known.hit_frac) == (0, 0.0)
    for wait_s in (60.0, 100.0, 240.0, 241.0):
        known.judge(PLAYED, (), wait_s)
    known.judge(PLAYED, (), 1000.0, counts=False)
    assert (known.judged, known.hit_frac) == (5, 0.75)


def test_one_that_was_saved_corrects_as_before() -> None:
    known, again = Calibration(), Calibration()
    judged(known, ("size 1",), 900.0, 25)
    known.judge(PLAYED, (), 1.0)
    again.restore(known.saved())
    assert (again.judged, again.latest, again.hit_frac) == (26, 26, known.hit_frac)
    assert again.corrected(PLAYED, ("size 1",)) == known.corrected(PLAYED, ("size 1",))
    assert 0 < COVERAGE < 1


def test_a_saved_correction_beyond_its_bound_is_bounded() -> None:
    known = Calibration()
    known.restore(SavedCalibration(parts=(("all", 1e9, 1e300, -1e300, 5),)))
    assert all(abs(wait_s) < 1e6 for wait_s in known.corrected(PLAYED, ()))


def test_many_that_were_given_together_are_judged_as_few() -> None:
    """Else the start of a burst, whose intervals all failed alike, would correct without bound."""
    alone, burst = Calibration(), Calibration()
    for known in (alone, burst):
        for _ in range(1 if known is alone else 200):
            known.gave(("size 1",))
    given = burst.corrected(PLAYED, ("size 1",))
    for _ in range(200):
        burst.judge(given, ("size 1",), 5000.0)
    alone.judge(given, ("size 1",), 5000.0)
    once, often = (known.corrected(PLAYED, ("size 1",)).latest_s for known in (alone, burst))
    assert PLAYED.latest_s < once < often < 100 * PLAYED.latest_s


def test_what_is_never_judged_is_open_no_more() -> None:
    known, other = Calibration(), Calibration()
    for _ in range(100):
        known.gave(())
        known.forget(())
    judged(known, (), 900.0, 3)
    judged(other, (), 900.0, 3)
    assert known.corrected(PLAYED, ()) == other.corrected(PLAYED, ())


def told(known: Calibration, name: str, *waits_s: float, counts: bool = True) -> None:
    for wait_s in waits_s:
        known.judge(PLAYED, (), wait_s, counts=counts, rated=name)


def test_a_hit_rate_is_told_of_each_class_that_was_shown() -> None:
    known = Calibration()
    told(known, "size 1, over quota", 100.0, 241.0)
    told(known, "size 2, over quota", 100.0)
    told(known, "size 3, over quota", 100.0, counts=False)
    assert known.rates() == (
        HitRate("size 1, over quota", 2, 0.5),
        HitRate("size 2, over quota", 1, 1.0),
    )
    assert known.rate_of("size 3, over quota") is None
    again = Calibration()
    again.restore(known.saved())
    assert again.rates() == known.rates()


def test_hit_rates_of_classes_are_of_the_latest_and_of_few_classes() -> None:
    known = Calibration()
    told(known, "first", *[1000.0] * 5, *[100.0] * KEPT_OF_CLASS)
    assert known.rate_of("first") == HitRate("first", KEPT_OF_CLASS, 1.0)
    for number in range(RATED_CLASSES):
        told(known, f"class {number}", 100.0)
    assert known.rate_of("first") is None
    more = tuple((f"of a file {number}", "10") for number in range(2 * RATED_CLASSES))
    known = Calibration()
    known.restore(SavedCalibration(hits_of=(*more, ("none", ""))))
    assert len(known.rates()) == RATED_CLASSES - 1
