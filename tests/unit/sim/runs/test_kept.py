"""A result is found again by who asks for the same, and by nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from federator.errors import InvalidRequest
from federator.sim.runs import kept as module
from federator.sim.runs.base import RunFailure, outcomes
from federator.sim.runs.executors import InProcess
from federator.sim.runs.kept import KeptRuns, digest_of
from tests.fakes.runs import Square, Squared, squares


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "new" / "kept"


def done(numbers: list[int], folder: Path, notes: Path) -> list[Squared | RunFailure]:
    kept = KeptRuns.at(folder)
    return list(outcomes(squares(numbers, notes=str(notes)), InProcess(), kept=kept))


def times(notes: Path) -> dict[str, int]:
    return {path.name: len(path.read_text().splitlines()) for path in notes.iterdir()}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.mkdir()
    return path


def test_a_second_call_does_only_what_is_missing(folder: Path, notes: Path) -> None:
    first = done([1, 2], folder, notes)
    assert done([2, 3, 1], folder, notes)[::2] == [first[1], first[0]]
    assert times(notes) == {"1": 1, "2": 1, "3": 1}


def test_a_failure_is_not_kept(folder: Path, notes: Path) -> None:
    done([13, 1], folder, notes)
    done([13, 1], folder, notes)
    assert times(notes) == {"1": 1, "13": 2}


def test_what_was_done_before_a_call_ended_is_kept(folder: Path, notes: Path) -> None:
    found = outcomes(squares([1, 2], notes=str(notes)), InProcess(), kept=KeptRuns.at(folder))
    next(found)
    found.close()
    done([1, 2], folder, notes)
    assert times(notes) == {"1": 1, "2": 1}


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data + b"\x00",
        lambda _: b"submit_s,duration_s\n",
        lambda data: data.replace(b"run 1", b"run 2", 1),
        lambda data: bytes([*data[:-1], data[-1] ^ 1]),
    ],
)
def test_a_damaged_file_is_done_again(
    damage: Callable[[bytes], bytes], folder: Path, notes: Path
) -> None:
    good = done([1], folder, notes)
    path = only_file(folder)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    kept = KeptRuns.at(folder)
    again = list(outcomes(squares([1], notes=str(notes)), InProcess(), kept=kept))
    assert again == good
    assert times(notes) == {"1": 2}
    assert kept.unusable == [path]
    assert path.read_bytes() == whole


def test_the_file_of_another_run_under_this_name_is_no_result(folder: Path, notes: Path) -> None:
    done([1], folder, notes)
    first = only_file(folder)
    other = folder / (digest_of(Square(number=2, notes=str(notes))) + module.SUFFIX)
    first.rename(other)
    assert done([2], folder, notes) == [Squared(number=2, square=4.0)]


@pytest.mark.parametrize("foreign", ["folder", "pipe"])
def test_what_is_no_file_is_no_result(foreign: str, folder: Path, notes: Path) -> None:
    kept = KeptRuns.at(folder)
    path = folder / (digest_of(Square(number=2, notes=str(notes))) + module.SUFFIX)
    path.mkdir() if foreign == "folder" else os.mkfifo(path)
    assert kept.find(path.stem, Squared) is None
    assert kept.unusable == [path]


def test_a_result_of_another_type_is_no_result(folder: Path) -> None:
    kept = KeptRuns.at(folder)
    kept.keep("0" * 64, "numbers", msgspec.msgpack.encode([1, 2]))
    assert kept.find("0" * 64, list[int]) is not None
    assert kept.find("0" * 64, Squared) is None


def test_nothing_half_written_is_left(folder: Path) -> None:
    kept = KeptRuns.at(folder)
    kept.keep("1" * 64, "one", b"\x01")
    assert [path.name for path in folder.iterdir()] == ["1" * 64 + ".run"]


@pytest.mark.parametrize("place", ["/proc/none", "/dev/null/x"])
def test_a_folder_that_cannot_be_written_is_one_message(place: str) -> None:
    with pytest.raises(InvalidRequest, match=f"--resume: {place}: cannot be written: "):
        KeptRuns.at(Path(place))


def test_another_field_another_digest() -> None:
    task = Square(number=1)
    assert digest_of(task) == digest_of(replace(task))
    assert digest_of(task) != digest_of(replace(task, number=2))
    assert digest_of(task) != digest_of(replace(task, notes="x"))


def test_other_code_other_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of(Square(number=1))
    monkeypatch.setattr(module, "code_digest", lambda: "other")
    assert digest_of(Square(number=1)) != before


PROGRAM = """
from federator.sim.experiments.registry import EXPERIMENTS
from federator.sim.runs.kept import digest_of
for name, entry in EXPERIMENTS.items():
    for run in entry.make({}, quick=True).runs(1)[:2]:
        print(name, digest_of(run.task))
"""


@pytest.mark.slow
def test_another_process_gives_the_same_digests() -> None:
    """Text is hashed with another seed in each process: no set may be in a task."""
    said = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(set(said[0].split())) > 8
