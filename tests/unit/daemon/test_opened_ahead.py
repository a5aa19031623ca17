"""Channels that are opened while the log is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from federator.daemon import opened_ahead
from federator.daemon.opened_ahead import OpenedAhead
from federator.errors import SiteUnavailable
from federator.wire.framing import ByteReader
from federator.wire.transport import Channel


class _Channel:
    def __init__(self) -> None:
        self.reader: ByteReader = asyncio.StreamReader()
        self.is_closed = False

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    async def close(self) -> None:
        self.is_closed = True

    def last_words(self) -> str:
        return ""


class _Transport:
    def __init__(self, fault: Exception | None = None) -> None:
        self.opened: list[_Channel] = []
        self.fault = fault

    async def open(self) -> Channel:
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        self.opened.append(_Channel())
        return self.opened[-1]

    async def probe(self) -> None: ...


async def _settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def run(story: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(story())


def test_the_first_channel_was_opened_before_it_was_asked_for_and_the_next_when_it_is() -> None:
    async def story() -> None:
        transport = _Transport()
        ahead = OpenedAhead(transport)
        await _settled()
        (first,) = transport.opened
        assert await ahead.open() is first
        assert await ahead.open() is transport.opened[1]
        await ahead.close()
        assert not first.is_closed

    run(story)


def test_one_that_nobody_took_is_closed() -> None:
    async def story() -> None:
        transport = _Transport()
        ahead, at_once = OpenedAhead(transport), OpenedAhead(transport)
        await at_once.close()  # before it was opened
        await _settled()
        await ahead.close()
        await ahead.close()
        assert [channel.is_closed for channel in transport.opened] == [True]

    run(story)


def test_one_that_waited_so_long_that_its_agent_has_ended_is_opened_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        transport = _Transport()
        ahead = OpenedAhead(transport)
        await _settled()
        monkeypatch.setattr(opened_ahead, "FRESH_S", -1.0)
        assert await ahead.open() is transport.opened[1]
        assert transport.opened[0].is_closed

    run(story)


def test_a_site_that_cannot_be_reached_is_said_to_be_so_when_it_is_asked_for() -> None:
    async def story() -> None:
        transport = _Transport(SiteUnavailable("no route"))
        ahead, unused = OpenedAhead(transport), OpenedAhead(transport)
        await _settled()
        with pytest.raises(SiteUnavailable, match="no route"):
            await ahead.open()
        await unused.close()

    run(story)
