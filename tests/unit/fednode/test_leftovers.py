"""What a job leaves on its node goes; what is another job's, or in use, stays."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fednode import limited, processes, shm
from fednode.processes import Process

ME = os.getuid()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        process.kill()
        process.communicate()


def start(
    started: list[subprocess.Popen[bytes]], code: str = "import time; time.sleep(600)", **env: str
) -> int:
    ready = "print(1, flush=True);"
    process = subprocess.Popen(
        [sys.executable, "-c", ready + code], env=env, stdout=subprocess.PIPE
    )
    started.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    return process.pid


# ---- whose a process is ----


def process(pid: int, job: int | None, node: str = "n1", held: int | None = None) -> Process:
    return Process(pid, ME, 1, job, node, held)


def test_a_job_has_the_processes_that_name_it_and_this_node() -> None:
    found = [process(2, 7), process(3, 8), process(4, None), process(5, 7, "n2")]
    assert [p.pid for p in processes.of_job(found, 7, ME, "n1")] == [2]


def test_the_shell_that_salloc_started_on_this_machine_is_not_the_jobs() -> None:
    assert processes.of_job([process(2, 7, "")], 7, ME, "n1") == []


def test_slurms_cgroup_is_believed_before_the_environment() -> None:
    found = [process(2, 8, held=7), process(3, 7, held=8), process(4, None, "", held=7)]
    assert [p.pid for p in processes.of_job(found, 7, ME, "n1")] == [2, 4]


def test_another_users_process_is_never_the_jobs() -> None:
    assert processes.of_job([Process(2, ME + 1, 1, 7, "n1")], 7, ME, "n1") == []


def test_any_word_of_another_job_counts_as_one() -> None:
    found = [process(2, 7), process(3, 8, ""), process(4, None, "", held=9), process(5, None)]
    assert processes.other_jobs(found, 7, ME) == {8, 9}


def test_processes_are_found_by_the_environment_they_started_with(
    started: list[subprocess.Popen[bytes]],
) -> None:
    mine = start(started, SLURM_JOB_ID="990007", SLURMD_NODENAME="n1")
    start(started, SLURM_JOB_ID="990008", SLURMD_NODENAME="n1")
    start(started, NOT_SLURM_JOB_ID="990007", SLURMD_NODENAME="n1")
    found = processes.all_processes(ME)
    assert [p.pid for p in processes.of_job(found, 990007, ME, "n1")] == [mine]


def test_who_does_not_end_when_asked_is_killed(started: list[subprocess.Popen[bytes]]) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(2, flush=True); time.sleep(600)"  # noqa: E501
    pid = start(started, deaf, SLURM_JOB_ID="990007", SLURMD_NODENAME="n1")
    assert started[0].stdout is not None
    started[0].stdout.readline()
    found = processes.look(pid)
    assert found is not None
    assert processes.kill([found], 0.1) == [found]
    assert started[0].wait(5) == -signal.SIGKILL


def test_a_process_id_that_has_gone_to_another_is_not_signalled(
    started: list[subprocess.Popen[bytes]],
) -> None:
    pid = start(started)
    found = processes.look(pid)
    assert found is not None
    assert processes.kill([found._replace(start=found.start - 1)], 0.1) == []
    assert started[0].poll() is None


def test_init_is_never_signalled() -> None:
    assert processes.kill([Process(1, 0, 0, 7, "n1"), Process(0, 0, 0, 7, "n1")], 0) == []


# ---- /dev/shm ----


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the test's own in the real /dev/shm, so that maps name its device."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def sweep(folder: Path, uid: int = ME, later_s: float = 1.0) -> shm.Swept:
    """What an epilog that begins ``later_s`` from now would do."""
    until = time.monotonic() + 30
    swept = shm.sweep(uid, time.time() + later_s, until, lambda: True, str(folder))
    assert swept is not None
    return swept


def test_files_and_folders_that_nobody_uses_go(folder: Path) -> None:
    (folder / "tree" / "deep").mkdir(parents=True)
    (folder / "tree" / "deep" / "file").write_bytes(b"x" * 8192)
    (folder / "sem.x").write_bytes(b"x")
    swept = sweep(folder)
    assert list(folder.iterdir()) == []
    assert (swept.files, swept.in_use) == (2, 0)
    assert swept.kib >= 8


def test_what_is_open_mapped_or_somebodys_directory_stays(
    folder: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    (folder / "open").write_bytes(b"x")
    (folder / "mapped").write_bytes(b"x" * 4096)
    (folder / "here").mkdir()
    (folder / "gone").write_bytes(b"x")
    with (folder / "open").open() as _, (folder / "mapped").open("r+b") as file:
        view = mmap.mmap(file.fileno(), 4096)
        file.close()
        code = f"import os, time; os.chdir({str(folder / 'here')!r}); print(2, flush=True); time.sleep(600)"  # noqa: E501
        start(started, code)
        assert started[0].stdout is not None
        started[0].stdout.readline()
        swept = sweep(folder)
        assert {path.name for path in folder.iterdir()} == {"open", "mapped", "here"}
        assert (swept.files, swept.in_use) == (1, 3)
        view.close()


def test_other_owners_files_stay(folder: Path) -> None:
    (folder / "mine").write_bytes(b"x")
    assert sweep(folder, uid=ME + 1).files == 0
    assert (folder / "mine").exists()


def test_a_link_leads_nowhere(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (folder / "link").symlink_to(precious)
    sweep(folder)
    assert (precious / "file").exists()
    assert not (folder / "link").is_symlink()


def test_with_no_time_to_look_at_all_processes_nothing_is_removed(folder: Path) -> None:
    (folder / "file").write_bytes(b"x")
    began_s = time.time() + 1
    swept = shm.sweep(ME, began_s, time.monotonic() - 1, lambda: True, str(folder))
    assert (folder / "file").exists()
    assert swept is not None
    assert swept.trouble


def test_what_has_changed_since_the_epilog_began_stays(folder: Path) -> None:
    (folder / "tree").mkdir()
    (folder / "tree" / "new").write_bytes(b"x")
    assert sweep(folder, later_s=-1.0) == shm.Swept()
    assert (folder / "tree" / "new").exists()


def test_a_file_that_comes_while_users_are_looked_up_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "old").write_bytes(b"x")

    def looked_up(*_: object) -> set[shm.Identity]:
        (folder / "new").write_bytes(b"x")  # by a job that nobody has looked at
        return set()

    monkeypatch.setattr(shm, "identities_in_use", looked_up)
    assert sweep(folder).files == 1
    assert [path.name for path in folder.iterdir()] == ["new"]


def test_a_job_that_comes_while_users_are_looked_up_keeps_everything(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "old").write_bytes(b"x")
    happened = []

    def looked_up(*_: object) -> set[shm.Identity]:
        happened.append("users are looked up")
        return set()

    def alone() -> bool:
        happened.append("other jobs are asked for")
        return False

    monkeypatch.setattr(shm, "identities_in_use", looked_up)
    until = time.monotonic() + 30
    assert shm.sweep(ME, time.time() + 1, until, alone, str(folder)) is None
    assert (folder / "old").exists()
    assert happened == ["users are looked up", "other jobs are asked for"]


# ---- the hook's own limit ----


def test_work_that_hangs_is_left_at_its_limit_and_what_it_said_is_told(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def work() -> None:
        print("it began", file=sys.stderr, flush=True)
        signal.pause()

    began = time.monotonic()
    assert not limited.limited("hook", work, 0.3)
    assert time.monotonic() - began < 5
    assert "it began" in capfd.readouterr().err


def test_what_a_hook_runs_does_not_outlive_its_limit(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    """The command and what it runs in turn hold a pipe open; at its end they are gone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = f"exec 3>{pipe}; sleep 600 & echo began >&3; sleep 600"
    code = f"from fednode.run import run; run(['/bin/sh', '-c', {command!r}], 600)"
    hook = subprocess.Popen(
        [sys.executable, "-c", code],
        start_new_session=True,
        env={"PYTHONPATH": str(Path(limited.__file__).parents[1])},
    )
    started.append(hook)
    with pipe.open() as stream:
        assert stream.readline() == "began\n"
        limited._end(hook.pid)
        assert select.select([stream], [], [], 30)[0]
        assert stream.read() == ""
    assert hook.wait(5) == -signal.SIGKILL


def test_work_that_fails_is_told_and_does_not_raise(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise RuntimeError("broken")

    assert limited.limited("hook", work, 5)
    assert "RuntimeError: broken" in capfd.readouterr().err


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_what_is_told_comes_to_the_systems_log(
    kind: socket.SocketKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, kind) as log:
        log.bind(str(tmp_path / "log"))
        monkeypatch.setattr(limited, "LOG", str(tmp_path / "log"))
        if kind == socket.SOCK_STREAM:
            log.listen()
        limited.tell("hook", "it broke")
        said = log if kind == socket.SOCK_DGRAM else log.accept()[0]
        with contextlib.closing(said):
            line = said.recv(4096).rstrip(b"\0").decode()
    assert re.fullmatch(r"<29>\w+ [ \d]\d \d\d:\d\d:\d\d hook: it broke", line), line


def test_a_system_log_that_takes_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hung:
        hung.bind(str(tmp_path / "log"))
        monkeypatch.setattr(limited, "LOG", str(tmp_path / "log"))
        for number in range(2000):  # far more than its queue holds
            limited.tell("hook", f"line {number}")
    assert "line 1999" in capfd.readouterr().err


def test_without_a_system_log_standard_error_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(limited, "LOG", str(tmp_path / "absent"))
    limited.tell("hook", "it broke")
    assert "hook: it broke" in capfd.readouterr().err
