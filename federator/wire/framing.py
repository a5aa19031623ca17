"""Reads, for daemon and agent, the frames that all messages travel in.

Frames are ``4-byte big-endian length + MessagePack`` of one tagged struct. On every channel the
accepting side first writes ``BANNER``, so that whatever a login shell printed before is skipped.
``client_protocol.frame`` makes them; users' commands, which go without asyncio, read theirs in
``federator.cli.client``.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from federator.errors import SiteUnavailable
from federator.wire.client_protocol import BANNER, MAX_FRAME_BYTES

_CHUNK: Final = 64 * 1024


class ByteReader(Protocol):
    """The common part of asyncio's and asyncssh's readers."""

    async def readexactly(self, n: int, /) -> bytes: ...

    async def readline(self) -> bytes: ...


async def read_frame(
    reader: ByteReader, limit: int = MAX_FRAME_BYTES, patience_s: float | None = None
) -> bytes | None:
    """Return the body of the next frame, or None at the end of the stream.

    Args:
        reader: where it comes from.
        limit: bytes; a longer frame is not read.
        patience_s: how long nothing at all may come; a large frame on a slow line takes longer.

    Raises:
        SiteUnavailable: the stream broke off inside a frame, or a length is beyond all reason.
    """
    head = b""
    try:
        head = await asyncio.wait_for(reader.readexactly(4), patience_s)
        length = int.from_bytes(head, "big")
        if length > limit:
            raise SiteUnavailable(f"a frame of {length} bytes, more than {limit}")
        parts = []
        while length:
            part = await asyncio.wait_for(reader.readexactly(min(length, _CHUNK)), patience_s)
            parts.append(part)
            length -= len(part)
        return b"".join(parts)
    except asyncio.IncompleteReadError as error:
        if not head and not error.partial:
            return None
        raise SiteUnavailable("the channel broke off inside a message") from error


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
