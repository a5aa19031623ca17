"""How long steps take, as a training tells it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from federator.checkpoint import Checkpointer
from federator.checkpoint import lease as lease_module
from federator.checkpoint.step_times import StepDurations
from federator.slurm.site_tidy import progress_in


class Clock:
    """Stands for the time module."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


def test_a_window_has_the_median_and_what_nine_of_ten_did_not_exceed() -> None:
    times = StepDurations()
    now_s = 0.0
    times.finished(0, now_s, 0.0)
    for step in range(1, 11):
        now_s += 1.0 if step < 10 else 30.0
        times.finished(step, now_s, 0.0)
    assert times.window() == "1 10 1.000000 1.000000\n"
    assert times.window() == ""  # no step since
    times.finished(11, now_s + 2.0, 0.0)
    assert times.window() == "2 1 2.000000 2.000000\n"


def test_saves_do_not_count_and_steps_that_were_not_told_of_do() -> None:
    times = StepDurations()
    times.finished(0, 0.0, 0.0)
    times.finished(10, 25.0, 5.0)  # ten steps, and a save
    assert times.window() == "1 1 2.000000 2.000000\n"
    times.finished(3, 26.0, 5.0)  # a new beginning
    times.finished(3, 27.0, 5.0)
    assert times.window() == ""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease_module, "time", clock)
    monkeypatch.setattr("time.monotonic", clock.monotonic)
    return clock


def steps_in(folder: Path) -> object:
    """As the site's helper reads them."""
    notes = os.open(folder / ".fed", os.O_RDONLY)
    try:
        return progress_in(notes, 1).get("steps")
    finally:
        os.close(notes)


def test_a_job_with_a_lease_tells_of_its_steps_when_it_renews_that(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FED_PROGRESS", "0:40")
    monkeypatch.setenv("FED_CHECKPOINT_DIR", str(tmp_path))
    with Checkpointer() as ckpt:
        for step in range(4):  # the lease is renewed four times in its length
            ckpt.step(step, dict)
            assert steps_in(tmp_path) is None
            clock.now_s += 2.5
        ckpt.step(4, dict)
        window = {"number": 1, "steps": 4, "median_s": 2.5, "p90_s": 2.5}
        assert steps_in(tmp_path) == window
        with Checkpointer(rank=1, agree=int, signals=()) as other:
            for step in range(6, 12):
                other.step(step, dict)
                clock.now_s += 10.0
        assert steps_in(tmp_path) == window  # one rank tells


def test_without_a_lease_nothing_is_told(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FED_CHECKPOINT_DIR", str(tmp_path))
    with Checkpointer() as ckpt:
        for step in range(5):
            ckpt.step(step, dict)
            clock.now_s += 1000.0
    assert steps_in(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3",
        "0 5 1 1",
        "1 0 1 1",
        "1 5 nan nan",
        "1 5 1 nan",
        "1 5 -1 1",
        "1 5 2 1",
        "1 5 1 1e9",
        "x 5 1 1",
        "1 5 1 1 1",
        "9" * 300,
    ],
)
def test_a_note_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ".fed").mkdir()
    (tmp_path / ".fed" / "progress.1").write_text("1.0 0.0\n")
    (tmp_path / ".fed" / "progress.1.steps").write_text(text)
    assert steps_in(tmp_path) is None
