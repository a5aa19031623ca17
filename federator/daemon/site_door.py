"""Takes the channels that sites open themselves: ``sites.NAME.connect: outbound``.

sshd on the daemon's host starts ``federator site attach NAME``, the forced command of that site's
key, and that connects to a socket beside the daemon's own. One line names the site, one line
answers; from then on the socket is the site's channel. Of each site the newest channel counts: the
one before is closed, for a site that dials again has lost it.
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
from federator.wire.attaching import ATTACHED
from federator.wire.client_socket import peer_uid
from federator.wire.framing import ByteReader
from federator.wire.transport import Channel

NAME_S: Final = 10.0  # within which a connection says whose it is
DIALS_WITHIN_S: Final = 30.0  # then it counts as away, and is waited for again
_LONGEST_LINE: Final = 2**20  # of a channel's reader, as that of a local agent

log = structlog.get_logger()


class _DialledChannel:
    """A channel that a site has opened."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
    """A site that dials: the channel that it has opened last."""

    def __init__(self) -> None:
        self._came = asyncio.Event()
        self._waiting: _DialledChannel | None = None
        self._served: _DialledChannel | None = None

    def channels(self) -> list[_DialledChannel]:
        """Those that were not closed here."""
        return [each for each in (self._waiting, self._served) if each is not None]

    def take(self, channel: _DialledChannel) -> bool:
        """Serve this one next; True if it takes another's place."""
        replaced = not all(each.has_ended() for each in self.channels())
        self.cut()
        self._waiting = channel
        self._came.set()
        return replaced

    def cut(self) -> None:
        """Close what there is at once."""
        for each in self.channels():
            each.cut()
        self._waiting = self._served = None

    async def next(self) -> _DialledChannel:
        """The newest channel that is still open, once there is one; it is served from now on."""
        while (channel := self._waiting) is None or channel.has_ended():
            if channel is not None:
                channel.cut()
            self._waiting = None
            self._came.clear()
            await self._came.wait()
        self._waiting, self._served = None, channel
        return channel


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
                self._admit, sock=door, limit=_LONGEST_LINE, start_serving=False
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

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attached = False
        try:
            attached = await self._attach(reader, writer)
        except (OSError, ValueError, TimeoutError):
            pass  # it hung up, fell silent, or sent no line
        finally:
            if not attached:
                writer.close()

    async def _attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take the site's channel, or say why not; True if it was taken.

        Raises:
            OSError, ValueError, TimeoutError: it names no site.
        """
        if peer_uid(writer.get_extra_info("socket")) not in (0, os.geteuid()):
            return _refuse(writer, "", "only the daemon's own account and root may attach a site")
        async with asyncio.timeout(NAME_S):
            line = await reader.readline()
        name = SiteName(line.decode(errors="replace").strip()[:256])
        if not self._expects(name):
            if (site := self._sites.get(name)) is not None:  # it was, before a reload
                site.cut()
            return _refuse(writer, name, f"sites.{name}.connect is not outbound here")
        writer.write(ATTACHED)
        site = self._sites.setdefault(name, _Expected())
        replaces = site.take(_DialledChannel(reader, writer))
        log.info("site_dialled", site=name, replaces=replaces)
        return True


def _refuse(writer: asyncio.StreamWriter, name: str, why: str) -> bool:
    log.warning("site_not_attached", site=name, detail=why)
    writer.write(f"{why}\n".encode())
    return False


class DialledTransport:
    """Waits for a site to open its channel."""

    def __init__(self, name: SiteName, door: SiteDoor, site: _Expected) -> None:
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

    async def probe(self) -> None:
        """Nothing can be tried from here."""
