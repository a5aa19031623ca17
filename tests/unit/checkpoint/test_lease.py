"""The progress lease of a training, seen from inside: renewed by steps, and told of when over."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from federator.checkpoint import Checkpointer, FederatedJob
from federator.checkpoint import lease as module
from federator.checkpoint.lease import ProgressLease, lease_s

LEASE_S = 40.0


class Clock:
    """Stands for the time module of the lease."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def job(tmp_path: Path) -> FederatedJob:
    (tmp_path / ".fed").mkdir()
    return FederatedJob(tmp_path, 2, tmp_path / ".fed" / "deadline.2")


def note(job: FederatedJob, rank: int = 1) -> str:
    assert job.directory is not None
    file = job.directory / ".fed" / f"progress.2.stalled.{rank}"
    return file.read_text() if file.exists() else ""


@pytest.fixture
def leased(job: FederatedJob) -> Iterator[Callable[..., ProgressLease]]:
    """Makes leases whose threads end with the test."""
    made: list[ProgressLease] = []

    def make(within_s: float | None = LEASE_S, **more: object) -> ProgressLease:
        made.append(ProgressLease(job, within_s, 1, "2", **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for lease in made:
        lease.close()


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("10", 600.0), ("0:30", 30.0), ("", None), ("0", None), ("x", None), ("1:5", None)],
)
def test_it_is_as_long_as_the_environment_says(said: str, seconds: float | None) -> None:
    assert lease_s({"FED_PROGRESS": said}) == seconds
    assert lease_s({}) is None


def test_steps_renew_it_a_few_times_in_its_length_and_no_more(
    clock: Clock, leased: Callable[..., ProgressLease]
) -> None:
    lease, renewed = leased(), 0
    for step in range(400):
        renewed += lease.renew(step)
        clock.now_s += 0.1
    assert renewed == module.RENEWALS


def test_a_rank_that_finishes_no_step_tells_once_where_it_is(
    clock: Clock, job: FederatedJob, leased: Callable[..., ProgressLease]
) -> None:
    said: list[str] = []
    lease = leased(tell=said.append)
    lease.renew(7)
    clock.now_s += LEASE_S - 1
    lease.look()
    assert (said, note(job)) == ([], "")
    clock.now_s += 2
    lease.look()
    lease.look()
    (line,) = said
    assert line.startswith("fed-progress: rank 1 of 2 on ")
    assert "no step since 7 for 41 s, in look (lease.py:" in line or "in _doing (lease.py:" in line
    assert "; process " in line
    assert note(job) in f"{line}\n"
    assert note(job)


def test_its_note_goes_with_the_next_step(
    clock: Clock, job: FederatedJob, leased: Callable[..., ProgressLease]
) -> None:
    lease = leased(tell=lambda _: None)
    lease.renew(7)
    clock.now_s += LEASE_S
    lease.look()
    assert note(job)
    lease.renew(8)
    assert note(job) == ""
    clock.now_s += LEASE_S
    lease.look()
    assert "no step since 8" in note(job)


def test_before_the_first_step_nothing_is_told(
    clock: Clock, job: FederatedJob, leased: Callable[..., ProgressLease]
) -> None:
    lease = leased(tell=lambda _: None)
    clock.now_s += 10 * LEASE_S
    lease.look()
    assert note(job) == ""


def test_without_a_length_there_is_none_and_no_thread(
    clock: Clock, leased: Callable[..., ProgressLease]
) -> None:
    before, lease = set(threading.enumerate()), leased(None)
    assert not lease.renew(1)
    lease.look()
    assert before.issuperset(threading.enumerate())


def test_an_output_that_is_closed_and_a_folder_that_is_full_end_nothing(
    clock: Clock, job: FederatedJob, leased: Callable[..., ProgressLease]
) -> None:
    def broken(_: str) -> None:
        raise ValueError("I/O operation on closed file")

    assert job.directory is not None
    (job.directory / ".fed").rmdir()
    (job.directory / ".fed").touch()
    lease = leased(tell=broken)
    lease.renew(1)
    clock.now_s += LEASE_S
    lease.look()


def test_a_thread_finds_the_stall_while_the_rank_hangs(job: FederatedJob) -> None:
    """In real time, as the rank itself does nothing."""
    told = threading.Event()
    lease = ProgressLease(job, 0.05, 0, "", lambda _: told.set())
    lease.renew(3)
    assert told.wait(30.0)
    lease.close()


def test_a_checkpointer_renews_what_the_environment_gives_and_closes_it(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FED_PROGRESS", "1")
    monkeypatch.setenv("FED_CHECKPOINT_DIR", str(tmp_path))
    file = tmp_path / ".fed" / "progress.1"
    with Checkpointer() as ckpt:
        ckpt.step(0, dict)
        os.utime(file, (5.0, 5.0))
        ckpt.step(1, dict)
        assert file.stat().st_mtime == 5.0  # shared storage is spared
        clock.now_s += 60.0 / module.RENEWALS
        ckpt.step(2, dict)
        assert file.stat().st_mtime > 5.0
