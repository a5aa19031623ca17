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


START_S = 1795000000  # of this run, as Slurm tells it
AFTER_S = "4000000000.5\n"  # a deadline that has not passed


@pytest.mark.parametrize(
    ("restarts", "start", "deadline", "told_at_s", "believed"),
    [
        ("", "", "1000.0", 500, True),  # never restarted: whatever stands there is for this run
        ("0", str(START_S), "1000.0", 500, True),
        ("1", "", "1000.0", 500, False),  # its time is over
        ("1", "", AFTER_S, 500, True),  # nobody tells when this run began
        ("1", str(START_S), AFTER_S, START_S - 1, False),
        ("1", str(START_S), AFTER_S, START_S + 1, True),
        ("1", str(START_S), "at noon", START_S + 1, True),
        ("one", "soon", "1000.0", 500, True),
    ],
)
def test_what_an_earlier_run_of_the_attempt_was_told_is_not_believed(
    tmp_path: Path, restarts: str, start: str, deadline: str, told_at_s: int, believed: bool
) -> None:
    told = {"SLURM_RESTART_COUNT": restarts, "SLURM_JOB_START_TIME": start}
    job = FederatedJob.from_environment(environment(tmp_path) | told)
    tell(tmp_path, deadline)
    os.utime(tmp_path / ".fed" / "deadline.2", (told_at_s, told_at_s))
    assert job.told_to_leave() is believed
    assert believed or job.deadline_s() is None
    job.forget_earlier_run()
    assert (tmp_path / ".fed" / "deadline.2").exists() is believed


@pytest.mark.parametrize(
    ("restarts", "start_at_s", "deadline", "saved_at_s", "stays"),
    [
        (0, None, "", 500, True),
        (1, None, "", 500, False),  # nothing asked for it
        (1, None, "1000.0", 500, False),
        (1, None, AFTER_S, 500, True),
        (1, START_S, AFTER_S, START_S - 1, False),
        (1, START_S, "", START_S + 1, True),
    ],
)
def test_the_answer_of_an_earlier_run_of_the_attempt_is_removed(
    tmp_path: Path,
    restarts: int,
    start_at_s: float | None,
    deadline: str,
    saved_at_s: int,
    stays: bool,
) -> None:
    job = FederatedJob.from_environment(environment(tmp_path))
    job.acknowledge()
    os.utime(tmp_path / ".fed" / "saved.2", (saved_at_s, saved_at_s))
    if deadline:
        tell(tmp_path, deadline)
    job._replace(restarts=restarts, start_at_s=start_at_s).forget_earlier_run()
    assert (tmp_path / ".fed" / "saved.2").exists() is stays


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
