"""The socket that everyone at a site may connect to: who they are, and how much they may send."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from federator.errors import ConfigError
from federator.wire import client_socket
from federator.wire.client_protocol import (
    BANNER,
    MAX_CALL_BYTES,
    Call,
    ErrorKind,
    ErrorReply,
    QueueCall,
    SitesCall,
    SitesReply,
    frame,
)
from federator.wire.client_socket import (
    OPEN_AT_MOST,
    SERVED_AT_ONCE,
    WAITING_AT_MOST,
    ClientSocket,
    user_of,
)
from federator.wire.framing import read_frame
from federator.wire.replies import Reply, reply_decoder
from federator.wire.status_rows import LicenseRow

ME = user_of(os.geteuid())


class Desk:
    """Answers at once, or never, and remembers who asked what."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Call]] = []
        self.answers = True
        self.reply: Reply = SitesReply(sites=())
        self.release = asyncio.Event()
        self.close: Callable[[], None] = lambda: None

    async def answer(self, user: str, call: Call) -> Reply:
        self.taken.append((user, call))
        if not self.answers:
            await self.release.wait()
        return self.reply


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, data: bytes) -> Reply | None:
        self.writer.write(data)
        body = await read_frame(self.reader)
        return None if body is None else reply_decoder.decode(body)


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        assert await reader.readline() == BANNER
        yield Caller(reader, writer)
    finally:
        writer.close()


def with_socket(
    tmp_path: Path,
    script: Callable[[Path, Desk], Coroutine[Any, Any, None]],
    uid_of: Callable[[socket.socket], int] | None = None,
) -> None:
    async def run() -> None:
        desk = Desk()
        server = await ClientSocket(desk.answer, uid_of).listen(tmp_path / "s")
        desk.close = server.close
        try:
            await script(tmp_path / "s", desk)
        finally:
            server.close()

    asyncio.run(run())


def test_the_kernel_tells_who_asks(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        async with connected(path) as caller:
            assert isinstance(await caller.ask(frame(SitesCall())), SitesReply)
        assert desk.taken == [(ME, SitesCall())]

    with_socket(tmp_path, script)


def test_what_is_no_call_gets_an_error_and_the_next_call_an_answer(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        async with connected(path) as caller:
            assert isinstance(await caller.ask(b"\x00\x00\x00\x01\xc1"), ErrorReply)
            assert isinstance(await caller.ask(frame(SitesCall())), SitesReply)

    with_socket(tmp_path, script)


def test_an_answer_that_cannot_be_sent_is_refused_in_words(tmp_path: Path) -> None:
    async def ask(path: Path, desk: Desk) -> None:
        desk.reply = SitesReply(sites=(), licenses=(LicenseRow(name="a", total=2**70, used=0),))
        async with connected(path) as caller:
            reply = await caller.ask(frame(SitesCall()))
        assert isinstance(reply, ErrorReply)
        said = "the answer cannot be sent: a message holds a number of more than 64 bits"
        assert reply.message == said

    with_socket(tmp_path, ask)


def test_a_call_beyond_the_limit_is_not_even_read(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        async with connected(path) as caller:
            assert await caller.ask((MAX_CALL_BYTES + 1).to_bytes(4, "big")) is None
        assert desk.taken == []

    with_socket(tmp_path, script)


def test_a_user_is_served_in_order_and_so_many_at_once(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        desk.answers = False
        callers = [await asyncio.open_unix_connection(path) for _ in range(SERVED_AT_ONCE + 4)]
        for k, (_, writer) in enumerate(callers):
            writer.write(frame(QueueCall(ids=(str(k),))))
        while len(desk.taken) < SERVED_AT_ONCE:
            await asyncio.sleep(0)
        for _, writer in callers[:4]:
            writer.close()
        desk.answers = True
        desk.release.set()
        for reader, _ in callers[4:]:
            assert await reader.readline() == BANNER
            assert await read_frame(reader) is not None
        served = [call.ids[0] for _, call in desk.taken if isinstance(call, QueueCall)]
        assert served[:SERVED_AT_ONCE] == [str(k) for k in range(SERVED_AT_ONCE)]
        assert sorted(map(int, served)) == list(range(SERVED_AT_ONCE + 4))
        for _, writer in callers[4:]:
            writer.close()

    with_socket(tmp_path, script)


def test_two_hundred_commands_of_a_user_at_once_are_all_answered(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        async def command(k: int) -> Reply | None:
            async with connected(path) as caller:
                return await caller.ask(frame(QueueCall(ids=(str(k),))))

        replies = await asyncio.gather(*map(command, range(200)))
        assert replies == [SitesReply(sites=())] * 200
        assert len(desk.taken) == 200

    with_socket(tmp_path, script)


def test_who_has_too_many_commands_waiting_is_told_to_ask_again(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        desk.answers = False
        most = SERVED_AT_ONCE + WAITING_AT_MOST
        kept = [await asyncio.open_unix_connection(path) for _ in range(most)]
        async with connected(path) as caller:
            busy = await read_frame(caller.reader)
            assert busy is not None
            refused = reply_decoder.decode(busy)
            assert isinstance(refused, ErrorReply)
            assert refused.kind is ErrorKind.BUSY
            assert await caller.reader.read() == b""
        for _, writer in kept:
            writer.close()

    with_socket(tmp_path, script)


def test_one_users_connections_keep_no_other_waiting(tmp_path: Path) -> None:
    """The first 400 are of one user, who says nothing on them; then another one asks."""
    uids = iter([1000] * 400 + [1001] * 3)

    async def script(path: Path, desk: Desk) -> None:
        kept = [await asyncio.open_unix_connection(path) for _ in range(400)]
        for _ in range(3):
            async with connected(path) as caller:
                assert isinstance(await caller.ask(frame(SitesCall())), SitesReply)
        assert [user for user, _ in desk.taken] == [user_of(1001)] * 3
        for _, writer in kept:
            writer.close()

    with_socket(tmp_path, script, lambda _: next(uids))


def test_when_too_many_are_open_in_all_whoever_has_most_waiting_gives_way(tmp_path: Path) -> None:
    each = SERVED_AT_ONCE + 60
    greedy = OPEN_AT_MOST - 7 * each
    uids = iter([1] * greedy + [uid for uid in range(2, 9) for _ in range(each)] + [9])

    async def script(path: Path, desk: Desk) -> None:
        kept = [await asyncio.open_unix_connection(path) for _ in range(OPEN_AT_MOST)]
        async with connected(path) as caller:
            assert isinstance(await caller.ask(frame(SitesCall())), SitesReply)
        reader, _ = kept[greedy + each - 1]  # those with 60 waiting have the most
        assert await reader.readline() == BANNER
        busy = await read_frame(reader)
        assert busy is not None
        refused = reply_decoder.decode(busy)
        assert isinstance(refused, ErrorReply)
        assert refused.kind is ErrorKind.BUSY
        for _, writer in kept:
            writer.close()

    with_socket(tmp_path, script, lambda _: next(uids))


def test_who_hangs_up_while_waiting_is_passed_over(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        kept = [await asyncio.open_unix_connection(path) for _ in range(SERVED_AT_ONCE)]
        gone = [await asyncio.open_unix_connection(path) for _ in range(50)]
        for _, writer in gone:
            writer.close()
            await writer.wait_closed()
        async with connected(path) as caller:
            for _, writer in kept[:1]:
                writer.close()
            assert isinstance(await caller.ask(frame(SitesCall())), SitesReply)
        for _, writer in kept[1:]:
            writer.close()

    with_socket(tmp_path, script)


def test_who_waits_when_the_socket_closes_was_not_heard(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        desk.answers = False
        kept = [await asyncio.open_unix_connection(path) for _ in range(SERVED_AT_ONCE)]
        async with connected(path) as caller:
            desk.close()
            busy = await read_frame(caller.reader)
            assert busy is not None
            assert isinstance(reply_decoder.decode(busy), ErrorReply)
        for _, writer in kept:
            writer.close()

    with_socket(tmp_path, script)


LARGE = ErrorReply(message="x" * 120_000)  # two of them are more than a socket and its buffer take


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not done():
            await asyncio.sleep(0)


def call_and_read_nothing(path: Path, calls: int) -> socket.socket:
    """Connect, send so many calls, and take no answer."""
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    caller.connect(str(path))
    caller.sendall(frame(SitesCall()) * calls)
    return caller


def file_descriptors() -> set[int]:
    """Those that the running loop watches."""
    return set(asyncio.get_running_loop()._selector.get_map())  # type: ignore[attr-defined]


@pytest.mark.parametrize("calls", [1, 2, 8])
def test_who_never_reads_gives_the_place_back_and_leaves_nothing_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Whoever gets one of its file descriptors next must be heard, and started programs, too."""
    monkeypatch.setattr(client_socket, "IDLE_S", 0.05)

    async def script(path: Path, desk: Desk) -> None:
        before = file_descriptors()
        desk.reply = LARGE
        silent = [call_and_read_nothing(path, calls) for _ in range(SERVED_AT_ONCE + 10)]
        await until(lambda: len(desk.taken) >= len(silent) and file_descriptors() == before)
        desk.reply = SitesReply(sites=())
        for _ in range(5):
            async with connected(path) as caller:
                assert isinstance(await caller.ask(frame(SitesCall())), SitesReply)
            async with asyncio.timeout(10):
                echo = await asyncio.create_subprocess_exec(
                    "echo", "x", stdout=asyncio.subprocess.PIPE
                )
                said, _ = await echo.communicate()
                assert said == b"x\n"
        for caller_socket in silent:
            caller_socket.close()

    with_socket(tmp_path, script)


def test_who_has_nothing_more_to_ask_gets_the_whole_answer(tmp_path: Path) -> None:
    """A command may close its half of the connection as soon as it has asked."""

    def with_small_buffer(peer: socket.socket) -> int:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return os.geteuid()

    async def script(path: Path, desk: Desk) -> None:
        before = file_descriptors()
        desk.reply = ErrorReply(message="x" * 50_000)  # most of it waits in the service
        caller = call_and_read_nothing(path, 1)
        caller.shutdown(socket.SHUT_WR)
        await until(lambda: len(desk.taken) == 1)
        received = await asyncio.to_thread(lambda: b"".join(iter(lambda: caller.recv(65536), b"")))
        assert received == BANNER + frame(desk.reply)
        await until(lambda: file_descriptors() == before)
        caller.close()

    with_socket(tmp_path, script, with_small_buffer)


def test_a_path_that_cannot_be_listened_at_is_the_admins_to_mend(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot listen at"):
        asyncio.run(ClientSocket(Desk().answer).listen(tmp_path / ("x" * 200) / "s"))
