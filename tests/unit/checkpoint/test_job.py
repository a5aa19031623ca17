"""What a job reads of the federation, and how it answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from federator.checkpoint import FederatedJob
from federator.checkpoint.__main__ import main


def environment(directory: Path, attempt: int = 2) -> dict[str, str]:
    return {
        "FED_CHECKPOINT_DIR": str(directory),
        "FED_ATTEMPT": str(attempt),
        "FED_PREEMPT_DEADLINE": str(directory / ".fed" / f"deadline.{attempt}"),
        "FED_CHECKPOINT_INTERVAL_S": "90.5",
    }


def tell(directory: Path, deadline: str, attempt: int = 2) -> None:
    (directory / ".fed").mkdir(exist_ok=True)
    (directory / ".fed" / f"deadline.{attempt}").write_text(deadline)


def test_outside_the_federation_nothing_is_known_and_nobody_is_told() -> None:
    job = FederatedJob.from_environment({})
    assert job == FederatedJob()
    assert not job.told_to_leave()
    assert job.deadline_s() is None
    job.acknowledge()
    job.checkpointed()


def test_the_environment_is_read(tmp_path: Path) -> None:
    job = FederatedJob.from_environment(environment(tmp_path))
    assert (job.directory, job.attempt, job.interval_s) == (tmp_path, 2, 90.5)


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-3", "0"])
def test_an_interval_that_makes_no_sense_is_none(text: str) -> None:
    assert FederatedJob.from_environment({"FED_CHECKPOINT_INTERVAL_S": text}).interval_s is None


def test_only_its_own_attempts_deadline_tells_a_job_to_leave(tmp_path: Path) -> None:
    job = FederatedJob.from_environment(environment(tmp_path))
    tell(tmp_path, "1000.0\n", attempt=1)
    assert not job.told_to_leave()
    tell(tmp_path, "1795000000.25\n")
    assert job.told_to_leave()
    assert job.deadline_s() == 1795000000.25


def test_a_deadline_that_cannot_be_read_still_tells_to_leave(tmp_path: Path) -> None:
    tell(tmp_path, "at noon")
    job = FederatedJob.from_environment(environment(tmp_path))
    assert job.told_to_leave()
    assert job.deadline_s() is None


def test_answers_are_files_of_the_attempt(tmp_path: Path) -> None:
    job = FederatedJob.from_environment(environment(tmp_path))
    job.acknowledge()
    job.checkpointed()
    job.checkpointed()
    assert sorted(os.listdir(tmp_path / ".fed")) == ["checkpointed", "saved.2"]


def test_the_command_answers_and_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert main(["deadline"]) == 1
    tell(tmp_path, "1795000000.25\n")
    assert [main([word]) for word in ("deadline", "dir", "ack", "touch")] == [0, 0, 0, 0]
    assert capsys.readouterr().out == f"1795000000.25\n{tmp_path}\n"
    assert (tmp_path / ".fed" / "saved.2").exists()
    assert (tmp_path / ".fed" / "checkpointed").exists()


def test_the_command_says_when_the_answer_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FED_CHECKPOINT_DIR", str(tmp_path / "gone"))
    assert main(["ack"]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_the_command_runs_as_a_module(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "federator.checkpoint", "ack"]
    subprocess.run(argv, check=True, env=environment(tmp_path))
    assert (tmp_path / ".fed" / "saved.2").exists()
