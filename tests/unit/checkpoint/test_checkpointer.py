"""When a training saves, when it ends, and what it begins again with."""

from __future__ import annotations

import faulthandler
import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from federator.checkpoint import Checkpointer, Due, FederatedJob, UncoordinatedRanks
from federator.checkpoint import checkpointer as module


class Clock:
    """Stands for the time module; both its clocks stand still."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """No test leaves a handler behind, and none begins in a federated environment."""
    before = {number: signal.getsignal(number) for number in module.LEAVE_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def job(tmp_path: Path) -> FederatedJob:
    """A federated job, as its agent sets it up."""
    (tmp_path / ".fed").mkdir()
    return FederatedJob(tmp_path, 2, tmp_path / ".fed" / "deadline.2")


def tell(job: FederatedJob, deadline_s: float = 1795000000.0) -> None:
    assert job.deadline_file is not None
    job.deadline_file.write_text(f"{deadline_s}\n")


def answers(job: FederatedJob) -> list[str]:
    assert job.directory is not None
    names = sorted(os.listdir(job.directory / ".fed"))
    return [name for name in names if not name.startswith("progress.")]


def state(number: int) -> Callable[[], Any]:
    return lambda: {"number": number}


def refused() -> Any:
    raise AssertionError("the state is asked for although nothing is due")


# ---- resuming ----


def test_a_first_run_begins_from_nothing(tmp_path: Path) -> None:
    with Checkpointer(directory=tmp_path / "new") as ckpt:
        assert ckpt.latest() is None


def test_a_later_run_begins_with_the_last_checkpoint(tmp_path: Path) -> None:
    with Checkpointer(directory=tmp_path) as ckpt:
        for step in (3, 6):
            ckpt.save(step, state(step))
    with Checkpointer(directory=str(tmp_path)) as ckpt:
        found = ckpt.latest()
        assert found is not None
        assert (found.step, found.state) == (6, {"number": 6})


def test_torn_checkpoints_are_skipped_and_not_counted_as_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Checkpointer(directory=tmp_path) as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, state(step))
    (tmp_path / "ckpt-00000003-step-3" / "state-0").write_bytes(b"\0" * 30)
    with Checkpointer(directory=tmp_path, keep=2) as ckpt:
        found = ckpt.latest()
        assert found is not None
        assert found.step == 2
        assert "ckpt-00000003-step-3 is not whole" in caplog.text
        ckpt.save(4, state(4))
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["2", "3", "4"]


def test_a_whole_checkpoint_that_the_script_cannot_load_is_an_error(tmp_path: Path) -> None:
    """Beginning again from nothing would lose the work; a fixed script can go on with it."""
    with Checkpointer(directory=tmp_path) as ckpt:
        ckpt.save(1, state(1))

    def load(path: Path) -> Any:
        raise KeyError("layer9.weight")

    with Checkpointer(directory=tmp_path, load=load) as ckpt, pytest.raises(KeyError):
        ckpt.latest()


def test_the_script_says_how_states_are_written(tmp_path: Path) -> None:
    def save(text: str, path: Path) -> None:
        path.mkdir()
        (path / "a.txt").write_text(text)

    with Checkpointer(save, lambda p: (p / "a.txt").read_text(), directory=tmp_path) as ckpt:
        ckpt.save(1, lambda: "hello")
        found = ckpt.latest()
        assert found is not None
        assert found.state == "hello"


def test_without_checksums_sizes_still_tell(tmp_path: Path) -> None:
    with Checkpointer(directory=tmp_path, checksum=False) as ckpt:
        for step in (1, 2):
            ckpt.save(step, state(step))
        torn = tmp_path / "ckpt-00000002-step-2" / "state-0"
        torn.write_bytes(torn.read_bytes()[:-1])
        found = ckpt.latest()
        assert found is not None
        assert found.step == 1


def test_while_a_state_is_written_its_folders_can_be_removed_by_another_uid(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    directory.chmod(0o770)
    bits: list[int] = []

    def save(_state: object, path: Path) -> None:
        path.mkdir()
        bits.append(path.stat().st_mode & 0o777)

    before = os.umask(0o077)
    try:
        with Checkpointer(save, directory=directory) as ckpt:
            ckpt.save(1, state(1))
        assert (bits, os.umask(0o077)) == ([0o770], 0o077)
    finally:
        os.umask(before)


# ---- from time to time ----


def test_it_saves_each_interval_and_asks_for_the_state_only_then(
    tmp_path: Path, clock: Clock, job: FederatedJob
) -> None:
    with Checkpointer(interval_s=60, job=job) as ckpt:
        assert not ckpt.step(0, refused)
        clock.now_s += 59
        assert not ckpt.step(1, refused)
        clock.now_s += 1
        assert ckpt.step(2, state(2))
        assert answers(job) == ["checkpointed"]
        clock.now_s += 59
        assert not ckpt.step(3, refused)


def test_the_interval_is_the_callers_then_the_federations_then_half_an_hour(tmp_path: Path) -> None:
    suggested = FederatedJob(tmp_path, interval_s=300.0)
    with Checkpointer(interval_s=math.inf, job=suggested) as ckpt:
        assert ckpt.interval_s == math.inf
    with Checkpointer(job=suggested) as ckpt:
        assert ckpt.interval_s == 300
    with Checkpointer(job=FederatedJob(tmp_path)) as ckpt:
        assert ckpt.interval_s == 1800


def test_as_many_checkpoints_stay_as_were_asked_for(tmp_path: Path) -> None:
    with Checkpointer(directory=tmp_path, keep=2) as ckpt:
        for step in range(5):
            ckpt.save(step, state(step))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_save_that_fails_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    with Checkpointer(directory=tmp_path) as ckpt:
        ckpt.save(1, state(1))
        with pytest.raises(OSError, match="disk full"):
            ckpt.save(2, fails)
        found = ckpt.latest()
        assert found is not None
        assert found.step == 1
    assert len(list(tmp_path.iterdir())) == 1


def fails() -> Any:
    raise OSError("disk full")


# ---- told to leave ----


@pytest.mark.parametrize("number", module.LEAVE_SIGNALS)
def test_a_signal_makes_it_save_acknowledge_and_end(
    job: FederatedJob, number: signal.Signals
) -> None:
    with Checkpointer(job=job) as ckpt:
        assert not ckpt.step(0, refused)
        os.kill(os.getpid(), number)
        assert ckpt.told_to_leave
        with pytest.raises(SystemExit) as ended:
            ckpt.step(1, state(1))
        assert ended.value.code == 85
    assert answers(job) == ["checkpointed", "saved.2"]
    with Checkpointer(job=job) as ckpt:
        found = ckpt.latest()
        assert found is not None
        assert found.step == 1


def test_the_deadline_file_tells_without_any_signal(job: FederatedJob, clock: Clock) -> None:
    """It is looked at once a second at most: it lies on a shared file system."""
    with Checkpointer(job=job) as ckpt:
        assert ckpt.deadline_s is None
        tell(job, 1795000000.25)
        assert not ckpt.step(0, refused)
        clock.now_s += 1
        with pytest.raises(SystemExit):
            ckpt.step(1, state(1))
        assert ckpt.deadline_s == 1795000000.25


def test_what_slurm_starts_again_is_not_told_by_the_notes_of_its_earlier_run(
    job: FederatedJob,
) -> None:
    tell(job, 1000.0)
    job.acknowledge()
    with Checkpointer(job=job._replace(restarts=1)) as ckpt:
        assert not ckpt.told_to_leave
        assert ckpt.deadline_s is None
    assert answers(job) == []


def test_who_is_told_before_the_first_step_leaves_after_it(job: FederatedJob) -> None:
    tell(job)
    with Checkpointer(job=job) as ckpt, pytest.raises(SystemExit):
        ckpt.step(0, state(0))


def test_a_step_that_is_saved_already_is_not_saved_again(job: FederatedJob) -> None:
    with Checkpointer(job=job) as ckpt:
        ckpt.save(7, state(7))
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit):
            ckpt.step(7, refused)
    assert "saved.2" in answers(job)


def test_nothing_is_acknowledged_that_was_not_saved(job: FederatedJob) -> None:
    with Checkpointer(job=job) as ckpt:
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(OSError, match="disk full"):
            ckpt.step(1, fails)
    assert answers(job) == []


def test_an_answer_that_cannot_be_written_costs_no_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = FederatedJob(tmp_path / "gone", 1)
    with Checkpointer(directory=tmp_path / "here", job=job) as ckpt:
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(SystemExit) as ended:
            ckpt.step(1, state(1))
    assert ended.value.code == 85
    assert "cannot be told" in caplog.text


def test_a_framework_that_saves_by_itself_asks_and_answers(job: FederatedJob, clock: Clock) -> None:
    with Checkpointer(job=job, interval_s=60) as ckpt:
        assert ckpt.due(1) is Due.NOTHING
        clock.now_s += 60
        assert ckpt.due(2) is Due.SAVE
        ckpt.saved()
        assert ckpt.due(3) is Due.NOTHING
        os.kill(os.getpid(), signal.SIGUSR2)
        assert ckpt.due(4) is Due.LEAVE
        with pytest.raises(SystemExit):
            ckpt.leave()
    assert answers(job) == ["checkpointed", "saved.2"]


def test_steps_between_checks_decide_nothing(tmp_path: Path) -> None:
    with Checkpointer(directory=tmp_path, check_every=10) as ckpt:
        os.kill(os.getpid(), signal.SIGTERM)
        assert [ckpt.due(step) for step in (9, 10, 11)] == [Due.NOTHING, Due.LEAVE, Due.NOTHING]


# ---- signal handlers ----


def test_the_scripts_own_handler_is_called_as_well(tmp_path: Path) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append(number))
    with Checkpointer(directory=tmp_path) as ckpt:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert ckpt.told_to_leave
    assert heard == [signal.SIGUSR1]


def test_afterwards_the_handlers_are_those_of_before(tmp_path: Path) -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    before = [signal.getsignal(number) for number in module.LEAVE_SIGNALS]
    with Checkpointer(directory=tmp_path):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert [signal.getsignal(number) for number in module.LEAVE_SIGNALS] == before


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_two_of_them_may_end_in_any_order(tmp_path: Path, before: signal.Handlers) -> None:
    signal.signal(signal.SIGTERM, before)
    first, second = Checkpointer(directory=tmp_path), Checkpointer(directory=tmp_path)
    first.close()
    os.kill(os.getpid(), signal.SIGTERM)
    assert (first.told_to_leave, second.told_to_leave) == (False, True)
    second.close()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_that_somebody_puts_back_after_its_end_swallows_nothing(tmp_path: Path) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append(number))
    ckpt = Checkpointer(directory=tmp_path)
    kept = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    ckpt.close()
    signal.signal(signal.SIGUSR1, kept)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (heard, ckpt.told_to_leave) == ([signal.SIGUSR1], False)


def test_what_took_a_signal_behind_pythons_back_before_the_first_step_gives_it_back(
    tmp_path: Path,
) -> None:
    """As some MPI libraries do, which a framework loads after the Checkpointer was made."""
    with Checkpointer(directory=tmp_path) as ckpt, (tmp_path / "dump").open("w") as dump:
        faulthandler.register(signal.SIGUSR1, file=dump)
        try:
            assert not ckpt.step(0, refused)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert ckpt.told_to_leave
        finally:
            faulthandler.unregister(signal.SIGUSR1)


def test_a_handler_of_the_script_that_came_later_stays(tmp_path: Path) -> None:
    heard: list[int] = []
    with Checkpointer(directory=tmp_path) as ckpt:
        signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append(number))
        assert not ckpt.step(0, refused)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert (heard, ckpt.told_to_leave) == ([signal.SIGUSR1], False)


def test_only_the_signals_that_were_named_mean_leave(tmp_path: Path) -> None:
    with Checkpointer(directory=tmp_path, signals=[signal.SIGUSR2]):
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_forked_helpers_still_die_of_a_signal(tmp_path: Path) -> None:
    """multiprocessing ends the workers of a pool by TERM, and waits for them."""
    with Checkpointer(directory=tmp_path) as ckpt:
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
        assert not ckpt.told_to_leave


# ---- refusals ----


def test_without_any_directory_it_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"FED_CHECKPOINT_DIR is not set.*directory="):
        Checkpointer(job=FederatedJob())
    job = FederatedJob.from_environment({"FED_CHECKPOINT_ERROR": "/shared: Permission denied"})
    with pytest.raises(ValueError, match=r"not set \(/shared: Permission denied\)"):
        Checkpointer(job=job)


@pytest.mark.parametrize(
    "wrong", [{"keep": 0}, {"check_every": 0}, {"interval_s": 0.0}, {"interval_s": math.nan}]
)
def test_numbers_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Checkpointer(directory=tmp_path, **wrong)


def test_a_step_below_zero_is_refused(tmp_path: Path) -> None:
    with Checkpointer(directory=tmp_path) as ckpt, pytest.raises(ValueError, match="at least 0"):
        ckpt.save(-1, refused)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_ranks_that_cannot_decide_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "4")
    with Checkpointer(directory=tmp_path) as ckpt, pytest.raises(UncoordinatedRanks, match="agree"):
        ckpt.step(0, refused)


def test_the_first_step_and_the_time_of_saves_are_told(
    job: FederatedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {"wall": 1795000100.0, "elapsed": 0.0}
    monkeypatch.setattr(FederatedJob, "now_s", staticmethod(lambda: now["wall"]))
    monkeypatch.setattr(f"{module.__name__}.time.monotonic", lambda: now["elapsed"])
    assert job.directory is not None
    note = job.directory / ".fed" / "progress.2"

    def save(_: object, path: Path) -> None:
        path.write_text("state")
        now["elapsed"] += 2.5

    with Checkpointer(save, job=job, interval_s=math.inf) as ckpt:
        ckpt.save(0, state(0))
        assert not note.exists(), "a save is no step"
        ckpt.step(1, refused)
        assert note.read_text() == "1795000100.000 2.500\n"
        now["wall"] += 50.0
        ckpt.save(2, state(2))
        ckpt.save(3, state(3))
    assert note.read_text() == "1795000100.000 7.500\n"
