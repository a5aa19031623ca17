"""Channels that are opened while the log is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from federator.daemon import opened_ahead
from federator.daemon.opened_ahead import OpenedAhead
from federator.errors import SiteUnavailable
from federator.wire.framing import ByteReader
from federator.wire.transport import Channel, SshTransport


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


def test_who_stops_waiting_for_it_leaves_it_to_be_closed() -> None:
    async def story() -> None:
        transport = _Transport()
        ahead = OpenedAhead(transport)
        waiting = asyncio.create_task(ahead.open())
        await asyncio.sleep(0)
        waiting.cancel()
        await _settled()
        await ahead.close()
        assert [channel.is_closed for channel in transport.opened] == [True]

    run(story)


def test_a_login_whose_session_nobody_waits_for_any_more_is_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else the connection would stay until the site's sshd or the daemon ends."""

    class Login:
        is_cut = False

        async def create_process(self, **_: object) -> None:
            await asyncio.Event().wait()

        def abort(self) -> None:
            self.is_cut = True

    login = Login()

    async def connect(_: SshTransport) -> Login:
        return login

    async def story() -> None:
        ahead = OpenedAhead(
            SshTransport(host="h", port=22, user="u", key=tmp_path, known_hosts=tmp_path)
        )
        await _settled()
        await ahead.close()

    monkeypatch.setattr(SshTransport, "connect", connect)
    run(story)
    assert login.is_cut
