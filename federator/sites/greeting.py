"""How do an agent and its daemon begin? The agent speaks first, and is then told what it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from federator.errors import SiteUnavailable, StaleState
from federator.sites.calls import BANNER, frame
from federator.sites.journal import check_epoch, newest_epoch
from federator.sites.protocol import (
    PROTOCOL_VERSION,
    ByteReader,
    Hello,
    Welcome,
    read_frame,
    to_agent_decoder,
)

SILENCE_S: Final = 15.0  # without a word of the daemon the agent ends


async def await_welcome(reader: ByteReader, write: Callable[[bytes], None]) -> Welcome:
    """Speak first, and read what the daemon says of itself.

    Raises:
        SiteUnavailable: it said nothing, or something else.
    """
    write(BANNER)
    try:
        body = await asyncio.wait_for(read_frame(reader), SILENCE_S)
    except TimeoutError as error:
        raise SiteUnavailable("the daemon did not introduce itself") from error
    welcome = to_agent_decoder.decode(body) if body is not None else None
    if not isinstance(welcome, Welcome):
        raise SiteUnavailable("the daemon did not introduce itself")
    return welcome


def refuse_old(folder: Path, site: str, welcome: Welcome, write: Callable[[bytes], None]) -> None:
    """Tell a daemon of an older epoch which one the site has served, before an agent is disturbed.

    Raises:
        StaleState: its epoch is over.
    """
    try:
        check_epoch(folder, welcome.epoch)
    except StaleState:
        newest, federation = newest_epoch(folder)
        write(frame(Hello(protocol=PROTOCOL_VERSION, site=site, slurm_version="",
                          last_epoch=newest, federation=federation)))  # fmt: skip
        raise
