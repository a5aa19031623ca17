"""Asks the daemon at its unix socket: one call, one answer, without waiting for anybody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from federator.errors import SiteUnavailable
from federator.model.unreadable import UNREADABLE
from federator.wire.client_protocol import BANNER, Call, ErrorKind, ErrorReply, frame
from federator.wire.framing import FrameReader
from federator.wire.replies import Reply, reply_decoder

PATIENCE_S: Final = 20.0


async def ask(path: Path, call: Call, patience_s: float = PATIENCE_S) -> Reply:
    """The daemon's answer; a refusal is one, too.

    Raises:
        SiteUnavailable: there is none within ``patience_s``, or it cannot be read.
    """
    try:
        async with asyncio.timeout(patience_s):
            body = await _exchanged(path, frame(call))
    except TimeoutError as error:
        raise SiteUnavailable(f"the daemon did not answer within {patience_s:.0f} s") from error
    except (OSError, asyncio.IncompleteReadError) as error:
        said = error.strerror if isinstance(error, OSError) else "it hung up"
        raise SiteUnavailable(f"the daemon cannot be reached ({path}): {said or error}") from error
    try:
        reply = reply_decoder.decode(body)
    except UNREADABLE as error:
        raise SiteUnavailable(f"the daemon's answer cannot be read: {error}") from error
    if isinstance(reply, ErrorReply) and reply.kind is ErrorKind.BUSY:
        raise SiteUnavailable("the daemon is busy with other commands")
    return reply


async def _exchanged(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        if await reader.readexactly(len(BANNER)) != BANNER:
            raise SiteUnavailable(f"{path} is no socket of the federation")
        writer.write(data)
        await writer.drain()
        body = await FrameReader(reader).next()
    finally:
        writer.close()
    if body is None:
        raise SiteUnavailable("the daemon hung up before it answered")
    return body
