"""What ranks do in a step, as a training marks it and its site reads it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from federator.checkpoint import Checkpointer
from federator.checkpoint.phases import StepPhases
from federator.checkpoint.ranks import Ranks
from federator.slurm.site_tidy import progress_in
from tests.unit.checkpoint.test_ranks import AllReduce


def measured(steps: int, load_s: float, own_s: float, took_s: float) -> StepPhases:
    phases, now_s = StepPhases(), 100.0
    phases.finished(0, now_s, 0.0)
    for step in range(1, steps + 1):
        if load_s:
            phases.loaded(now_s + load_s, 0.0)
        if own_s:
            phases.computed(now_s + own_s, 0.0)
        now_s += took_s
        phases.finished(step, now_s, 0.0)
    return phases


def ranks_in(folder: Path) -> object:
    """As the site's helper reads them."""
    notes = os.open(folder / ".fed", os.O_RDONLY)
    try:
        return progress_in(notes, 1).get("ranks")
    finally:
        os.close(notes)


def test_ranks_compare_their_own_parts_and_name_the_slowest() -> None:
    together = AllReduce(3)
    own_s = (0.5, 0.8, 0.5)

    def line(rank: int) -> str:
        return measured(20, 0.1 * rank, own_s[rank], 1.0).line(Ranks(rank, together.of(rank)))

    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(line, range(3))) == {"3 1.000000 0.200000 0.500000 0.800000 1\n"}


def test_what_nobody_marks_or_is_too_short_is_not_told() -> None:
    alone = Ranks(0, lambda number: number)
    assert measured(20, 0.0, 0.0, 1.0).line(alone) == ""
    assert measured(9, 0.1, 0.5, 1.0).line(alone) == ""
    assert measured(10, 0.1, 0.0, 1.0).line(alone) == "1 1.000000 0.100000 0.000000 0.000000 0\n"


def test_of_several_batches_in_a_step_the_first_counts() -> None:
    phases, now_s = StepPhases(), 100.0
    for step in range(20):
        for micro in range(4):
            phases.loaded(now_s + 0.1 + 0.5 * micro, 0.0)
        now_s += 2.0
        phases.finished(step, now_s, 0.0)
    assert phases.means() == pytest.approx((2.0, 0.1, 0.0))


def test_neither_saves_nor_evaluations_nor_leaps_count() -> None:
    phases = measured(20, 0.1, 0.5, 1.0)  # until 120 s
    phases.loaded(150.1, 30.0)  # a save of 30 s at first
    phases.computed(150.5, 30.0)
    phases.finished(21, 151.0, 30.0)
    phases.loaded(251.0, 30.0)  # an evaluation before the batch was there
    phases.finished(22, 252.0, 30.0)
    phases.finished(30, 253.0, 30.0)  # steps that were not told of
    phases.finished(31, 253.0, 30.0)  # a clock that stands
    assert phases.means() == pytest.approx((1.0, 0.1, 0.5))


def test_a_checkpointer_tells_the_marks_of_its_loop_at_its_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {"s": 1000.0}
    monkeypatch.setattr("time.monotonic", lambda: now["s"])
    monkeypatch.setenv("FED_CHECKPOINT_DIR", str(tmp_path))
    with Checkpointer(interval_s=1e9) as ckpt:
        for step in range(30):
            now["s"] += 0.5
            ckpt.loaded()
            now["s"] += 1.0
            ckpt.computed()
            now["s"] += 0.5
            ckpt.step(step, dict)
        assert ranks_in(tmp_path) is None
        ckpt.save(29, dict)
    assert ranks_in(tmp_path) == {
        "ranks": 1,
        "slowest": 0,
        "step_s": 2.0,
        "load_s": 0.5,
        "own_least_s": 1.5,
        "own_most_s": 1.5,
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3",
        "0 1 0 1 1 0",
        "2 1 0 1 1 2",
        "2 1 0 1 1 -1",
        "2 0 0 1 1 0",
        "2 1 -1 1 1 0",
        "2 1 0 2 1 0",
        "2 nan 0 1 1 0",
        "2 1 0 nan nan 0",
        "2 1 inf 1 1 0",
        "2 1 0 1 1 x",
        "2 1 0 1 1 0 0",
        "9" * 300,
    ],
)
def test_a_note_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ".fed").mkdir()
    (tmp_path / ".fed" / "progress.1").write_text("1.0 0.0\n")
    (tmp_path / ".fed" / "progress.1.ranks").write_text(text)
    assert ranks_in(tmp_path) is None
