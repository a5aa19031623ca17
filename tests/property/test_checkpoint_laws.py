"""Laws of checkpoints: whatever happens while one is written, the last complete one is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.checkpoint import Checkpointer, FederatedJob

DIED = 99
IN_MEMORY = "/dev/shm"  # a disk that syncs at once: what is written counts here, not what it costs
Operation = Callable[[], None]


def state_of(step: int) -> dict[str, Any]:
    return {"step": step, "weights": bytes([step % 251]) * 3000}


def save_steps(directory: Path, steps: list[int], *, keep: int = 2, attempt: int = 1) -> None:
    job = FederatedJob(directory, attempt)
    with Checkpointer(job=job, keep=keep, signals=()) as ckpt:
        ckpt.latest()
        for step in steps:
            ckpt.save(step, partial(state_of, step))


def loaded(directory: Path) -> int | None:
    """The step that a new attempt begins with; its state is that of the step."""
    with Checkpointer(directory=directory, signals=()) as ckpt:
        found = ckpt.latest()
    if found is None:
        return None
    assert found.state == state_of(found.step)
    return found.step


def dies_at(operation: int, act: Operation) -> bool:
    """Run ``act`` in a process that dies at its n-th file system operation; whether it did."""
    pid = os.fork()
    if pid == 0:
        count = 0

        def hook(event: str, _arguments: object) -> None:
            nonlocal count
            if event in {
                "open",
                "os.mkdir",
                "os.rename",
                "os.chmod",
                "os.remove",
                "os.rmdir",
                "os.listdir",
                "os.scandir",
                "shutil.rmtree",
            }:
                count += 1
                if count == operation:
                    os._exit(DIED)

        status = 1
        try:
            sys.addaudithook(hook)
            act()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in {0, DIED}
    return status == DIED


@settings(deadline=None)  # disks have no clock of ours
@given(st.integers(1, 120), st.integers(1, 3), st.integers(0, 3))
def test_a_crash_at_any_moment_of_a_save_leaves_the_last_complete_checkpoint(
    operation: int, keep: int, before: int
) -> None:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        directory = Path(folder)
        steps = list(range(1, before + 1))
        save_steps(directory, steps, keep=keep)
        last = steps[-1] if steps else None
        died = dies_at(operation, lambda: save_steps(directory, [before + 1], keep=keep, attempt=2))
        assert loaded(directory) in ({last, before + 1} if died else {before + 1})
        save_steps(directory, [before + 2], keep=keep, attempt=3)  # and the next attempt goes on
        assert loaded(directory) == before + 2
        whole = sorted(path.name for path in directory.iterdir() if path.name != ".fed")
        assert len(whole) <= keep
        assert not any(name.startswith(".") for name in whole)


@settings(deadline=None)  # disks have no clock of ours
@given(
    st.lists(
        st.tuples(st.booleans(), st.floats(0, 1), st.sampled_from(["cut", "zero", "grow"])),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_the_disk_lost_of_the_newest_the_newest_whole_one_is_loaded(
    damages: list[tuple[bool, float, str]],
) -> None:
    """A file system that lied about syncing may have cut files, or left zeros in them."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        directory = Path(folder)
        save_steps(directory, [1, 2, 3, 4], keep=4)
        for number, (of_seal, where, how) in enumerate(damages):
            (checkpoint,) = directory.glob(f"ckpt-{4 - number:08d}-*")
            damage(checkpoint / ("state-0.seal.json" if of_seal else "state-0"), where, how)
        assert loaded(directory) == 4 - len(damages)


def damage(path: Path, where: float, how: str) -> None:
    """Change the file's bytes from a place on."""
    content = path.read_bytes()
    at = int(where * (len(content) - 2))
    rest = {"cut": b"", "zero": b"\0" * (len(content) - at), "grow": content[at:] + b"\0"}
    path.write_bytes(content[:at] + rest[how])


@settings(deadline=None)  # disks have no clock of ours
@given(
    st.lists(st.lists(st.integers(0, 50), max_size=4), min_size=1, max_size=4), st.integers(1, 3)
)
def test_attempts_follow_each_other_and_the_last_saved_is_loaded(
    attempts: list[list[int]], keep: int
) -> None:
    """Whatever the steps, and although every file is as old as can be."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        directory = Path(folder)
        saved: list[int] = []
        for attempt, steps in enumerate(attempts, start=1):
            save_steps(directory, steps, keep=keep, attempt=attempt)
            saved += steps
            for path in directory.rglob("*"):
                os.utime(path, (1, 1))
            assert loaded(directory) == (saved[-1] if saved else None)
        distinct = [s for n, s in enumerate(saved) if n == 0 or saved[n - 1] != s]
        kept = [path for path in directory.iterdir() if path.name.startswith("ckpt-")]
        assert min(keep, len(distinct)) <= len(kept) <= keep or not saved
