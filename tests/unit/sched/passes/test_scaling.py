"""Whether a resize pays: the worked case of the specification, and its borders."""

from __future__ import annotations

import pytest

from federator.sched.passes.scaling import HORIZON_S, RESIZE_S, Phase, pays, rate, work_done

HOUR_S = 3600.0
# Epochs a second on 128, 256 and 512 GPUs.
R128, R256, R512 = 1.0 / HOUR_S, 1.8 / HOUR_S, 3.2 / HOUR_S
DAY_S = 24 * HOUR_S


@pytest.mark.parametrize(
    ("phases", "epochs"),
    [
        ([Phase(0.0, R128)], 24.0),  # at once, on what is free
        ([Phase(4 * HOUR_S, R512)], 64.0),  # waits for four hours
        ([Phase(0.0, R128), Phase(4 * HOUR_S, R256)], 39.7),  # steps up after four hours
    ],
)
def test_the_worked_case(phases: list[Phase], epochs: float) -> None:
    assert work_done(phases, DAY_S, resize_s=600.0) == pytest.approx(epochs, abs=0.01)


def test_to_start_small_and_grow_later_beats_a_wait_of_hours() -> None:
    waits = work_done([Phase(4 * HOUR_S, R512)], DAY_S, resize_s=600.0)
    grows = work_done([Phase(0.0, R128), Phase(4 * HOUR_S, R512)], DAY_S, resize_s=600.0)
    assert waits == pytest.approx(64.0)
    assert grows == pytest.approx(67.47, abs=0.01)


def test_it_costs_more_than_it_brings_where_the_wait_is_short() -> None:
    for wait_s, waits_more in ((1800.0, True), (2000.0, False)):
        waits = work_done([Phase(wait_s, R512)], DAY_S, resize_s=600.0)
        grows = work_done([Phase(0.0, R128), Phase(wait_s, R512)], DAY_S, resize_s=600.0)
        assert (waits > grows) is waits_more


def test_a_doubling_brings_what_the_worked_case_says() -> None:
    assert rate(1) == 1.0
    assert rate(16) / rate(8) == pytest.approx(1.8)


def test_a_resize_pays_when_enough_of_the_run_is_left() -> None:
    least_s = RESIZE_S * 1.8 / 0.8  # then both have done the same
    assert not pays(1, 2, least_s - 1)
    assert pays(1, 2, least_s + 1)


def test_work_that_is_not_saved_speaks_against_it() -> None:
    assert pays(1, 2, 4 * HOUR_S, lost_s=0.0)
    assert not pays(1, 2, 4 * HOUR_S, lost_s=4 * HOUR_S)


def test_no_run_counts_for_longer_than_the_horizon() -> None:
    assert pays(1, 2, float("inf"))
    assert not pays(1, 2, float("inf"), lost_s=HORIZON_S)
