"""How do an agent and its daemon begin? The agent speaks first, and is then told what it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from federator.agent.journal import OtherLog, Served, check_term, last_served
from federator.errors import SiteUnavailable, StaleState
from federator.wire.agent_protocol import PROTOCOL_VERSION, Hello, Welcome, to_agent_decoder
from federator.wire.client_protocol import BANNER, frame
from federator.wire.framing import ByteReader, read_frame

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


def term_of(welcome: Welcome) -> Served:
    """What the site will remember of a daemon."""
    return Served(welcome.epoch, welcome.federation, welcome.log_began)


def refuse_strangers(
    folder: Path, site: str, welcome: Welcome, write: Callable[[bytes], None]
) -> None:
    """Tell a daemon that is not served what the site has served, before an agent is disturbed.

    Raises:
        StaleState: its epoch is over, or its log is another one.
    """
    try:
        check_term(folder, term_of(welcome), displaces=welcome.displaces)
    except StaleState as error:
        served = last_served(folder)
        write(
            frame(
                Hello(
                    protocol=PROTOCOL_VERSION,
                    site=site,
                    slurm_version="",
                    last_epoch=served.epoch,
                    federation=served.federation,
                    log_began=served.log_began,
                    other_log=isinstance(error, OtherLog),
                )
            )
        )
        raise
