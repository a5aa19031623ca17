"""Processes do runs side by side; they die alone, and leave with who started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from federator.sim.runs.base import RunFailure, outcomes
from federator.sim.runs.executors import InProcess, ProcessPool
from tests.fakes.runs import Squared, squares

pytestmark = pytest.mark.slow


def test_processes_give_what_one_process_gives_in_the_same_order() -> None:
    runs = squares([5, 13, 4, 3, 14])
    alone = list(outcomes(runs, InProcess()))
    assert list(outcomes(runs, ProcessPool(3))) == alone


def test_a_process_that_dies_has_lost_its_own_run_alone() -> None:
    first, second, third = outcomes(squares([1, 15, 2]), ProcessPool(1))
    assert first == Squared(number=1, square=1.0)
    assert second == RunFailure(name="square 15", reason="its process was ended by SIGKILL")
    assert third == Squared(number=2, square=4.0)


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in found.split()]


def test_closing_ends_the_processes_in_the_middle_of_their_runs(tmp_path: Path) -> None:
    never = tmp_path / "never"
    os.mkfifo(never)
    before = set(children(os.getpid()))
    runs = [*squares([1]), *squares([2, 3], wait_for=str(never))]
    found = outcomes(runs, ProcessPool(2))
    assert next(found) == Squared(number=1, square=1.0)
    found.close()
    assert set(children(os.getpid())) - before <= _helpers(before)


def _helpers(before: set[int]) -> set[int]:
    """Processes that multiprocessing itself leaves: none of them does runs."""
    left = set(children(os.getpid())) - before
    return {p for p in left if b"resource_tracker" in Path(f"/proc/{p}/cmdline").read_bytes()}


PROGRAM = """
import signal, sys
from federator.sim.runs.base import outcomes
from federator.sim.runs.executors import ProcessPool
from tests.fakes.runs import squares
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored after a shell's "&"
    runs = [*squares([1]), *squares([2, 3], wait_for=sys.argv[1])]
    for one in outcomes(runs, ProcessPool(2)):
        print(one, flush=True)
"""


def test_an_interrupt_ends_the_processes_too(tmp_path: Path) -> None:
    never, program = tmp_path / "never", tmp_path / "program.py"
    os.mkfifo(never)
    program.write_text(PROGRAM)
    child = subprocess.Popen(
        [sys.executable, str(program), str(never)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert child.stdout is not None
    assert b"square=1.0" in child.stdout.readline()
    workers = children(child.pid)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does
    assert child.wait(60) != 0
    child.stdout.close()
    assert len(workers) >= 2
    assert [pid for pid in workers if _does_runs(pid)] == []


def _does_runs(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"spawn_main" in words
