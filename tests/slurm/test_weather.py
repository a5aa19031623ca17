"""Real faults under a load of 200 jobs: nothing that was acknowledged is lost, nothing runs twice.

SIGKILL and SIGSTOP of every kind of process, a site without network, restarts of slurmctld and
slurmd, full disks. What is counted is what the jobs themselves noted.
``tests/slurm/test_weather_of_two.py`` has two daemons.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.conftest import clear
from tests.slurm.federation import Running, within
from tests.slurm.weather import (
    SILENT_S,
    SITES,
    SUBMISSIONS,
    TASKS,
    Kept,
    Load,
    await_all,
    cut_connections,
    cut_off,
    fill_agents_disk,
    forget_notes,
    kill_agents,
    restart_slurmctld,
    restart_slurmd,
    seen,
    stopped,
    under_load,
)

pytestmark = pytest.mark.slurm


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """No byte more goes to this file system."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    try:
        yield
    finally:
        ballast.unlink()


def test_no_weather_loses_or_doubles_a_job(
    testbed: StateDir, tmp_path: Path, small_disk: Path
) -> None:
    clear()
    forget_notes()
    store = f"sqlite://{small_disk}/queue.db"
    running = Running(tmp_path, store=store, launch_lease_s=30.0, pass_interval_s=10.0)
    load = Load([running])
    with Kept(running) as daemon:
        within(60, running.all_up)
        with under_load(load, SUBMISSIONS, every_s=4.0):
            daemon.send(signal.SIGKILL)
            time.sleep(4)
            kill_agents(*SITES)
            restart_slurmctld("alpine")
            daemon.send(signal.SIGSTOP)
            time.sleep(SILENT_S)
            daemon.send(signal.SIGCONT)
            cut_connections("boreal")
            kill_agents("cedar", name="STOP")
            time.sleep(SILENT_S)
            kill_agents("cedar", name="CONT")
            with cut_off("boreal"):
                time.sleep(SILENT_S)
                restart_slurmd("cedar", "cedar-g1")
            fill_agents_disk("alpine")
            with stopped("cedar", "slurmctld"), stopped("alpine", "slurmd"):
                time.sleep(SILENT_S)
            with full(small_disk):
                within(60, lambda: os.EX_IOERR in daemon.ends)
            daemon.send(signal.SIGKILL)
        states = await_all(running, load, timeout_s=240)
        notes, queued = seen(), len(running.rows())
        running.tidy()
    clear()
    assert states == {"COMPLETED": SUBMISSIONS * TASKS}
    assert notes.doubled() == []
    assert set(notes.began) == set(notes.ended) == set(load.ids)
    assert queued == len(load.ids)  # no submission that was asked for again is there twice
    assert "Traceback" not in running.log()
