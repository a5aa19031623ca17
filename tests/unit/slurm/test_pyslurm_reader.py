"""A runner in front of another: by a child with pyslurm while that answers, by commands else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from federator.slurm import pyslurm_child, pyslurm_reader
from federator.slurm.parse_jobs import OTHERS_FORMAT, SQUEUE_FORMAT, WATCHED_FORMAT
from federator.slurm.pyslurm_reader import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    PyslurmRunner,
    child_command,
)
from federator.slurm.runner import Completed

NODES: Final = pyslurm_child.NODES
PARTITIONS: Final = pyslurm_child.PARTITIONS
SQUEUE: Final = ("squeue", "--local", "-h", "-a", "-t", "all", "-O", SQUEUE_FORMAT)
READY: Final = '{"pyslurm": "24.11.0"}'


def saying(body: str) -> str:
    """A child that serves, and takes each question so."""
    return (
        f"import json, os, sys, time\nprint('{READY}', flush=True)\nfor line in sys.stdin:\n{body}"
    )


GOOD: Final = saying("    print('{\"bytes\": 4}\\nsaid', end='', flush=True)\n")
HUNG: Final = saying("    time.sleep(3600)\n")
KILLED: Final = saying("    os.kill(os.getpid(), 9)\n")
HALF: Final = saying("    print('{\"bytes\": 9}\\nsaid', end='', flush=True); os._exit(3)\n")
NONSENSE: Final = saying("    print('slurm_load_jobs error', flush=True)\n")
HUGE: Final = saying("    print('{\"bytes\": 1000000000000}', flush=True)\n")
CANNOT: Final = saying(
    "    no = 'nodes' in line\n"
    "    print('{\"cannot\": \"no gres\"}' if no else '{\"bytes\": 4}\\nsaid', end='\\n' if no"
    " else '', flush=True)\n"
)
DIES_AT_IMPORT: Final = "import sys; sys.exit(1)\n"


class Commands:
    """Says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",  # noqa: ARG002
        timeout_s: float,  # noqa: ARG002
        env: Mapping[str, str],  # noqa: ARG002
    ) -> Completed:
        self.asked.append(tuple(argv))
        return Completed(exit_status=0, stdout=b"command", stderr=b"")


class Bench:
    """A reader whose child is a script, its clock, and what it noted."""

    def __init__(self, script: str) -> None:
        self.commands = Commands()
        self.notes: list[tuple[str, str]] = []
        self.now_s = 0.0
        self.script = script
        self.reader = PyslurmRunner(
            self.commands,
            lambda event, detail: self.notes.append((event, detail)),
            (sys.executable, "-I", "-c", script),
            clock=lambda: self.now_s,
        )

    async def ask(self, argv: Sequence[str] = PARTITIONS) -> bytes:
        return (await self.reader.run(argv, timeout_s=9.0, env={"PATH": "/bin"})).stdout

    async def begin(self) -> None:
        await self.ask()
        await self.reader.started()
        self.commands.asked.clear()

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.notes]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that a busy machine keeps waiting does not hang."""
    monkeypatch.setattr(pyslurm_reader, "ANSWER_S", 60.0)


def played(script: str, play: Callable[[Bench], Awaitable[None]]) -> Bench:
    bench = Bench(script)

    async def run() -> None:
        try:
            await play(bench)
        finally:
            await bench.reader.close()

    asyncio.run(run())
    return bench


def test_reads_of_a_sweep_are_the_childs_and_no_command_is_run() -> None:
    async def play(bench: Bench) -> None:
        await bench.begin()
        others = (*SQUEUE[:5], "R,CF,CG,S", "-O", OTHERS_FORMAT)
        for argv in (PARTITIONS, NODES, SQUEUE, (*SQUEUE, "-p", "fed"), others):
            assert await bench.ask(argv) == b"said"

    bench = played(GOOD, play)
    assert bench.commands.asked == []
    assert bench.notes == [("reader_started", "pyslurm 24.11.0")]


@pytest.mark.parametrize(
    "argv",
    [
        ("scontrol", "-a", "-o", "show", "reservations"),
        ("scontrol", "show", "topology"),
        ("scontrol", "-a", "-d", "-o", "show", "job", "7"),
        (*SQUEUE, "-j", "7,8"),
        (*SQUEUE[:-1], WATCHED_FORMAT),
        ("sudo", "-n", "-u", "ann", "/opt/federator/libexec/fed-site-exec"),
    ],
)
def test_everything_else_stays_a_command(argv: tuple[str, ...]) -> None:
    async def play(bench: Bench) -> None:
        await bench.begin()
        assert await bench.ask(argv) == b"command"

    assert played(GOOD, play).commands.asked == [argv]


def test_no_sweep_waits_for_the_child_to_start() -> None:
    async def play(bench: Bench) -> None:
        assert await bench.ask() == b"command"
        assert await bench.ask() == b"command"

    bench = played("import time; time.sleep(3600)", play)
    assert bench.commands.asked == [PARTITIONS, PARTITIONS]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (KILLED, "partitions: it ended by signal 9"),
        (HALF, "partitions: it ended with status 3"),
        (NONSENSE, "partitions: it sent a line that is no answer"),
        (HUGE, "partitions: it sent an answer without a length"),
        (saying("    print('x' * 99999, flush=True)\n"), "it sent a line without an end"),
    ],
)
def test_a_child_that_fails_falls_back_with_one_line(script: str, words: str) -> None:
    async def play(bench: Bench) -> None:
        await bench.begin()
        for _ in range(5):
            assert await bench.ask() == b"command"

    bench = played(script, play)
    assert bench.events == ["reader_started", "reader_fell_back"]
    assert words in bench.notes[1][1]


def test_a_child_that_hangs_is_killed_and_the_look_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pyslurm_reader, "ANSWER_S", 0.05)

    async def play(bench: Bench) -> None:
        await bench.begin()
        child = bench.reader._child
        assert child is not None
        assert await bench.ask(SQUEUE) == b"command"
        assert child.returncode == -9
        assert await bench.ask(NODES) == b"command"  # at once

    bench = played(HUNG, play)
    assert bench.notes[1:] == [("reader_fell_back", "jobs: no answer after 0.05 s")]


def test_an_import_that_ends_the_process_is_tried_again_later_and_said_once() -> None:
    starts: list[float] = []

    async def play(bench: Bench) -> None:
        for bench.now_s in range(0, 4000, 10):
            task = bench.reader._starting
            assert await bench.ask() == b"command"
            if bench.reader._starting is not task:
                starts.append(bench.now_s)
            await bench.reader.started()

    bench = played(DIES_AT_IMPORT, play)
    assert starts == [0, 60, 180, 420, 900, 1860, 3780]
    assert len(bench.notes) == 1
    assert "status 1; is pyslurm installed, and slurm.conf readable?" in bench.notes[0][1]


def test_pauses_grow_to_an_hour_at_most() -> None:
    pause = pyslurm_reader._Pause()
    lengths = []
    for _ in range(9):
        pause.begin(0.0)
        lengths.append(pause.until_s)
    assert lengths[0] == FIRST_PAUSE_S
    assert lengths[-1] == lengths[-2] == LONGEST_PAUSE_S


def test_a_python_that_is_not_there_is_no_error() -> None:
    async def play(bench: Bench) -> None:
        bench.reader._command = ("/nonexistent/python",)
        await bench.begin()
        assert await bench.ask() == b"command"

    bench = played("", play)
    assert bench.notes == [
        ("reader_fell_back", "cannot run /nonexistent/python: No such file or directory")
    ]


def test_what_pyslurm_cannot_tell_is_asked_of_the_command_and_the_rest_goes_on() -> None:
    async def play(bench: Bench) -> None:
        await bench.begin()
        for _ in range(3):
            assert await bench.ask(NODES) == b"command"
            assert await bench.ask(SQUEUE) == b"said"

    bench = played(CANNOT, play)
    assert bench.commands.asked == [NODES] * 3
    assert bench.notes[1:] == [("reader_fell_back", "nodes: no gres")]


def test_a_question_is_tried_again_after_a_while_and_its_return_is_said(tmp_path: Path) -> None:
    flag = tmp_path / "well"
    script = saying(
        f"    well = os.path.exists({str(flag)!r})\n"
        '    print(\'{"bytes": 4}\\nsaid\' if well else \'{"cannot": "no"}\','
        " end='' if well else '\\n', flush=True)\n"
    )

    async def play(bench: Bench) -> None:
        await bench.begin()
        assert await bench.ask() == b"command"
        flag.touch()
        assert await bench.ask() == b"command"  # not yet
        bench.now_s = FIRST_PAUSE_S
        assert await bench.ask() == b"said"

    assert played(script, play).events == [
        "reader_started",
        "reader_fell_back",
        "reader_answers_again",
    ]


def test_the_question_at_which_a_child_dies_does_not_take_the_others_with_it_for_good() -> None:
    script = saying(
        "    if 'squeue' in line: os._exit(1)\n"
        "    print('{\"bytes\": 4}\\nsaid', end='', flush=True)\n"
    )

    async def play(bench: Bench) -> None:
        await bench.begin()
        assert await bench.ask(SQUEUE) == b"command"
        bench.now_s = FIRST_PAUSE_S
        await bench.begin()
        assert await bench.ask(PARTITIONS) == b"said"
        assert await bench.ask(SQUEUE) == b"command"  # dies again
        bench.now_s += FIRST_PAUSE_S
        await bench.begin()
        assert await bench.ask(PARTITIONS) == b"said"
        assert await bench.ask(SQUEUE) == b"command"  # is not asked: its pause has doubled
        assert await bench.ask(PARTITIONS) == b"said"

    played(script, play)


def test_a_cancelled_question_leaves_no_half_answer_behind() -> None:
    async def play(bench: Bench) -> None:
        await bench.begin()
        task = asyncio.create_task(bench.ask())
        while not bench.reader._one_by_one.locked():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bench.reader._child is None

    played(HUNG, play)


def test_questions_come_one_by_one() -> None:
    async def play(bench: Bench) -> None:
        await bench.begin()
        said = await asyncio.gather(*(bench.ask(argv) for argv in (PARTITIONS, NODES, SQUEUE) * 5))
        assert set(said) == {b"said"}

    played(GOOD, play)


def test_without_pyslurm_the_real_child_ends_and_commands_go_on() -> None:
    async def play(bench: Bench) -> None:
        bench.reader._command = child_command()
        await bench.begin()
        assert await bench.ask() == b"command"

    assert played("", play).events == ["reader_fell_back"]


def test_the_child_ends_with_its_agent() -> None:
    """It reads its questions to the end of the pipe."""
    out = SimpleNamespace(write=lambda _data: None, flush=lambda: None)
    pyslurm_child.serve(SimpleNamespace(), iter(()), out)  # type: ignore[arg-type]
