"""Takes the channels that sites open themselves: ``sites.NAME.connect: outbound``.

sshd on the daemon's host starts ``federator site attach NAME``, the forced command of that site's
key, and that connects to a socket beside the daemon's own. One line names the site, one line
answers; from then on the socket is the site's channel. Of each login node the newest channel
counts: the one before is closed, for a login node that dials again has lost it. One that dials
while another is attached stands by: its channel stays open, and is the site's as soon as the
other's has ended. While the other is silent it is told to start its agent, so that this is there
when the silence counts as a loss.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket as sockets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from federator.errors import ConfigError, SiteUnavailable
from federator.model.workload import SiteName
from federator.wire.attaching import ATTACHED, LOGIN_NODE, STANDING_BY
from federator.wire.client_socket import peer_uid
from federator.wire.framing import ByteReader
from federator.wire.opened_ahead import OpenedAhead
from federator.wire.transport import Channel

MOST_STANDBYS: Final = 4  # of a site
NAME_S: Final = 10.0  # within which a connection says whose it is
DIALS_WITHIN_S: Final = 30.0  # then it counts as away, and is waited for again
_LONGEST_LINE: Final = 2**20  # of a channel's reader, as that of a local agent

log = structlog.get_logger()


class _DialledChannel:
    """A channel that a site has opened, from one of its login nodes; "": it does not say which."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login_node: str
    ) -> None:
        self.login_node = login_node
        self.reader: ByteReader = reader
        self._reader = reader
        self._writer = writer

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        self._writer.writelines(parts)

    async def drain(self) -> None:
        await self._writer.drain()

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        """Close it at once; whoever reads it finds its end."""
        self._writer.transport.abort()

    def end(self) -> None:
        """Close it when what was written has left."""
        self._writer.close()

    def has_ended(self) -> bool:
        """Whether nothing more comes from the site."""
        gone = self._reader.at_eof() or self._reader.exception() is not None
        return gone or self._writer.is_closing()

    def last_words(self) -> str:
        """What its agent wrote to its standard error stays at the site."""
        return ""


class _Expected:
    """A site that dials: the channel that counts, and those of login nodes that stand by."""

    def __init__(self) -> None:
        self._came = asyncio.Event()
        self._waiting: _DialledChannel | None = None
        self._served: _DialledChannel | None = None
        self._standbys: list[_DialledChannel] = []  # the one that waits longest first
        self._ahead: _DialledChannel | None = None  # it stood by, and has an agent by now

    def channels(self) -> list[_DialledChannel]:
        """Those that were not closed here."""
        attached = (self._waiting, self._served, self._ahead)
        return [each for each in attached if each is not None] + self._standbys

    def has_standby(self) -> bool:
        """Whether another login node stands by."""
        ahead = [] if self._ahead is None else [self._ahead]
        return any(not each.has_ended() for each in ahead + self._standbys)

    def take(self, channel: _DialledChannel) -> str:
        """Serve this one next, or once the present one has ended; what becomes of it, in a word."""
        self._forget_standbys(channel.login_node)
        present = [e for e in (self._waiting, self._served) if e is not None and not e.has_ended()]
        if any(_differ(each.login_node, channel.login_node) for each in present):
            if len(self._standbys) == MOST_STANDBYS:
                self._standbys.pop(0).cut()
            self._standbys.append(channel)
            channel.write(STANDING_BY)
            return "stands by"
        self._attach(channel)
        return "replaces" if present else "attached"

    def prepare(self) -> bool:
        """Have the one that stands by start its agent, which serves when the present one is lost.

        It acts no more than before: only a daemon's first word lets an agent begin.
        """
        self._forget_standbys("")
        if self._ahead is not None or not self._standbys:
            return False
        self._ahead = self._standbys.pop(0)
        self._ahead.write(ATTACHED)
        return True

    def forget(self) -> None:
        """Cut what was prepared, if anything; its login node dials again, and stands by."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cut()

    def _attach(self, channel: _DialledChannel) -> None:
        for each in (self._waiting, self._served):
            if each is not None:
                each.cut()
        self._waiting, self._served = channel, None
        if channel is self._ahead:
            self._ahead = None  # it was told before
        else:
            channel.write(ATTACHED)
        self._came.set()

    def _forget_standbys(self, login_node: str) -> None:
        """Those that have ended, and that of this login node, which has dialled again."""
        ahead = self._ahead
        if ahead is not None and (ahead.has_ended() or ahead.login_node == login_node):
            self.forget()
        for each in list(self._standbys):
            if each.has_ended() or each.login_node == login_node:
                each.cut()
                self._standbys.remove(each)

    def cut(self) -> None:
        """Close what there is at once."""
        for each in self.channels():
            each.cut()
        self._waiting = self._served = self._ahead = None
        self._standbys.clear()

    async def next(self) -> _DialledChannel:
        """The channel that counts, once there is one that is open; it is served from now on.

        Whoever asks has lost the one before.
        """
        while (channel := self._waiting) is None or channel.has_ended():
            if channel is not None:
                channel.cut()
            self._waiting = None
            self._forget_standbys("")
            if self._ahead is not None:
                self._attach(self._ahead)
                continue
            if self._standbys:
                self._attach(self._standbys.pop(0))
                continue
            self._came.clear()
            await self._came.wait()
        self._waiting, self._served = None, channel
        return channel


def _differ(one: str, other: str) -> bool:
    """Whether two are known to be different login nodes."""
    return bool(one and other) and one != other


class SiteDoor:
    """The socket at which sites are attached, for one term; it opens for the first that is to dial.

    Args:
        path: where it is.
        expects: whether a site is to open its channel itself, as it is configured now.
    """

    def __init__(self, path: Path, expects: Callable[[SiteName], bool]) -> None:
        self._path = path
        self._expects = expects
        self._sites: dict[SiteName, _Expected] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen, in place of whoever did before, if that has not begun.

        Raises:
            ConfigError: the path cannot be listened at.
        """
        if self._server is not None:
            return
        path, door = self._path, sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            door.bind(str(path))
            path.chmod(0o600)  # before it listens, so that nobody comes in meanwhile
            # Without start_serving no other link has its turn before the server is noted here.
            self._server = await asyncio.start_unix_server(
                self.admit, sock=door, limit=_LONGEST_LINE, start_serving=False
            )
        except OSError as error:
            door.close()
            raise ConfigError(f"cannot listen at {path}: {error.strerror or error}") from error
        await self._server.start_serving()

    def close(self) -> None:
        """Let nobody in any more, and close all channels once what was sent has left."""
        if self._server is not None:
            self._server.close()
        for site in self._sites.values():
            for channel in site.channels():
                channel.end()

    def way_to(self, name: SiteName) -> DialledTransport:
        """The way to a site that dials."""
        return DialledTransport(name, self, self._sites.setdefault(name, _Expected()))

    def has_standby(self, name: SiteName) -> bool:
        """Whether another login node of a site stands by."""
        return name in self._sites and self._sites[name].has_standby()

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Attach the site that a connection names, or say there why not, and hang up."""
        attached = False
        try:
            attached = await self._attach(reader, writer)
        except (OSError, ValueError, TimeoutError):
            pass  # it hung up, fell silent, or sent no line
        finally:
            if not attached:
                writer.close()

    def _is_ours(self, writer: asyncio.StreamWriter) -> bool:
        """Whether the daemon's own account or root has connected.

        Raises:
            OSError: the kernel does not say who has.
        """
        return peer_uid(writer.get_extra_info("socket")) in (0, os.geteuid())

    async def _attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take the site's channel, or say why not; True if it was taken.

        Raises:
            OSError, ValueError, TimeoutError: it names no site.
        """
        if not self._is_ours(writer):
            return _refuse(writer, "", "only the daemon's own account and root may attach a site")
        async with asyncio.timeout(NAME_S):
            line = await reader.readline()
        said, _, from_ = line.decode(errors="replace").strip()[:256].partition(" ")
        name, login_node = SiteName(said), from_ if LOGIN_NODE.fullmatch(from_) else ""
        if not self._expects(name):
            if (site := self._sites.get(name)) is not None:  # it was, before a reload
                site.cut()
            return _refuse(writer, name, f"sites.{name}.connect is not outbound here")
        site = self._sites.setdefault(name, _Expected())
        became = site.take(_DialledChannel(reader, writer, login_node))
        log.info("site_dialled", site=name, host=login_node, became=became)
        return True


def _refuse(writer: asyncio.StreamWriter, name: str, why: str) -> bool:
    log.warning("site_not_attached", site=name, detail=why)
    writer.write(f"{why}\n".encode())
    return False


class DialledTransport(OpenedAhead):
    """Waits for a site to open its channel."""

    def __init__(self, name: SiteName, door: SiteDoor, site: _Expected) -> None:
        super().__init__()
        self._name = name
        self._door = door
        self._site = site

    async def open(self) -> Channel:
        """The newest channel that the site has opened.

        Raises:
            ConfigError: nobody can be let in.
            SiteUnavailable: it has opened none for a while.
        """
        await self._door.open()
        try:
            async with asyncio.timeout(DIALS_WITHIN_S):
                return await self._site.next()
        except TimeoutError as error:
            raise SiteUnavailable(f"{self._name} has not dialled; see its dialler's log") from error

    def prepare(self) -> bool:
        """Have another login node, if one stands by, start the agent that ``open`` will reach."""
        return self._site.prepare()

    def forget(self) -> None:
        """Close what was prepared, if anything."""
        self._site.forget()

    async def probe(self) -> None:
        """Nothing can be tried from here."""
