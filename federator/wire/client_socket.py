"""Serves the unix socket of users' commands, at a site and at the daemon, fairly by user.

The kernel tells who is at the other end; nothing the caller says is believed. Everyone at the site
may connect, so what one user may keep open is bounded, and no user waits for another's calls: each
has as many slots as any other. Who has more calls than slots has them wait in order; beyond that a
caller is told that the service is busy, before it is read, and asks again by itself
(``cli.client``).
"""

from __future__ import annotations

import asyncio
import contextlib
import pwd
import socket as sockets
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from federator.errors import ConfigError, InvalidRequest, SiteUnavailable
from federator.model.unreadable import UNREADABLE
from federator.wire.client_protocol import (
    BANNER,
    MAX_CALL_BYTES,
    Call,
    ErrorKind,
    ErrorReply,
    frame,
)
from federator.wire.framing import FrameReader
from federator.wire.replies import Reply

SERVED_AT_ONCE: Final = 16  # connections of one user
WAITING_AT_MOST: Final = 256  # of one user, beside those that are served
OPEN_AT_MOST: Final = 600  # of all users; then whoever has most waiting gives way
IDLE_S: Final = 60.0
BACKLOG: Final = 512  # that the kernel keeps in order: who comes last waits for all of them
ACCEPTED_AT_ONCE: Final = 64  # before anything else has its turn
NO_FILES_PAUSE_S: Final = 0.1  # after the process has run out of file descriptors
_BUSY: Final = frame(
    ErrorReply(message="busy: too many commands wait; ask again", kind=ErrorKind.BUSY)
)

call_decoder: Final[msgspec.msgpack.Decoder[Call]] = msgspec.msgpack.Decoder(Call)

Answer = Callable[[str, Call], Awaitable[Reply]]


class OpenSocket(Protocol):
    """A socket at which calls are taken."""

    def close(self) -> None: ...


Listen = Callable[[Answer, Path], Awaitable[OpenSocket]]


@dataclass(slots=True)
class _Caller:
    """The connections of one user."""

    served: int = 0
    waiting: deque[sockets.socket] = field(default_factory=deque)


class ClientSocket:
    """Listens, reads calls, and writes what ``answer`` makes of them.

    Args:
        answer: takes the caller's user name and the call.
        uid_of: tells whose a connection is; by default the kernel does.
    """

    def __init__(
        self, answer: Answer, uid_of: Callable[[sockets.socket], int] | None = None
    ) -> None:
        self._answer = answer
        self._uid_of = peer_uid if uid_of is None else uid_of
        self._callers: dict[int, _Caller] = {}
        self._open = 0
        self._serving: set[asyncio.Task[None]] = set()  # or they could be lost on their way

    async def listen(self, path: Path) -> OpenSocket:
        """Start to listen at ``path``, in place of whoever did before.

        Raises:
            ConfigError: the path cannot be listened at.
        """
        door = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            door.setblocking(False)
            door.bind(str(path))
            door.listen(BACKLOG)
            path.chmod(0o666)  # who calls is told by the kernel, not by the file's mode
        except OSError as error:
            door.close()
            raise ConfigError(f"cannot listen at {path}: {error.strerror or error}") from error
        asyncio.get_running_loop().add_reader(door.fileno(), self._accept, door)
        return _Door(door, self._turn_away_waiting)

    # ---- who may come in ----

    def _accept(self, door: sockets.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                peer, _address = door.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no file descriptor is left
                loop = asyncio.get_running_loop()
                loop.remove_reader(door.fileno())
                loop.call_later(NO_FILES_PAUSE_S, self._listen_again, door)
                return
            peer.setblocking(False)
            self._take(peer)

    def _listen_again(self, door: sockets.socket) -> None:
        if door.fileno() >= 0:
            asyncio.get_running_loop().add_reader(door.fileno(), self._accept, door)

    def _take(self, peer: sockets.socket) -> None:
        """Serve a connection, let it wait, or turn it away."""
        try:
            uid = self._uid_of(peer)
            peer.send(BANNER)
        except OSError:  # it is gone
            peer.close()
            return
        caller = self._callers.setdefault(uid, _Caller())
        self._open += 1
        caller.waiting.append(peer)
        if caller.served < SERVED_AT_ONCE:
            self._serve_next(uid, caller)
        elif len(caller.waiting) > WAITING_AT_MOST:
            self._turn_away(caller)
        if self._open > OPEN_AT_MOST:
            greediest = max(self._callers.values(), key=lambda each: len(each.waiting))
            if greediest.waiting:
                self._turn_away(greediest)

    def _turn_away(self, caller: _Caller) -> None:
        """Tell the last that waits that it was not heard."""
        peer = caller.waiting.pop()
        self._open -= 1
        with contextlib.suppress(OSError):
            peer.send(_BUSY)
        peer.close()

    def _turn_away_waiting(self) -> None:
        for caller in self._callers.values():
            while caller.waiting:
                self._turn_away(caller)

    # ---- who is served ----

    def _serve_next(self, uid: int, caller: _Caller) -> None:
        """Serve the one that has waited longest and is still there."""
        peer = caller.waiting.popleft()
        while _has_hung_up(peer):
            peer.close()
            self._open -= 1
            if not caller.waiting:
                self._forget(uid, caller)
                return
            peer = caller.waiting.popleft()
        caller.served += 1
        task = asyncio.get_running_loop().create_task(self._serve(uid, caller, peer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, uid: int, caller: _Caller, peer: sockets.socket) -> None:
        try:
            await self._hear(uid, peer)
        except (OSError, SiteUnavailable, TimeoutError):
            pass  # the caller hung up, fell silent, reads nothing, or sent what is no call
        finally:
            caller.served -= 1
            self._open -= 1
            if caller.waiting:
                self._serve_next(uid, caller)
            else:
                self._forget(uid, caller)

    def _forget(self, uid: int, caller: _Caller) -> None:
        if not caller.served and not caller.waiting:
            self._callers.pop(uid, None)

    async def _hear(self, uid: int, peer: sockets.socket) -> None:
        """Answer a connection's calls until the caller hangs up; then it is closed in any case.

        Raises:
            OSError: the connection broke.
            SiteUnavailable: what came is no call.
            TimeoutError: the caller asked nothing, or took no answer, for ``IDLE_S``.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(sock=peer)
        except BaseException:
            peer.close()
            raise
        try:  # the socket is the transport's now: closed under it, it would stay in the loop
            await self._converse(user_of(uid), reader, writer)
            writer.close()
            async with asyncio.timeout(IDLE_S):
                await writer.wait_closed()  # once the caller has taken the last answer
        finally:
            writer.transport.abort()

    async def _converse(
        self, user: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        frames = FrameReader(reader, MAX_CALL_BYTES)
        while True:
            async with asyncio.timeout(IDLE_S):
                body = await frames.next()
            if body is None:
                return
            try:
                call = call_decoder.decode(body)
            except UNREADABLE as error:
                reply: Reply = ErrorReply(message=f"the request cannot be read: {error}")
            else:
                reply = await self._answer(user, call)
            try:
                writer.write(frame(reply))
            except InvalidRequest as error:  # such as larger than a frame may be
                writer.write(frame(ErrorReply(message=f"the answer cannot be sent: {error}")))
            if writer.transport.get_write_buffer_size():  # the kernel has not taken all of it
                async with asyncio.timeout(IDLE_S):
                    await writer.drain()


class _Door:
    """A socket that is listened at."""

    def __init__(self, door: sockets.socket, turn_away_waiting: Callable[[], None]) -> None:
        self._door = door
        self._turn_away_waiting = turn_away_waiting

    def close(self) -> None:
        """Take no more; whoever is served already is answered."""
        if self._door.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._door.fileno())
            self._door.close()
            self._turn_away_waiting()


def _has_hung_up(peer: sockets.socket) -> bool:
    """Whether a caller has gone without a word; to find that out by reading costs far more."""
    try:
        return peer.recv(1, sockets.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def peer_uid(peer: sockets.socket) -> int:
    """The uid of the process at the other end of a unix socket."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, size))
    return int(uid)


def user_of(uid: int) -> str:
    """The name of a user; "#UID" when there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"
