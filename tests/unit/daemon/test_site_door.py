"""Sites that open their channel themselves: who is let in, and which channel counts."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from federator.daemon import links, site_door
from federator.daemon.links import SiteLink
from federator.daemon.site_door import SiteDoor
from federator.errors import ConfigError, SiteUnavailable
from federator.model.message import Observation, SiteUp
from federator.model.workload import SiteName
from federator.wire.agent_protocol import PROTOCOL_VERSION, ClientCall, Hello, Welcome
from federator.wire.attaching import ATTACHED, STANDING_BY, door_beside
from federator.wire.client_protocol import BANNER, frame
from federator.wire.opened_ahead import SUSPECT_S, SUSPECTS_EVERY_S
from federator.wire.replies import Reply

ALPINE = SiteName("alpine")
Story = Callable[[SiteDoor, Path], Awaitable[None]]


def live(folder: Path, story: Story) -> None:
    path = door_beside(folder / "daemon.sock")

    async def play() -> None:
        door = SiteDoor(path, lambda name: name == ALPINE)
        await door.open()
        try:
            await asyncio.wait_for(story(door, path), 10.0)
        finally:
            door.close()
            Caller.hang_up()
            for _ in range(10):  # turns of the loop, in which both ends see that
                await asyncio.sleep(0)

    asyncio.run(play())


class Nobody:
    """Is asked nothing."""

    def take(self, call: ClientCall, origin: SiteName, answer: Callable[[Reply], None]) -> None:
        raise AssertionError(call, origin, answer)


class Caller:
    """What ``federator site attach`` does."""

    all: ClassVar[list[Caller]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.all.append(self)

    @classmethod
    async def dial(cls, path: Path, name: str = "alpine") -> Caller:
        caller = cls(*await asyncio.open_unix_connection(path))
        caller.writer.write(f"{name}\n".encode())
        return caller

    def introduce(self, hello: Hello) -> None:
        """What an agent says first."""
        self.writer.write(BANNER + frame(hello))

    @classmethod
    def hang_up(cls) -> None:
        for caller in cls.all:
            caller.writer.transport.abort()
        cls.all.clear()

    async def attached(self) -> Caller:
        assert await self.reader.readline() == ATTACHED
        return self


@given(said=st.binary(max_size=400))
@settings(max_examples=40, deadline=None)
def test_whatever_is_said_at_the_door_lets_in_nobody_else_and_shuts_nobody_out(said: bytes) -> None:
    async def story(door: SiteDoor, path: Path) -> None:
        stranger = Caller(*await asyncio.open_unix_connection(path))
        stranger.writer.write(said)
        stranger.writer.write_eof()
        first = await stranger.reader.readline()
        named = said.partition(b"\n")[0].decode(errors="replace").strip().partition(" ")[0]
        assert (first == ATTACHED) == (named == ALPINE)
        opening = asyncio.create_task(door.way_to(ALPINE).open())
        await (await Caller.dial(path)).attached()
        await opening

    with tempfile.TemporaryDirectory() as folder:
        live(Path(folder), story)


def test_a_site_that_dials_is_reached_by_what_it_has_opened(tmp_path: Path) -> None:
    async def story(door: SiteDoor, path: Path) -> None:
        opening = asyncio.create_task(door.way_to(ALPINE).open())
        caller = await (await Caller.dial(path)).attached()
        channel = await opening
        caller.writer.write(b"from the site\n")
        assert await channel.reader.readline() == b"from the site\n"
        channel.writelines([b"from ", b"the daemon\n"])
        assert await caller.reader.readline() == b"from the daemon\n"
        await channel.close()
        assert await caller.reader.read() == b""

    live(tmp_path, story)


def test_of_two_channels_of_a_site_the_newer_counts_and_the_older_ends(tmp_path: Path) -> None:
    async def story(door: SiteDoor, path: Path) -> None:
        first = await (await Caller.dial(path)).attached()
        served = await door.way_to(ALPINE).open()
        second = await (await Caller.dial(path)).attached()
        assert await served.reader.read(1) == b""
        assert await first.reader.read() == b""
        third = await (await Caller.dial(path)).attached()  # before anybody serves the second
        assert await second.reader.read() == b""
        channel = await door.way_to(ALPINE).open()
        channel.write(b"you\n")
        assert await third.reader.readline() == b"you\n"

    live(tmp_path, story)


def test_another_login_node_stands_by_until_the_present_one_is_lost(tmp_path: Path) -> None:
    async def story(door: SiteDoor, path: Path) -> None:
        first = await (await Caller.dial(path, "alpine login1")).attached()
        served = await door.way_to(ALPINE).open()
        assert not door.has_standby(ALPINE)
        second = await Caller.dial(path, "alpine login2")
        assert await second.reader.readline() == STANDING_BY
        assert door.has_standby(ALPINE)
        first.writer.write(b"still here\n")
        assert await served.reader.readline() == b"still here\n"
        await served.close()  # it fell silent
        channel = await door.way_to(ALPINE).open()
        await second.attached()
        channel.write(b"you\n")
        assert await second.reader.readline() == b"you\n"
        back = await Caller.dial(path, "alpine login1")
        assert await back.reader.readline() == STANDING_BY

    live(tmp_path, story)


def test_while_the_present_login_node_is_silent_the_other_starts_its_agent_ahead(
    tmp_path: Path,
) -> None:
    async def story(door: SiteDoor, path: Path) -> None:
        way = door.way_to(ALPINE)
        await (await Caller.dial(path, "alpine login1")).attached()
        served = await way.open()
        way.silent(SUSPECT_S, 0.0)  # nobody stands by
        second = await Caller.dial(path, "alpine login2")
        assert await second.reader.readline() == STANDING_BY
        way.silent(SUSPECT_S - 0.1, 1.0)
        way.silent(SUSPECT_S, 2.0)
        way.silent(SUSPECT_S + 1.0, 2.0 + SUSPECTS_EVERY_S)  # once
        await second.attached()
        assert door.has_standby(ALPINE)  # so patience stays short
        second.writer.write(BANNER)  # its agent is there, and waits for a daemon's word
        await served.close()  # the first is lost
        channel = await way.open()
        assert await channel.reader.readexactly(len(BANNER)) == BANNER
        channel.write(b"you\n")
        assert await second.reader.readline() == b"you\n"  # and it was told once
        assert not door.has_standby(ALPINE)

    live(tmp_path, story)


def test_an_agent_that_was_started_ahead_in_vain_ends_and_its_login_node_stands_by_again(
    tmp_path: Path,
) -> None:
    async def story(door: SiteDoor, path: Path) -> None:
        way = door.way_to(ALPINE)
        first = await (await Caller.dial(path, "alpine login1")).attached()
        served = await way.open()
        second = await Caller.dial(path, "alpine login2")
        assert await second.reader.readline() == STANDING_BY
        way.silent(SUSPECT_S, 0.0)
        await second.attached()
        first.writer.write(b"still here\n")
        assert await served.reader.readline() == b"still here\n"
        way.silent(0.0, 1.0)
        assert await second.reader.read() == b""
        assert not door.has_standby(ALPINE)
        again = await Caller.dial(path, "alpine login2")
        assert await again.reader.readline() == STANDING_BY
        way.silent(SUSPECT_S, 2.0)  # so soon it is not started again
        first.writer.transport.abort()
        await way.open()
        await again.attached()

    live(tmp_path, story)


@pytest.mark.parametrize("host", ["login2", "login1"])
def test_a_login_node_that_dials_while_an_agent_was_started_ahead_is_not_shut_out(
    host: str, tmp_path: Path
) -> None:
    """The one whose agent it is has lost it; the one that is served has found its way back."""

    async def story(door: SiteDoor, path: Path) -> None:
        way = door.way_to(ALPINE)
        first = await (await Caller.dial(path, "alpine login1")).attached()
        await way.open()
        second = await Caller.dial(path, "alpine login2")
        assert await second.reader.readline() == STANDING_BY
        way.silent(SUSPECT_S, 0.0)
        await second.attached()
        again = await Caller.dial(path, f"alpine {host}")
        if host == "login2":
            assert await again.reader.readline() == STANDING_BY
            assert await second.reader.read() == b""
            await first.writer.drain()
            return
        await again.attached()
        channel = await way.open()
        channel.write(b"you\n")
        assert await again.reader.readline() == b"you\n"
        way.silent(0.0, 1.0)
        assert await second.reader.read() == b""

    live(tmp_path, story)


HELLO = Hello(
    protocol=PROTOCOL_VERSION,
    site=ALPINE,
    slurm_version="24.11.5",
    answers=("tenure",),
    host="login1",
    folder_id="a",
)


def test_a_login_node_that_dials_and_shares_no_folder_is_refused_though_it_is_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "RETRY_S", (0.0,))
    ups: asyncio.Queue[str] = asyncio.Queue()

    def observe(seen: Observation) -> None:
        if isinstance(seen, SiteUp):
            ups.put_nowait(seen.login_node)

    async def story(door: SiteDoor, path: Path) -> None:
        welcome = Welcome(
            protocol=PROTOCOL_VERSION, epoch=1, site=ALPINE, partitions=(), poll_interval_s=1.0
        )
        link = SiteLink(ALPINE, door.way_to(ALPINE), welcome, observe, Nobody())
        link.dials, link.has_standby = True, lambda: door.has_standby(ALPINE)
        running = asyncio.create_task(link.run())
        first = await (await Caller.dial(path, "alpine login1")).attached()
        first.introduce(HELLO)
        assert await ups.get() == "login1"
        second = await Caller.dial(path, "alpine login2")
        assert await second.reader.readline() == STANDING_BY
        first.writer.transport.abort()  # nobody stands by any more when the second is served
        second.introduce(msgspec.structs.replace(HELLO, host="login2", folder_id="b"))
        await second.attached()
        await second.reader.read()  # to its end: it was refused
        again = await (await Caller.dial(path, "alpine login2")).attached()
        again.introduce(msgspec.structs.replace(HELLO, host="login2"))
        assert await ups.get() == "login2"
        running.cancel()
        await link.hang_up()

    with capture_logs() as logs:
        live(tmp_path, story)
    downs = [str(each["detail"]) for each in logs if each["event"] == "site_down"]
    assert ["state_dir at login2 is not the folder" in each for each in downs] == [False, True]
    assert ups.empty()


def test_a_login_node_that_dials_again_has_lost_its_channel_be_it_attached_or_standing_by(
    tmp_path: Path,
) -> None:
    async def story(door: SiteDoor, path: Path) -> None:
        first = await (await Caller.dial(path, "alpine login1")).attached()
        served = await door.way_to(ALPINE).open()
        second = await Caller.dial(path, "alpine login2")
        assert await second.reader.readline() == STANDING_BY
        again = await Caller.dial(path, "alpine login2")
        assert await again.reader.readline() == STANDING_BY
        assert await second.reader.read() == b""
        await (await Caller.dial(path, "alpine login1")).attached()
        assert await served.reader.read(1) == b""
        assert await first.reader.read() == b""

    live(tmp_path, story)


def test_of_many_that_stand_by_the_first_ones_are_let_go(tmp_path: Path) -> None:
    async def story(door: SiteDoor, path: Path) -> None:
        await (await Caller.dial(path, "alpine login0")).attached()
        await door.way_to(ALPINE).open()
        others = []
        for k in range(1, site_door.MOST_STANDBYS + 2):
            others.append(await Caller.dial(path, f"alpine login{k}"))
            assert await others[-1].reader.readline() == STANDING_BY
        assert await others[0].reader.read() == b""

    live(tmp_path, story)


def test_a_channel_that_ended_before_it_was_served_is_not_served(tmp_path: Path) -> None:
    async def story(door: SiteDoor, path: Path) -> None:
        gone = await (await Caller.dial(path)).attached()
        gone.writer.close()
        await gone.writer.wait_closed()
        opening = asyncio.create_task(door.way_to(ALPINE).open())
        there = await (await Caller.dial(path)).attached()
        channel = await opening
        channel.write(b"you\n")
        assert await there.reader.readline() == b"you\n"

    live(tmp_path, story)


def test_a_site_that_is_not_to_dial_is_told_so(tmp_path: Path) -> None:
    async def story(_door: SiteDoor, path: Path) -> None:
        caller = await Caller.dial(path, "cedar")
        assert await caller.reader.read() == b"sites.cedar.connect is not outbound here\n"

    live(tmp_path, story)


def test_another_user_cannot_attach_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_door, "peer_uid", lambda _socket: 4711)

    async def story(_door: SiteDoor, path: Path) -> None:
        assert path.stat().st_mode & 0o777 == 0o600
        caller = await Caller.dial(path)
        assert b"only the daemon's own account and root" in await caller.reader.readline()

    live(tmp_path, story)


@pytest.mark.parametrize("said", [b"\xff\xfe\n", b"x" * 3_000_000, b"", b"\n"])
def test_what_names_no_site_is_let_go(tmp_path: Path, said: bytes) -> None:
    async def story(_door: SiteDoor, path: Path) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(said)
            writer.write_eof()
            assert ATTACHED not in await reader.read()
        except ConnectionError:
            pass  # it was cut
        finally:
            writer.transport.abort()

    live(tmp_path, story)


def test_a_site_that_does_not_dial_counts_as_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_door, "DIALS_WITHIN_S", 0.01)

    async def story(door: SiteDoor, _path: Path) -> None:
        with pytest.raises(SiteUnavailable, match="alpine has not dialled"):
            await door.way_to(ALPINE).open()

    live(tmp_path, story)


def test_sites_that_dial_share_one_door_that_opens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_door, "DIALS_WITHIN_S", 0.01)
    opened: list[Path] = []
    chmod = Path.chmod

    def counted(path: Path, mode: int) -> None:
        opened.append(path)
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", counted)

    async def play() -> None:
        door = SiteDoor(tmp_path / "door", lambda _name: True)
        ways = [door.way_to(SiteName(name)).open() for name in ("alpine", "cedar")]
        outcomes = await asyncio.gather(*ways, return_exceptions=True)
        assert {type(each) for each in outcomes} == {SiteUnavailable}
        door.close()

    asyncio.run(play())
    assert opened == [tmp_path / "door"]


def test_a_channel_of_a_site_that_is_not_to_dial_any_more_is_closed(tmp_path: Path) -> None:
    dials = {ALPINE}

    async def play() -> None:
        door = SiteDoor(tmp_path / "door", dials.__contains__)
        await door.open()
        first = await (await Caller.dial(tmp_path / "door")).attached()
        dials.clear()
        again = await Caller.dial(tmp_path / "door")
        assert await again.reader.readline() == b"sites.alpine.connect is not outbound here\n"
        assert await first.reader.read() == b""
        door.close()
        Caller.hang_up()

    asyncio.run(asyncio.wait_for(play(), 10.0))


def test_a_place_that_cannot_be_listened_at_is_an_error_of_the_link(tmp_path: Path) -> None:
    async def story() -> None:
        door = SiteDoor(tmp_path / "absent" / "door", lambda _name: True)
        with pytest.raises(ConfigError, match="cannot listen at"):
            await door.way_to(ALPINE).open()
        door.close()

    asyncio.run(story())
