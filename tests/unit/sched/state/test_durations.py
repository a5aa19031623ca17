"""Durations learned from runs, and predictions that hold nine times in ten."""

from __future__ import annotations

from math import inf
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.model.workload import TenantName
from federator.sched.state import recent_runs
from federator.sched.state.corrections import AGES_S
from federator.sched.state.durations import DurationModel, KnownFrom, OpenRun, Remaining
from federator.sched.state.save_times import Family

VISION = TenantName("vision")
TRAIN: Family = (VISION, "vision1", "train-1")
HOUR_S = 3600.0
RUNS = list[tuple[int, OpenRun]]


def known(model: DurationModel, family: Family, gpus: int, ran_s: float = 0.0) -> Remaining:
    found = model.remaining(family, gpus, ran_s)
    assert found is not None
    return found


def model_of(*durations_s: float, family: Family = TRAIN, gpus: int = 8) -> DurationModel:
    model = DurationModel()
    for duration_s in durations_s:
        model.observe(family, gpus, duration_s)
    return model


def test_nothing_is_predicted_of_what_nothing_is_known_of() -> None:
    assert DurationModel().remaining(TRAIN, 8) is None
    assert DurationModel().remaining_of(1, 0.0) is None


def test_a_run_that_outlasts_all_of_its_like_is_drawn_until_its_limit() -> None:
    model = model_of(*[600.0] * 10)
    found = model.lasting(TRAIN, 8, ran_s=1200.0, limit_s=HOUR_S)
    assert found is not None
    left_s = [found.left_s(tenth / 10) for tenth in range(10)]
    assert left_s == sorted(left_s)
    assert left_s[0] == 1.0
    assert left_s[-1] < HOUR_S - 1200.0
    assert model.lasting(TRAIN, 8, ran_s=1200.0) is None  # without a limit nothing is known
    model.started(1, TRAIN, 8, 0.0)
    followed = model.lasting_of(1, 1200.0, HOUR_S - 1200.0)
    assert followed is not None
    assert followed.left_s(0.999) == pytest.approx(HOUR_S - 1200.0, rel=0.01)


def test_a_run_is_expected_to_take_what_others_of_its_kind_took() -> None:
    found = known(model_of(*[HOUR_S] * 10), TRAIN, 8)
    assert found.expected_s == pytest.approx(HOUR_S, rel=0.05)
    assert HOUR_S <= found.q90_s <= 1.07 * HOUR_S
    assert found.known_from is KnownFrom.NAME


def test_the_time_that_a_run_has_taken_already_counts() -> None:
    model = model_of(*[60.0] * 10, *[10 * HOUR_S] * 10)
    assert known(model, TRAIN, 8).expected_s == pytest.approx(5 * HOUR_S, rel=0.05)
    later = known(model, TRAIN, 8, ran_s=HOUR_S)  # so it is none of the short ones
    assert later.expected_s == pytest.approx(9 * HOUR_S, rel=0.05)
    assert later.q90_s == pytest.approx(9 * HOUR_S, rel=0.1)


def test_a_run_that_outlasts_all_others_of_every_kind_is_not_predicted() -> None:
    assert model_of(60.0, 90.0).remaining(TRAIN, 8, ran_s=100.0) is None


def test_numbers_in_a_name_tell_no_families_apart() -> None:
    model = model_of(*[HOUR_S] * 10)
    assert known(model, (VISION, "vision1", "train-99"), 8).known_from is KnownFrom.NAME


@pytest.mark.parametrize(
    ("family", "known_from"),
    [
        ((VISION, "vision1", "another"), KnownFrom.USER),
        ((TenantName("speech"), "vision1", "train-1"), KnownFrom.USER),
        ((VISION, "vision2", "train-1"), KnownFrom.TENANT),
        ((TenantName("speech"), "speech1", "train-1"), KnownFrom.SIZE),
    ],
)
def test_the_most_specific_kind_that_has_enough_runs_is_asked(
    family: Family, known_from: KnownFrom
) -> None:
    assert known(model_of(*[HOUR_S] * 10), family, 8).known_from is known_from


def test_a_few_runs_of_a_kind_count_less_than_many_of_a_broader_one() -> None:
    model = model_of(*[HOUR_S] * 10, family=(VISION, "vision2", "other"))
    model.observe(TRAIN, 8, 60.0)
    assert known(model, TRAIN, 8).known_from is KnownFrom.TENANT


def test_a_run_of_another_size_says_nothing_of_this_one() -> None:
    model = model_of(*[HOUR_S] * 10, gpus=8)
    assert model.remaining(TRAIN, 5) is not None
    assert model.remaining(TRAIN, 16) is None


def test_only_the_latest_runs_count() -> None:
    model = model_of(*[HOUR_S] * 300, *[60.0] * recent_runs.RUNS_KEPT[0])
    assert known(model, TRAIN, 8).q90_s < 70


def test_a_limit_bounds_whatever_is_predicted() -> None:
    model = model_of(*[10 * HOUR_S] * 10)
    found = model.remaining(TRAIN, 8, ran_s=600.0, limit_s=HOUR_S)
    assert found is not None
    assert found.expected_s == found.q90_s == 3000.0
    assert model.remaining(TRAIN, 8, ran_s=2 * HOUR_S, limit_s=HOUR_S) == Remaining(
        0.0, 0.0, KnownFrom.NAME
    )


def test_one_that_was_cut_off_counts_as_one_that_ran_longer() -> None:
    model = model_of(*[HOUR_S] * 20)
    for _ in range(10):
        model.observe(TRAIN, 8, 60.0, cut_off=True)
    assert known(model, TRAIN, 8).expected_s == pytest.approx(HOUR_S, rel=0.05)
    model.observe(TRAIN, 8, 30 * HOUR_S, cut_off=True)  # none ran longer
    assert known(model, TRAIN, 8, ran_s=20 * HOUR_S).q90_s == pytest.approx(10 * HOUR_S, rel=0.2)


def test_a_hundred_thousand_kinds_are_kept_and_the_latest_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent_runs, "KINDS_KEPT", 100)
    model = DurationModel()
    for k in range(1000):
        model.observe((VISION, f"u{k}", "train"), 8, HOUR_S)
    assert len(list(model.recent.saved())) == 100
    assert known(model, (VISION, "u999", "train"), 8).known_from is not KnownFrom.SIZE
    assert known(model, (TenantName("speech"), "u1", "train"), 8).known_from is KnownFrom.SIZE


# ---- promises ----


def kept(model: DurationModel, draw: Random, since_s: float, means_s: list[float]) -> int:
    """How many of some runs, one after another, were over by the 90 % quantile."""
    count, now_s = 0, since_s
    for run, mean_s in enumerate(means_s):
        duration_s = draw.expovariate(1 / mean_s)
        model.advance(now_s)
        found = model.remaining(TRAIN, 8)
        count += found is not None and duration_s <= found.q90_s
        model.started(run, TRAIN, 8, now_s)
        now_s += duration_s
        model.advance(now_s)
        model.ended(run, now_s)
    return count


def test_nine_of_ten_runs_are_over_by_the_quantile() -> None:
    assert 0.88 <= kept(DurationModel(), Random(1), 0.0, [HOUR_S] * 3000) / 3000 <= 0.92


def test_nine_of_ten_are_so_while_runs_grow_longer_all_the_time() -> None:
    means_s = [600.0 * 1.002**k for k in range(3000)]
    assert 0.87 <= kept(DurationModel(), Random(2), 0.0, means_s) / 3000 <= 0.93


def test_a_promise_is_broken_at_its_time_and_not_when_the_run_ends_at_last() -> None:
    model = model_of(*[60.0] * 30)
    before_s = known(model, TRAIN, 8).q90_s
    model.observe((VISION, "u", "long"), 8, 100 * HOUR_S)
    for run in range(20):
        model.started(run, TRAIN, 8, 1000.0)
    model.advance(1000.0 + 300.0)  # all of them still run
    assert known(model, TRAIN, 8).q90_s > 1.3 * before_s


def test_an_end_that_becomes_known_late_breaks_no_promise() -> None:
    """As that of runs at a site that was out of reach."""
    model, punctual = (model_of(*[60.0] * 30, 100 * HOUR_S) for _ in range(2))
    for run in range(20):
        model.started(run, TRAIN, 8, 1000.0)
        punctual.started(run, TRAIN, 8, 1000.0)
    model.advance(1000.0 + HOUR_S)
    for run in range(20):
        model.ended(run, 1050.0)
        punctual.ended(run, 1050.0)
    assert known(model, TRAIN, 8).q90_s == pytest.approx(known(punctual, TRAIN, 8).q90_s, rel=0.2)


def test_a_run_that_goes_on_later_has_run_already() -> None:
    model = model_of(*[2 * HOUR_S] * 10)
    model.started(1, TRAIN, 8, 1000.0)
    assert model.stopped(1, 1000.0 + HOUR_S) == HOUR_S
    assert model.remaining_of(1, 1000.0 + HOUR_S) is None
    model.started(1, TRAIN, 8, 90_000.0, ran_s=HOUR_S)
    left = model.remaining_of(1, 90_000.0 + 600.0)
    assert left is not None
    assert left.expected_s == pytest.approx(3000.0, rel=0.1)
    model.ended(1, 90_000.0 + HOUR_S)
    assert known(model, TRAIN, 8).expected_s == pytest.approx(2 * HOUR_S, rel=0.05)


def test_the_limit_of_a_run_that_goes_on_is_what_is_left_of_it() -> None:
    model = model_of(*[10 * HOUR_S] * 10)
    model.started(1, TRAIN, 8, 1000.0, ran_s=HOUR_S)
    left = model.remaining_of(1, 1600.0, limit_s=60.0)
    assert left is not None
    assert left.q90_s == 60.0
    assert model.remaining_of(1, 1600.0, limit_s=inf) == known(model, TRAIN, 8, HOUR_S + 600.0)


def test_what_is_to_come_due_does_not_pile_up() -> None:
    model = model_of(*[30 * 24 * HOUR_S] * 10)
    for run in range(5000):
        model.started(run, TRAIN, 8, float(run))
        model.advance(run + 0.5)
        model.ended(run, run + 0.5)
        model.observe(TRAIN, 8, 30 * 24 * HOUR_S)
    assert len(model._due) <= 64 + 8


def test_a_run_of_no_known_number_teaches_nothing() -> None:
    model = DurationModel()
    model.ended(7, 100.0)
    assert model.stopped(7, 100.0) == 0.0
    assert list(model.recent.saved()) == []


def follow(model: DurationModel, draw: Random, first: int, runs: int) -> list[Remaining | None]:
    """Some runs that overlap: what is predicted as each starts."""
    found = []
    for run in range(first, first + runs):
        now_s = 100.0 * run
        model.advance(now_s)
        found.append(model.remaining(TRAIN, 8, ran_s=draw.choice(AGES_S)))
        model.started(run, (VISION, draw.choice(["u", "v"]), "train"), draw.choice([1, 8]), now_s)
        ended = max(first, run - draw.randrange(200))
        model.ended(ended, now_s, cut_off=draw.random() < 0.1)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_was_saved_and_restored_predicts_as_if_it_had_gone_on(seed: int) -> None:
    model, restored = DurationModel(), DurationModel()
    follow(model, Random(seed), 0, 400)
    restored.recent.restore(list(model.recent.saved()))
    restored.restore_runs(msgspec.convert(msgspec.to_builtins(list(model.saved_runs())), RUNS))
    restored.restore_corrections(model.saved_corrections())
    went_on = follow(model, Random(-seed), 400, 400)
    assert follow(restored, Random(-seed), 400, 400) == went_on
    assert restored.saved_corrections() == model.saved_corrections()
    assert list(restored.recent.saved()) == list(model.recent.saved())


@given(
    st.lists(st.floats(0.0, 1e9), max_size=40),
    st.floats(0.0, 1e9),
    st.floats(0.0, 1e9) | st.just(inf),
)
def test_no_prediction_is_negative_or_beyond_the_limit(
    durations_s: list[float], ran_s: float, limit_s: float
) -> None:
    found = model_of(*durations_s).remaining(TRAIN, 8, ran_s, limit_s)
    if found is not None:
        assert 0.0 <= found.expected_s <= max(0.0, limit_s - ran_s)
        assert 0.0 <= found.q90_s <= max(0.0, limit_s - ran_s)


def test_ages_begin_at_the_start() -> None:
    assert AGES_S[0] == 0.0
    assert list(AGES_S) == sorted(AGES_S)
