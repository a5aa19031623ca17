"""The socket that everyone at a site may connect to: who they are, and how much they may send."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from federator.errors import ConfigError
from federator.sites.calls import (
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
from federator.sites.protocol import read_frame
from federator.sites.replies import Reply, reply_decoder
from federator.sites.researchers import (
    MAX_CONNECTIONS,
    ResearcherSocket,
    user_of,
)

ME = user_of(os.geteuid())


class Desk:
    """Answers at once, or never, and remembers who asked what."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Call]] = []
        self.answers = True

    async def answer(self, user: str, call: Call) -> Reply:
        self.taken.append((user, call))
        if not self.answers:
            await asyncio.Event().wait()
        return SitesReply(sites=())


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


def with_socket(tmp_path: Path, script: Callable[[Path, Desk], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        desk = Desk()
        server = await ResearcherSocket(desk.answer).listen(tmp_path / "s")
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


def test_a_call_beyond_the_limit_is_not_even_read(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        async with connected(path) as caller:
            assert await caller.ask((MAX_CALL_BYTES + 1).to_bytes(4, "big")) is None
        assert desk.taken == []

    with_socket(tmp_path, script)


def test_one_user_cannot_take_all_connections(tmp_path: Path) -> None:
    async def script(path: Path, desk: Desk) -> None:
        desk.answers = False
        kept = [await asyncio.open_unix_connection(path) for _ in range(MAX_CONNECTIONS)]
        for reader, _ in kept:
            assert await reader.readline() == BANNER
        async with connected(path) as caller:
            refused = await caller.ask(frame(QueueCall()))
            assert isinstance(refused, ErrorReply)
            assert "waiting already" in refused.message
            assert refused.kind is ErrorKind.UNAVAILABLE  # it says nothing of an earlier try
        for _, writer in kept:
            writer.close()

    with_socket(tmp_path, script)


def test_a_path_that_cannot_be_listened_at_is_the_admins_to_mend(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot listen at"):
        asyncio.run(ResearcherSocket(Desk().answer).listen(tmp_path / ("x" * 200) / "s"))
