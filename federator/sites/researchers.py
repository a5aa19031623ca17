"""Who asks, and for what? The unix socket of researchers' commands, at a site and at the daemon.

The kernel tells who is at the other end; nothing the caller says is believed. What one caller may
send and keep open is bounded, since everyone at the site may connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import pwd
import socket as sockets
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from federator.errors import ConfigError, InvalidRequest, SiteUnavailable
from federator.sites.calls import (
    BANNER,
    MAX_CALL_BYTES,
    Call,
    ErrorKind,
    ErrorReply,
    frame,
)
from federator.sites.protocol import read_frame
from federator.sites.replies import Reply

MAX_CONNECTIONS: Final = 16  # of one user
IDLE_S: Final = 60.0

call_decoder: Final[msgspec.msgpack.Decoder[Call]] = msgspec.msgpack.Decoder(Call)

Answer = Callable[[str, Call], Awaitable[Reply]]


class OpenSocket(Protocol):
    """A socket at which calls are taken."""

    def close(self) -> None: ...


Listen = Callable[[Answer, Path], Awaitable[OpenSocket]]


class ResearcherSocket:
    """Listens, reads calls, and writes what ``answer`` makes of them.

    Args:
        answer: takes the caller's user name and the call.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._open: Counter[int] = Counter()

    async def listen(self, path: Path) -> asyncio.Server:
        """Start to listen at ``path``, in place of whoever did before.

        Raises:
            ConfigError: the path cannot be listened at.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            server = await asyncio.start_unix_server(self._serve, path)
            path.chmod(0o666)  # who calls is told by the kernel, not by the file's mode
        except OSError as error:
            raise ConfigError(f"cannot listen at {path}: {error.strerror or error}") from error
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer)
        self._open[uid] += 1
        try:
            writer.write(BANNER)
            if self._open[uid] > MAX_CONNECTIONS:
                message = f"you have more than {MAX_CONNECTIONS} commands waiting already"
                writer.write(frame(ErrorReply(message=message, kind=ErrorKind.UNAVAILABLE)))
            else:
                await self._converse(user_of(uid), reader, writer)
        except (OSError, SiteUnavailable, TimeoutError):
            pass  # the caller hung up, fell silent, or sent what is no call
        finally:
            self._open[uid] -= 1
            if not self._open[uid]:
                del self._open[uid]
            writer.close()

    async def _converse(
        self, user: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            async with asyncio.timeout(IDLE_S):
                body = await read_frame(reader, MAX_CALL_BYTES)
            if body is None:
                return
            try:
                call = call_decoder.decode(body)
            except msgspec.MsgspecError as error:
                reply: Reply = ErrorReply(message=f"the request cannot be read: {error}")
            else:
                reply = await self._answer(user, call)
            try:
                writer.write(frame(reply))
            except InvalidRequest as error:  # larger than a frame may be
                writer.write(frame(ErrorReply(message=f"the answer is too large: {error}")))
            await writer.drain()


def peer_uid(writer: asyncio.StreamWriter) -> int:
    """The uid of the process at the other end of a unix socket."""
    peer: sockets.socket = writer.get_extra_info("socket")
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, size))
    return int(uid)


def user_of(uid: int) -> str:
    """The name of a user; "#UID" when there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"
