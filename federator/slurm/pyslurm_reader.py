"""Answers the reads of a sweep by a child process with pyslurm, and by Slurm's commands else.

A ``Runner`` in front of another: what the child answers is never run as a command. The child is
one long-lived process per agent (``pyslurm_child``), since importing pyslurm where no slurm.conf
can be read ends the process. It is started beside the sweeps, and no sweep waits for it; once it
serves, a question waits ``ANSWER_S`` at most. A child that hangs, dies or breaks its protocol is
killed, said once, and started again after a pause that doubles; so is a question that pyslurm
cannot answer, while the others go on. Meanwhile the commands are run.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from federator.slurm.runner import Completed, Runner

START_S: Final = 70.0  # an import without a slurm.conf tries for a minute before it gives up
ANSWER_S: Final = 5.0
FIRST_PAUSE_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
MOST_BYTES: Final = 2**28  # of one answer; 10,000 nodes are 6 MiB, 15,000 jobs 8 MiB
_CHILD: Final = Path(__file__).with_name("pyslurm_child.py")
_READS: Final = {
    ("scontrol", "-a", "-d", "-o", "show", "nodes"): "nodes",
    ("scontrol", "-a", "-o", "show", "partitions"): "partitions",
}
_TRES: Final = "tres-alloc"  # a field that pyslurm does not have, of sites that are watched

Note = Callable[[str, str], None]


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of an answer, and the child's first line of all."""

    pyslurm: str = ""  # its release
    bytes: int | None = None
    cannot: str = ""


class ChildFailedError(Exception):
    """The child is of no use any more, and why."""


@dataclass(slots=True)
class _Pause:
    """The time in which something that failed is not tried again."""

    until_s: float = 0.0
    next_s: float = FIRST_PAUSE_S

    def begin(self, now_s: float) -> None:
        self.until_s = now_s + self.next_s
        self.next_s = min(2 * self.next_s, LONGEST_PAUSE_S)


def child_command() -> tuple[str, ...]:
    """The child, for the Python that this process runs on."""
    return (sys.executable, "-I", str(_CHILD))


class PyslurmRunner:
    """Runs commands, those of a sweep by pyslurm.

    Args:
        commands: runs what pyslurm does not answer.
        note: gets an event and its detail; that of one state comes once.
        command: the child.
        clock: monotonic.
    """

    def __init__(
        self,
        commands: Runner,
        note: Note,
        command: Sequence[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = commands
        self._note = note
        self._command = tuple(command or child_command())
        self._clock = clock
        self._child: Process | None = None  # that serves
        self._starting: asyncio.Task[None] | None = None
        self._pauses: dict[str, _Pause] = {}  # by question; of the child under ""
        self._said: dict[str, str] = {}
        self._one_by_one = asyncio.Lock()

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float,
        env: Mapping[str, str],
    ) -> Completed:
        """See ``Runner.run``."""
        question = _question(argv)
        if question:
            answer = await self._answer(question, argv, env)
            if answer is not None:
                return Completed(exit_status=0, stdout=answer, stderr=b"")
        return await self._commands.run(argv, stdin=stdin, timeout_s=timeout_s, env=env)

    async def started(self) -> None:
        """Wait until the child serves, or has failed to."""
        if self._starting is not None:
            await self._starting

    async def close(self) -> None:
        """End the child."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._end()

    async def _answer(
        self, question: str, argv: Sequence[str], env: Mapping[str, str]
    ) -> bytes | None:
        """What the child says; None: nothing, now."""
        if self._paused("") or self._paused(question):
            return None
        if self._child is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._start(env))
            return None
        async with self._one_by_one:
            found = await self._asked(question, argv)
        if found is None:
            return None
        head, body = found
        if head.cannot:
            self._pauses.setdefault(question, _Pause()).begin(self._clock())
            self._write("reader_fell_back", f"{question}: {head.cannot}", question)
            return None
        self._pauses.pop("", None)
        if self._pauses.pop(question, None) is not None:
            self._write("reader_answers_again", question, question)
        return body

    async def _asked(self, question: str, argv: Sequence[str]) -> tuple[_Head, bytes] | None:
        """The child's answer; None: it has failed, at this question or the one before."""
        if (child := self._child) is None:
            return None
        try:
            return await asyncio.wait_for(_ask(child, argv), ANSWER_S)
        except TimeoutError:
            await self._failed(f"{question}: no answer after {ANSWER_S:g} s", question)
        except ChildFailedError as error:
            await self._failed(f"{question}: {error}", question)
        except BaseException:  # cancelled: the rest of the answer would pass for the next
            await self._end()
            raise
        return None

    def _paused(self, what: str) -> bool:
        return what in self._pauses and self._clock() < self._pauses[what].until_s

    async def _start(self, env: Mapping[str, str]) -> None:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env=dict(env),
                limit=2**16,
                start_new_session=True,
            )
        except OSError as error:
            await self._failed(f"cannot run {self._command[0]}: {error.strerror}")
            return
        try:
            head = await asyncio.wait_for(_head(child), START_S)
        except (TimeoutError, ChildFailedError) as error:
            await _kill(child)
            await self._failed(str(error) or f"pyslurm is not there after {START_S:g} s")
        except BaseException:
            await _kill(child)
            raise
        else:
            self._child = child
            self._write("reader_started", f"pyslurm {head.pyslurm[:40]}")

    async def _failed(self, why: str, question: str = "") -> None:
        """The child is over; so is the question that it failed, for longer than its next start."""
        await self._end()
        for what in {"", question}:
            self._pauses.setdefault(what, _Pause()).begin(self._clock())
        self._write("reader_fell_back", why)

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await _kill(child)

    def _write(self, event: str, detail: str, question: str = "") -> None:
        """Note the state of a question, or of the child, once."""
        if self._said.get(question) != event + detail:
            self._said[question] = event + detail
            self._note(event, detail)


def _question(argv: Sequence[str]) -> str:
    """What a command asks, if pyslurm knows that; "": it does not."""
    if argv[0] == "squeue" and {"-t", "-O"} <= {*argv} and "-j" not in argv:
        states, form = argv[argv.index("-t") + 1], argv[argv.index("-O") + 1]
        if _TRES in form:
            return ""
        return "jobs" if states == "all" else "jobs on nodes"
    return _READS.get(tuple(argv), "")


async def _ask(child: Process, argv: Sequence[str]) -> tuple[_Head, bytes]:
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(OSError):  # its end is noticed below
        child.stdin.write(msgspec.json.encode(list(argv)) + b"\n")
        await child.stdin.drain()
    head = await _head(child)
    if head.cannot:
        return head, b""
    if head.bytes is None or not 0 <= head.bytes <= MOST_BYTES:
        _broken("an answer without a length")
    try:
        return head, await child.stdout.readexactly(head.bytes)
    except asyncio.IncompleteReadError:
        raise await _how_it_ended(child) from None


async def _head(child: Process) -> _Head:
    assert child.stdout is not None
    try:
        line = await child.stdout.readline()
    except ValueError:
        _broken("a line without an end")
    if not line.endswith(b"\n"):
        raise await _how_it_ended(child)
    try:
        return msgspec.json.decode(line, type=_Head)
    except msgspec.MsgspecError:
        _broken("a line that is no answer")


def _broken(what: str) -> NoReturn:
    raise ChildFailedError(f"it sent {what}")


async def _how_it_ended(child: Process) -> ChildFailedError:
    status = await child.wait()
    return ChildFailedError(
        f"it ended by signal {-status}"
        if status < 0
        else f"it ended with status {status}; is pyslurm installed, and slurm.conf readable?"
    )


async def _kill(child: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    await child.wait()
