"""The handshake of agent and daemon: the agent speaks first, then learns what it serves."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from federator.agent.journal import OtherLog, Served, check_epoch, check_term, last_served
from federator.errors import SiteUnavailable, StaleState
from federator.wire.agent_protocol import PROTOCOL_VERSION, Hello, Welcome, to_agent_decoder
from federator.wire.client_protocol import BANNER, frame
from federator.wire.framing import ByteReader, read_frame

TAKEOVER_S: Final = 60.0  # an agent ends within seconds; one of an earlier build took up to 45
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
    """The term of a daemon, as the site will remember it."""
    return Served(welcome.epoch, welcome.federation, welcome.log_began)


def check_greeted(welcome: Welcome, site: str) -> None:
    """Whether a daemon means this site, in words that this agent speaks.

    Raises:
        StaleState: it does not.
    """
    if welcome.protocol != PROTOCOL_VERSION or welcome.site != site:
        raise StaleState(
            f"the daemon speaks protocol {welcome.protocol} to site {welcome.site!r}; "
            f"this is protocol {PROTOCOL_VERSION} at site {site!r}"
        )


def refuse_foreign_daemon(
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


async def take_over(folder: Path, epoch: int) -> int:
    """Become the one agent of this site; return the lock's file descriptor, to be kept open.

    A running agent is asked to end (SIGTERM); what it has begun has 3 s to be finished first.

    Args:
        folder: the agent's state folder.
        epoch: of the daemon; an agent of a newer one is left alone, also if it came meanwhile.

    Raises:
        StaleState: a newer daemon has been here.
        SiteUnavailable: it did not end in time.
    """
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        for attempt in range(int(TAKEOVER_S / 0.1)):
            if _locked(lock):
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(os.getpid()).encode(), 0)
                return lock
            check_epoch(folder, epoch)
            if attempt % 10 == 0:
                _ask_to_end(lock)
            await asyncio.sleep(0.1)
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    raise SiteUnavailable(f"an older agent still holds {folder / 'lock'} after {TAKEOVER_S:.0f} s")


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ask_to_end(lock: int) -> None:
    """The file holds the pid of the process that has the lock, so it cannot be a recycled one."""
    text = os.pread(lock, 32, 0)
    if text.isdigit():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(int(text), signal.SIGTERM)
