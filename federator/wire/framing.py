"""Reads and writes, for daemon and agent, the frames that all messages travel in.

Frames are ``4-byte big-endian length + MessagePack`` of one tagged struct. On every channel the
accepting side first writes ``BANNER``, so that whatever a login shell printed before is skipped.
``client_protocol.frame`` makes them; users' commands, which go without asyncio, read theirs in
``federator.cli.client``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from federator.errors import SiteUnavailable
from federator.wire.client_protocol import BANNER, MAX_FRAME_BYTES

_CHUNK: Final = 64 * 1024
_HEAD_BYTES: Final = 4
_BROKE_OFF: Final = "the channel broke off inside a message"


class ByteReader(Protocol):
    """The common part of asyncio's and asyncssh's readers."""

    async def read(self, n: int, /) -> bytes:
        """At least one byte and at most ``n``; nothing at the end of the stream."""
        ...

    async def readexactly(self, n: int, /) -> bytes: ...

    async def readline(self) -> bytes: ...


class FrameReader:
    """Reads the frames of one stream, as many as have come at once.

    Bytes behind a frame are kept here for the next, so nobody else may read the stream any more.

    Args:
        reader: where they come from.
        limit: bytes; a longer frame is not read.
    """

    def __init__(self, reader: ByteReader, limit: int = MAX_FRAME_BYTES) -> None:
        self._reader = reader
        self._limit = limit
        self._came = bytearray()  # and was not returned yet

    async def next(self, patience_s: float | None = None) -> bytes | None:
        """Return the body of the next frame, or None at the end of the stream.

        Args:
            patience_s: how long nothing at all may come; a large frame on a slow line takes longer.

        Raises:
            SiteUnavailable: the stream broke off inside a frame, or a length is beyond all reason.
            TimeoutError: nothing came for ``patience_s``.
        """
        while (body := self._take()) is None:
            async with asyncio.timeout(patience_s):
                more = await self._reader.read(_CHUNK)
            if not more and self._came:
                raise SiteUnavailable(_BROKE_OFF)
            if not more:
                return None
            self._came += more
        return body

    def _take(self) -> bytes | None:
        """The body of the first frame, if all of it has come."""
        came = self._came
        if len(came) < _HEAD_BYTES:
            return None
        end = _HEAD_BYTES + _length(came[:_HEAD_BYTES], self._limit)
        if len(came) < end:
            return None
        body = bytes(came[_HEAD_BYTES:end])
        del came[:end]
        return body


class FrameWriter:
    """Writes frames to one stream; those of one turn of the event loop go together.

    Each write of its own costs this process a system call, or an SSH packet, and has the other side
    woken.

    Args:
        write: writes frames, in order, at once.
    """

    def __init__(self, write: Callable[[Sequence[bytes]], None]) -> None:
        self._write = write
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def put(self, data: bytes) -> None:
        """Write a frame soon, behind those that wait; at once where these are many."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write what waits, now."""
        if self._waiting:
            self._write(self._take_all())

    def drop(self) -> None:
        """Do not write what waits."""
        self._take_all()

    def _take_all(self) -> list[bytes]:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return waiting


async def read_frame(reader: ByteReader, limit: int = MAX_FRAME_BYTES) -> bytes | None:
    """Return the body of the next frame, or None at the end of the stream; read nothing behind it.

    Args:
        reader: where it comes from.
        limit: bytes; a longer frame is not read.

    Raises:
        SiteUnavailable: the stream broke off inside a frame, or a length is beyond all reason.
    """
    head = b""
    try:
        head = await reader.readexactly(_HEAD_BYTES)
        length = _length(head, limit)
        parts = []
        while length:
            part = await reader.readexactly(min(length, _CHUNK))
            parts.append(part)
            length -= len(part)
        return b"".join(parts)
    except asyncio.IncompleteReadError as error:
        if not head and not error.partial:
            return None
        raise SiteUnavailable(_BROKE_OFF) from error


def _length(head: bytes | bytearray, limit: int) -> int:
    length = int.from_bytes(head, "big")
    if length > limit:
        raise SiteUnavailable(f"a frame of {length} bytes, more than {limit}")
    return length


async def skip_to_banner(reader: ByteReader) -> None:
    """Skip what a login shell prints before the agent speaks.

    Raises:
        SiteUnavailable: the stream ended, or went on too long, without the banner.
    """
    for _ in range(100):
        line = await reader.readline()
        if line.endswith(BANNER):  # a prompt may stand before it
            return
        if not line:
            break
    raise SiteUnavailable("no agent answered: the other side is not a Federator agent")
