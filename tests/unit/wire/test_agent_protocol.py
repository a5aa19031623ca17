"""Frames on a channel: what is written is read, what is not ours is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from federator.errors import SiteUnavailable
from federator.model.plan import BidRequest
from federator.model.site_message import Ask
from federator.wire.agent_protocol import LaunchOrder, Ping, ToAgent, to_agent_decoder
from federator.wire.client_protocol import BANNER, MAX_FRAME_BYTES, frame
from federator.wire.framing import ByteReader, FrameReader, read_frame, skip_to_banner
from tests.fakes.build import attempt, plan_on, submission, workload

_T = TypeVar("_T")
ReadOne = Callable[[ByteReader], Awaitable[bytes | None]]


async def first_of_channel(reader: ByteReader) -> bytes | None:
    return await FrameReader(reader).next()


READ = pytest.mark.parametrize("read_one", [read_frame, first_of_channel])
"""Both ways to read a frame: alone, and as the first of a channel."""

ORDER = LaunchOrder(
    attempt=attempt(),
    user="ada",
    tenant="vision",
    name="train",
    submission=submission(),
    jobs=plan_on("a1", "a2"),
    array_index=3,
)
ASK = Ask(
    pass_id=7,
    requests=(BidRequest.of(workload(), 3),),
)


def read(data: bytes, act: Callable[[ByteReader], Awaitable[_T]]) -> _T:
    async def reading() -> _T:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await act(reader)

    return asyncio.run(reading())


@READ
@pytest.mark.parametrize("message", [Ping(), ORDER, ASK], ids=lambda m: type(m).__name__)
def test_a_message_is_read_as_it_was_written(read_one: ReadOne, message: ToAgent) -> None:
    body = read(frame(message), read_one)
    assert body is not None
    assert to_agent_decoder.decode(body) == message


def test_messages_come_one_by_one_and_then_the_end() -> None:
    async def one_by_one(reader: ByteReader) -> list[bytes | None]:
        return [await read_frame(reader) for _ in range(3)]

    async def of_channel(reader: ByteReader) -> list[bytes | None]:
        frames = FrameReader(reader)
        return [await frames.next() for _ in range(3)]

    for all_of in (one_by_one, of_channel):
        first, second, end = read(frame(Ping()) + frame(ORDER), all_of)
        assert first is not None
        assert second is not None
        assert isinstance(to_agent_decoder.decode(first), Ping)
        assert isinstance(to_agent_decoder.decode(second), LaunchOrder)
        assert end is None


@pytest.mark.parametrize("size", [1, 3, 4, 5, 64, 100_000])
def test_messages_are_the_same_however_the_channel_cuts_them(size: int) -> None:
    class InPieces(asyncio.StreamReader):
        async def read(self, n: int = -1) -> bytes:
            return await super().read(min(n, size))

    async def all_of() -> list[ToAgent]:
        reader = InPieces()
        reader.feed_data(b"".join(map(frame, sent)))
        reader.feed_eof()
        frames, found = FrameReader(reader), []
        while (body := await frames.next()) is not None:
            found.append(to_agent_decoder.decode(body))
        return found

    sent: list[ToAgent] = [Ping(), ORDER, Ping(), ASK, ORDER]
    assert asyncio.run(all_of()) == sent


def test_a_silent_channel_is_given_up_after_its_patience_inside_a_message_too() -> None:
    async def half_an_order() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(frame(ORDER)[:9])
        await FrameReader(reader).next(0.0)

    with pytest.raises(TimeoutError):
        asyncio.run(half_an_order())


@READ
@pytest.mark.parametrize("cut", [1, 3, 5, len(frame(ORDER)) - 1])
def test_a_channel_that_breaks_off_inside_a_message_is_an_error(
    read_one: ReadOne, cut: int
) -> None:
    with pytest.raises(SiteUnavailable, match="broke off"):
        read(frame(ORDER)[:cut], read_one)


@READ
def test_a_channel_that_breaks_off_right_after_a_length_is_an_error(read_one: ReadOne) -> None:
    with pytest.raises(SiteUnavailable, match="broke off"):
        read(frame(ORDER)[:4], read_one)


@READ
def test_a_length_beyond_all_reason_is_refused_before_it_is_read(read_one: ReadOne) -> None:
    with pytest.raises(SiteUnavailable, match="more than"):
        read((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), read_one)


def test_what_a_login_shell_says_first_is_skipped() -> None:
    async def after_banner(reader: ByteReader) -> bytes | None:
        await skip_to_banner(reader)
        return await read_frame(reader)

    noise = b"Welcome to alpine!\r\nLast login: today\n"
    assert read(noise + BANNER + frame(Ping()), after_banner) is not None


@pytest.mark.parametrize("data", [b"", b"bash: federator: command not found\n", b"x\n" * 200])
def test_a_peer_that_is_no_agent_is_refused(data: bytes) -> None:
    with pytest.raises(SiteUnavailable, match="not a Federator agent"):
        read(data, skip_to_banner)


def test_a_field_of_a_later_release_is_ignored() -> None:
    import msgspec  # noqa: PLC0415  # only this test speaks raw MessagePack

    body = msgspec.msgpack.encode({"type": "ping", "invented_later": 1})
    assert to_agent_decoder.decode(body) == Ping()
