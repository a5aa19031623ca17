"""Dials the daemon from a site that cannot be reached from outside, again and again.

Each time it starts ``ssh`` to the daemon's host and, once that has attached the site to a daemon,
an agent, whose standard input and output are those of ``ssh``. So the agent is the same as where
the daemon connects, and ends with its channel; only who opens that is another.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Final

from federator.agent.config import DialTo
from federator.errors import SiteUnavailable
from federator.wire.attaching import ATTACHED, LOGIN_NODE, STANDING_BY

RETRY_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0)  # after each time that every daemon was tried
LASTING_S: Final = 30.0  # a channel that was up for so long was a good one
ENDS_WITHIN_S: Final = 12.0  # an agent whose channel is gone; an ssh that was asked to
LAST_WORDS_S: Final = 5.0  # for what an agent says last to reach the daemon
ATTACHED_WITHIN_S: Final = 40.0  # else the next daemon is tried: this one may hang
_MOST_BYTES: Final = 2**16  # of a login shell, before the site is attached
_TAIL_BYTES: Final = 2**12


def ssh_argv(to: DialTo) -> list[str]:
    """The command that reaches one daemon's host: its pinned key, nobody's configuration.

    What it asks for is this host's name: the command that runs there is the key's.
    """
    options = (
        *("BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "ControlPath=none"),
        *("StrictHostKeyChecking=yes", f"UserKnownHostsFile={to.known_hosts}"),
        *("GlobalKnownHostsFile=/dev/null", "CheckHostIP=no", "UpdateHostKeys=no"),
        *("PreferredAuthentications=publickey", "ClearAllForwardings=yes", "LogLevel=ERROR"),
        *("ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"),
    )
    settings = [word for option in options for word in ("-o", option)]
    where = ["-i", to.key, "-p", str(to.port), "-l", to.user]
    return ["ssh", "-F", "/dev/null", "-T", *settings, *where, "--", to.host, *_login_node()]


def _login_node() -> list[str]:
    """The name of this host, if it can be told."""
    name = socket.gethostname()[:64]
    return [name] if LOGIN_NODE.fullmatch(name) else []


class DialTurns:
    """Which daemon is dialled next, and when: one that served first, then each of the others.

    The pause is long only once all of them were tried: mostly one leads, and the others refuse.

    Args:
        daemons: how many there are, at least one.
    """

    def __init__(self, daemons: int) -> None:
        self._daemons = daemons
        self._failures = 0  # since a channel lasted
        self.next = 0
        """The index of the daemon that is dialled next."""

    def ended(self, *, lasted: bool) -> float:
        """Take in how a channel ended; the seconds until the next is dialled."""
        self._failures = 0 if lasted else self._failures + 1
        self.next = (self.next + (not lasted)) % self._daemons
        rounds, begun = divmod(self._failures, self._daemons)
        return RETRY_S[0] if begun else RETRY_S[min(rounds, len(RETRY_S) - 1)]


class Dialer:
    """Keeps one channel to a daemon open.

    Args:
        daemons: hosts of daemons; one after the other is tried.
        agent: the command that starts an agent on its standard input and output.
        tell: takes a line for the log, once for each change.
        command_to: the command that reaches a daemon's host.
    """

    def __init__(
        self,
        daemons: Sequence[DialTo],
        agent: Sequence[str],
        tell: Callable[[str], None],
        command_to: Callable[[DialTo], list[str]] = ssh_argv,
    ) -> None:
        self._daemons = daemons
        self._agent = agent
        self._tell = tell
        self._command_to = command_to
        self._stopping = asyncio.Event()
        self._said = ""
        self._attached_at_s = inf

    def stop(self) -> None:
        """End ``run``, and the channel."""
        self._stopping.set()

    async def run(self) -> None:
        """Dial until ``stop``."""
        turns = DialTurns(len(self._daemons))
        while not self._stopping.is_set():
            to = self._daemons[turns.next]
            self._attached_at_s = inf
            why = await self._one_channel(to)
            lasted = time.monotonic() - self._attached_at_s >= LASTING_S
            self._note(f"{to.host}: {why}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), turns.ended(lasted=lasted))

    def _note(self, line: str) -> None:
        if line != self._said and not self._stopping.is_set():
            self._tell(line)
            self._said = line

    async def _one_channel(self, to: DialTo) -> str:
        """Open a channel and serve it to its end, with whatever comes; what ended it."""
        pipes = _Pipes()
        started: list[_Child] = []
        try:
            ssh = await _Child.start(self._command_to(to), pipes.ssh_in, pipes.ssh_out)
            started.append(ssh)
            pipes.close("ssh_out")
            if not await self._is_attached(to.host, ssh, pipes.from_ssh):
                await ssh.end()
                return await ssh.last_words() or "no daemon has attached the site"
            agent = await _Child.start(self._agent, pipes.from_ssh, pipes.to_ssh)
            started.append(agent)
            self._attached_at_s = time.monotonic()
            self._note(f"{to.host}: attached")
            pipes.close("ssh_in", "from_ssh", "to_ssh")
            await self._until_one_ends(ssh, agent)
            await agent.end()
            await ssh.ends_within(LAST_WORDS_S)  # the daemon hangs up once it has read all
            await ssh.end()
            said = [words for each in (agent, ssh) if (words := await each.last_words())]
            return " / ".join(["the channel ended", *said])
        except OSError as error:
            return str(error)
        finally:
            pipes.close(*_Pipes.NAMES)
            for each in started:
                await each.end()

    async def _is_attached(self, host: str, ssh: _Child, from_ssh: int) -> bool:
        """Whether a daemon has taken the site; what a login shell prints before is skipped.

        While another login node is attached this one stands by, for as long as ssh lasts.
        """
        loop, standing_by = asyncio.get_running_loop(), asyncio.Event()

        def stands_by() -> None:
            loop.call_soon_threadsafe(standing_by.set)

        reading = asyncio.ensure_future(asyncio.to_thread(_says_attached, from_ssh, stands_by))
        waiting = asyncio.ensure_future(standing_by.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait(
            (reading, waiting, stopping),
            timeout=ATTACHED_WITHIN_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if standing_by.is_set():
            self._note(f"{host}: stands by: another login node of this site is attached")
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        stopping.cancel()
        if not reading.done():
            await ssh.end()  # upon which there is no more to read
        return await reading and not self._stopping.is_set()

    async def _until_one_ends(self, *children: _Child) -> None:
        waits = [asyncio.ensure_future(each.process.wait()) for each in children]
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((*waits, stopping), return_when=asyncio.FIRST_COMPLETED)
        for each in (*waits, stopping):
            each.cancel()


def _says_attached(from_ssh: int, stands_by: Callable[[], None]) -> bool:
    """Read up to the line that says so and not a byte further: the agent reads the rest."""
    last, longest = b"", max(len(ATTACHED), len(STANDING_BY))
    for _ in range(_MOST_BYTES):
        byte = os.read(from_ssh, 1)
        if not byte:
            return False
        last = (last + byte)[-longest:]
        if last.endswith(ATTACHED):
            return True
        if last.endswith(STANDING_BY):
            stands_by()
    return False


class _Pipes:
    """Both ways between ssh and the agent, which do not exist at the same time from the start."""

    NAMES: Final = ("from_ssh", "ssh_out", "ssh_in", "to_ssh")

    def __init__(self) -> None:
        self.from_ssh, self.ssh_out = os.pipe()
        self.ssh_in, self.to_ssh = os.pipe()

    def close(self, *names: str) -> None:
        """Close these ends here, unless that is done."""
        for name in names:
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)


class _Child:
    """A process, and the last that it writes to its standard error."""

    def __init__(self, process: Process) -> None:
        assert process.stderr is not None
        self.process = process
        self._tail = b""
        self._reading = asyncio.ensure_future(self._read(process.stderr))

    @classmethod
    async def start(cls, argv: Sequence[str], stdin: int, stdout: int) -> _Child:
        """Start it.

        Raises:
            OSError: it cannot be.
        """
        return cls(
            await asyncio.create_subprocess_exec(*argv, stdin=stdin, stdout=stdout, stderr=PIPE)
        )

    async def _read(self, stderr: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await stderr.read(_TAIL_BYTES):
                self._tail = (self._tail + data)[-_TAIL_BYTES:]

    async def end(self) -> None:
        """Have it finish what it is in, then end, unless it has."""
        self._signal(Process.terminate)
        if not await self.ends_within(ENDS_WITHIN_S):
            self._signal(Process.kill)
            await self.process.wait()

    async def ends_within(self, span_s: float) -> bool:
        """Wait for it to end by itself; whether it did."""
        try:
            await asyncio.wait_for(self.process.wait(), span_s)
        except TimeoutError:
            return False
        return True

    def _signal(self, how: Callable[[Process], None]) -> None:
        with contextlib.suppress(ProcessLookupError):
            how(self.process)

    async def last_words(self) -> str:
        """Its last lines, once it has ended."""
        with contextlib.suppress(TimeoutError):  # a child of it may keep the pipe open
            await asyncio.wait_for(self._reading, 1.0)
        lines = self._tail.decode(errors="replace").splitlines()[-3:]
        return " / ".join(line.strip()[:300] for line in lines if line.strip())


def only_dialer(folder: Path) -> int:
    """Become the one dialler of this host; the descriptor is to be kept open.

    The folder may be shared with other login nodes, which have diallers of their own.

    Raises:
        SiteUnavailable: another one runs (two would take the channel from each other), or the
            folder is not there.
    """
    name = f"dial.{socket.gethostname()[:64]}"
    try:
        lock = os.open(folder / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SiteUnavailable(f"the agent's own files in {folder}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise SiteUnavailable(f"another dialler of this host runs: {folder / name}") from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock
