"""Opens the channel to an agent: over SSH, or as a process of its own."""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import asyncssh

from federator.errors import SiteUnavailable
from federator.wire.framing import ByteReader

CONNECT_TIMEOUT_S = 10.0


class Channel(Protocol):
    """A pair of byte streams to one running agent."""

    reader: ByteReader

    def write(self, data: bytes) -> None: ...

    def writelines(self, parts: Sequence[bytes]) -> None:
        """Write several parts at once."""
        ...

    async def drain(self) -> None: ...

    async def close(self) -> None: ...

    def last_words(self) -> str:
        """The last lines that the agent wrote to its standard error; "" when nothing."""
        ...


class _Complaints:
    """Reads an agent's standard error as it comes and keeps its last lines."""

    def __init__(self, reader: ByteReader) -> None:
        self._lines: deque[str] = deque(maxlen=3)
        self._task = asyncio.create_task(self._read(reader))

    async def _read(self, reader: ByteReader) -> None:
        with suppress(Exception):  # a channel may break in many ways; what was read stays
            while line := await reader.readline():
                self._lines.append(line.decode(errors="replace").strip()[:300])

    def text(self) -> str:
        return " / ".join(self._lines)

    def end(self) -> None:
        self._task.cancel()


class Transport(Protocol):
    async def open(self) -> Channel:
        """Start an agent and return the channel to it.

        Raises:
            SiteUnavailable: it cannot be reached, or is not who it should be.
        """
        ...

    async def probe(self) -> None:
        """Go as far as possible without starting an agent.

        Raises:
            SiteUnavailable: as ``open``.
        """
        ...


class _SshReader:
    """asyncssh's reader, with its errors in our words."""

    def __init__(self, reader: asyncssh.SSHReader[bytes]) -> None:
        self._reader = reader

    async def read(self, n: int, /) -> bytes:
        try:
            return await self._reader.read(n)
        except asyncssh.Error as error:
            raise SiteUnavailable(f"the SSH connection broke: {error}") from error

    async def readexactly(self, n: int, /) -> bytes:
        try:
            return await self._reader.readexactly(n)
        except asyncssh.Error as error:
            raise SiteUnavailable(f"the SSH connection broke: {error}") from error

    async def readline(self) -> bytes:
        try:
            return await self._reader.readline()
        except asyncssh.Error as error:
            raise SiteUnavailable(f"the SSH connection broke: {error}") from error


class _SshChannel:
    def __init__(
        self, connection: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess[bytes]
    ) -> None:
        self._connection = connection
        self._process = process
        self._complaints = _Complaints(process.stderr)
        self.reader: ByteReader = _SshReader(process.stdout)

    def last_words(self) -> str:
        return self._complaints.text()

    def write(self, data: bytes) -> None:
        self._process.stdin.write(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        self._process.stdin.writelines(parts)

    async def drain(self) -> None:
        await self._process.stdin.drain()

    async def close(self) -> None:
        self._complaints.end()
        self._process.close()
        self._connection.abort()
        with suppress(Exception):  # whatever a dead peer does to a closing channel
            await asyncio.wait_for(self._connection.wait_closed(), 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTransport:
    """An agent behind sshd: the key's forced command starts it, whatever is asked for."""

    host: str
    port: int
    user: str
    key: Path
    known_hosts: Path

    async def open(self) -> Channel:
        connection = await self.connect()
        try:
            process = await asyncio.wait_for(
                connection.create_process(encoding=None),
                CONNECT_TIMEOUT_S,
            )
        except (OSError, asyncssh.Error, TimeoutError) as error:
            connection.abort()
            raise SiteUnavailable(f"{self._where}: no session: {error}") from error
        except asyncio.CancelledError:
            connection.abort()
            raise
        return _SshChannel(connection, process)

    async def probe(self) -> None:
        connection = await self.connect()
        connection.close()
        await connection.wait_closed()

    @property
    def _where(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"

    async def connect(self) -> asyncssh.SSHClientConnection:
        """Log in, and start nothing.

        Raises:
            SiteUnavailable: as ``open``.
        """
        try:
            return await asyncio.wait_for(self._connect(), CONNECT_TIMEOUT_S)
        except TimeoutError as error:
            detail = f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
            raise SiteUnavailable(f"{self._where}: {detail}") from error
        except (OSError, asyncssh.Error, ValueError) as error:
            raise SiteUnavailable(f"{self._where}: {error}") from error

    async def _connect(self) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            self.host,
            self.port,
            username=self.user,
            client_keys=[str(self.key)],
            known_hosts=str(self.known_hosts),
            agent_path=None,
            config=None,
            password_auth=False,
            kbdint_auth=False,
            keepalive_interval=5,
            keepalive_count_max=3,
        )


class _ProcessChannel:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._complaints = _Complaints(process.stderr)
        self.reader: ByteReader = process.stdout

    def write(self, data: bytes) -> None:
        self._stdin.write(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        self._stdin.writelines(parts)

    def last_words(self) -> str:
        return self._complaints.text()

    async def drain(self) -> None:
        await self._stdin.drain()

    async def close(self) -> None:
        """Close its input, upon which an agent ends by itself; kill it if it does not."""
        self._complaints.end()
        self._stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 5.0)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTransport:
    """An agent on the daemon's own machine."""

    argv: tuple[str, ...]

    async def open(self) -> Channel:
        try:
            process = await asyncio.create_subprocess_exec(
                *self.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise SiteUnavailable(f"{self.argv[0]}: {error.strerror}") from error
        return _ProcessChannel(process)

    async def probe(self) -> None:
        if shutil.which(self.argv[0]) is None:
            raise SiteUnavailable(f"{self.argv[0]}: no such program")
