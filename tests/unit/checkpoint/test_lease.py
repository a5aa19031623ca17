"""The progress lease of a training, seen from inside: renewed by steps, and told of when over."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from federator.checkpoint import Checkpointer, FederatedJob
from federator.checkpoint import job as job_module
from federator.checkpoint import lease as module
from federator.checkpoint.lease import ProgressLease, lease_s
from federator.model.progress import seconds_of
from federator.slurm.site_tidy import progress_in

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
    [
        ("10", 600.0),
        ("0:30", 30.0),
        ("000030", 1800.0),
        ("0" * 16 + "30", 1800.0),
        ("0" * 17 + "30", None),
        *((text, None) for text in ("", "0", "x", "1:5")),
    ],
)
def test_it_is_as_long_as_the_environment_says(said: str, seconds: float | None) -> None:
    assert lease_s({"FED_PROGRESS": said}) == seconds
    assert lease_s({}) is None
    assert seconds_of(said) == seconds, "as the federation reads it"


def test_steps_renew_it_a_few_times_in_its_length_and_no_more(
    clock: Clock, leased: Callable[..., ProgressLease]
) -> None:
    lease, renewed = leased(), 0
    for step in range(400):
        renewed += lease.renew(step)
        clock.now_s += 0.1
    assert renewed == module.RENEWALS


@pytest.mark.parametrize("own_s", [None, 0.0, -1.0, float("nan"), 1.0, 3600.0, float("inf")])
def test_whatever_a_script_says_steps_renew_it_as_often_as_the_federation_expects(
    clock: Clock, leased: Callable[..., ProgressLease], own_s: float | None
) -> None:
    lease, renewed = leased(own_s, given_s=LEASE_S), 0
    for step in range(400):
        renewed += lease.renew(step)
        clock.now_s += 0.1
    assert renewed == module.RENEWALS


@pytest.mark.parametrize("own_s", [0.0, -1.0, float("nan")])
def test_a_length_that_is_none_is_not_given(
    clock: Clock, job: FederatedJob, leased: Callable[..., ProgressLease], own_s: float
) -> None:
    before, lease = set(threading.enumerate()), leased(own_s)
    assert not lease.renew(1)
    assert before.issuperset(threading.enumerate()), "no thread looks without a pause"
    lease = leased(own_s, given_s=LEASE_S, tell=lambda _: None)
    lease.renew(1)
    clock.now_s += LEASE_S
    lease.look()
    assert note(job)


def test_one_that_never_ends_has_a_thread_that_waits(
    leased: Callable[..., ProgressLease],
) -> None:
    lease = leased(float("inf"))
    lease.renew(1)
    assert any(thread.name == "fed-progress" for thread in threading.enumerate())


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


def test_a_step_while_its_rank_tells_of_a_stall_leaves_no_note(
    clock: Clock, job: FederatedJob, leased: Callable[..., ProgressLease]
) -> None:
    lease: ProgressLease = leased(tell=lambda _: lease.renew(8))  # the main thread goes on
    lease.renew(7)
    clock.now_s += LEASE_S
    lease.look()
    assert note(job) == ""


def test_a_step_waits_for_a_note_that_is_being_written_and_removes_it(
    clock: Clock,
    job: FederatedJob,
    leased: Callable[..., ProgressLease],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stepping: list[threading.Thread] = []
    tell_stall = FederatedJob.tell_stall

    def slowly(job: FederatedJob, rank: int, text: str) -> None:
        if text:
            stepping.append(threading.Thread(target=lambda: lease.renew(8)))
            stepping[0].start()
            stepping[0].join(0.05)  # it cannot end before the note is there
        tell_stall(job, rank, text)

    monkeypatch.setattr(FederatedJob, "tell_stall", slowly)
    lease = leased(tell=lambda _: None)
    lease.renew(7)
    clock.now_s += LEASE_S
    lease.look()
    stepping[0].join(30.0)
    assert note(job) == ""


def test_what_is_closed_tells_of_no_stall_and_leaves_no_note(
    clock: Clock, job: FederatedJob, leased: Callable[..., ProgressLease]
) -> None:
    lease = leased(tell=lambda _: None)
    lease.renew(7)
    clock.now_s += LEASE_S
    lease.look()
    lease.close()
    assert note(job) == ""
    lease.look()
    assert note(job) == ""


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


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lease's file of a job that has one."""
    monkeypatch.setenv("FED_PROGRESS", "1")
    monkeypatch.setenv("FED_CHECKPOINT_DIR", str(tmp_path))
    return tmp_path / ".fed" / "progress.1"


def stepped_at_s(progress: Path) -> float:
    """As the site's helper reads it."""
    notes = os.open(progress.parent, os.O_RDONLY)
    try:
        at_s = progress_in(notes, 1)["stepped_at_s"]
    finally:
        os.close(notes)
    assert isinstance(at_s, float)
    return at_s


def test_after_it_is_closed_a_job_may_go_on_without_steps(progress: Path) -> None:
    with Checkpointer() as ckpt:
        ckpt.step(0, dict)
        assert stepped_at_s(progress) > 0
    assert stepped_at_s(progress) == 0
    ckpt.save(1, dict)  # the result, say
    assert stepped_at_s(progress) == 0
    with Checkpointer() as ckpt:
        assert stepped_at_s(progress) == 0
        ckpt.step(2, dict)
        assert stepped_at_s(progress) > 0
    assert stepped_at_s(progress) == 0


def test_a_rank_that_ends_by_an_error_leaves_the_lease_to_those_that_wait_for_it(
    progress: Path,
) -> None:
    def fail(ckpt: Checkpointer) -> None:
        with ckpt:
            ckpt.step(0, dict)
            raise RuntimeError("out of memory")

    ckpt = Checkpointer()
    with pytest.raises(RuntimeError, match="out of memory"):
        fail(ckpt)
    assert stepped_at_s(progress) > 0
    ckpt.close()  # who has caught it, and goes on, says so
    assert stepped_at_s(progress) == 0


def test_only_the_first_rank_closes_it(progress: Path) -> None:
    with (
        Checkpointer(rank=0, agree=int) as first,
        Checkpointer(rank=1, agree=int, signals=()) as other,
    ):
        first.step(0, dict)
        other.step(0, dict)
        other.close()
        assert stepped_at_s(progress) > 0


def test_a_full_disk_is_no_stall(
    clock: Clock, progress: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Checkpointer() as ckpt:
        ckpt.step(0, dict)
        os.utime(progress, (5.0, 5.0))
        monkeypatch.setattr(job_module, "put_in_place", full)
        clock.now_s += 60.0
        ckpt.step(1, dict)
        assert stepped_at_s(progress) > 5.0
    assert stepped_at_s(progress) == 0


def test_a_restarted_job_forgets_the_progress_of_its_earlier_run(job: FederatedJob) -> None:
    assert job.directory is not None
    notes = job.directory / ".fed"
    earlier = ["progress.2", "progress.2.stalled.0", "progress.2.stalled.17", "progress.2.steps"]
    others = ["progress.1", "progress.1.stalled.0", "progress.1.steps", "progress.20"]
    for name in earlier + others:
        (notes / name).touch()
    Checkpointer(job=job).close()
    assert sorted(os.listdir(notes)) == sorted(earlier + others)
    Checkpointer(job=job._replace(restarts=1)).close()
    assert sorted(os.listdir(notes)) == sorted(others)
