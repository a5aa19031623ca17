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
from federator.wire.framing import ByteReader, read_frame, skip_to_banner
from tests.fakes.build import attempt, plan_on, submission, workload

_T = TypeVar("_T")

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


@pytest.mark.parametrize("message", [Ping(), ORDER, ASK], ids=lambda m: type(m).__name__)
def test_a_message_is_read_as_it_was_written(message: ToAgent) -> None:
    body = read(frame(message), read_frame)
    assert body is not None
    assert to_agent_decoder.decode(body) == message


def test_messages_come_one_by_one_and_then_the_end() -> None:
    async def all_of(reader: ByteReader) -> list[bytes | None]:
        return [await read_frame(reader) for _ in range(3)]

    first, second, end = read(frame(Ping()) + frame(ORDER), all_of)
    assert first is not None
    assert second is not None
    assert isinstance(to_agent_decoder.decode(first), Ping)
    assert isinstance(to_agent_decoder.decode(second), LaunchOrder)
    assert end is None


@pytest.mark.parametrize("cut", [1, 3, 5, len(frame(ORDER)) - 1])
def test_a_channel_that_breaks_off_inside_a_message_is_an_error(cut: int) -> None:
    with pytest.raises(SiteUnavailable, match="broke off"):
        read(frame(ORDER)[:cut], read_frame)


def test_a_channel_that_breaks_off_right_after_a_length_is_an_error() -> None:
    with pytest.raises(SiteUnavailable, match="broke off"):
        read(frame(ORDER)[:4], read_frame)


def test_a_length_beyond_all_reason_is_refused_before_it_is_read() -> None:
    with pytest.raises(SiteUnavailable, match="more than"):
        read((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), read_frame)


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
