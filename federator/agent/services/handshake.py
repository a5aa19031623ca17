"""The handshake of agent and daemon: the agent speaks first, then learns what it serves."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from federator.agent.journal import OtherLog, Served, check_epoch, check_term, last_served
from federator.agent.tenure import AgentTenure, has_seen
from federator.errors import SiteUnavailable, StaleState
from federator.wire.agent_protocol import PROTOCOL_VERSION, Hello, Welcome, to_agent_decoder
from federator.wire.client_protocol import BANNER, frame
from federator.wire.framing import ByteReader, read_frame

TAKEOVER_S: Final = 60.0  # one of an earlier release, which does not know of tenures
ENDS_WITHIN_S: Final = 15.0  # an agent here that was asked to; one that was stopped never does
ELSEWHERE_S: Final = 0.5  # on another login node: it cannot be asked, and may have died with that
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
    """Check that a daemon means this site, and speaks this agent's protocol.

    Raises:
        StaleState: it does not.
    """
    if welcome.protocol != PROTOCOL_VERSION:
        raise StaleState(
            f"the daemon speaks protocol {welcome.protocol}, this agent {PROTOCOL_VERSION}; "
            "install the same release"
        )
    if welcome.site != site:
        raise StaleState(
            f"the daemon takes this for site {welcome.site!r}, and agent.yaml says {site!r}"
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


def refuse_other_folder(
    folder: Path, site: str, host: str, welcome: Welcome, write: Callable[[bytes], None]
) -> None:
    """Tell a daemon that was served elsewhere if that was not in this folder; nothing is written.

    A copy of the folder has its name, too, but not what was written since.

    Args:
        host: this one, by its name.

    Raises:
        StaleState: this folder is not the one that the site's other login node has.
    """
    if welcome.served_host in ("", host):
        return
    if has_seen(folder, welcome.epoch, welcome.served_channel):
        return
    write(
        frame(
            Hello(
                protocol=PROTOCOL_VERSION,
                site=site,
                slurm_version="",
                host=host,
                other_folder=True,
            )
        )
    )
    raise StaleState(
        f"{folder} is not the folder that the agent at {welcome.served_host} has: it must be one, "
        "on storage that the login nodes share"
    )


async def take_over(folder: Path, epoch: int) -> int:
    """Let the running agent of this site end; return the lock's file descriptor, to be kept open.

    On this host it is asked to (SIGTERM), and what it has begun has 3 s to be finished. One that
    does not end is left behind: once this agent's tenure has begun, that one acts no more.

    Args:
        folder: the agents' state folder.
        epoch: of the daemon; an agent of a newer one is left alone, also if it came meanwhile.

    Raises:
        StaleState: a newer daemon has been here.
        SiteUnavailable: it is of a release that knows no tenures, and did not end in time.
    """
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        for attempt in range(int(TAKEOVER_S / 0.1)):
            if _locked(lock):
                os.ftruncate(lock, 0)
                os.pwrite(lock, f"{os.getpid()} {this_host()}".encode(), 0)
                return lock
            check_epoch(folder, epoch)
            if attempt * 0.1 >= _patience_s(lock):
                return lock
            if attempt % 10 == 0:
                _ask_to_end(lock)
            await asyncio.sleep(0.1)
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    raise SiteUnavailable(f"an older agent still holds {folder / 'lock'} after {TAKEOVER_S:.0f} s")


def tenure_here(folder: Path, welcome: Welcome) -> AgentTenure:
    """The tenure of the agent that this process is; it has yet to begin."""
    process = f"{os.getpid()}:{time.time_ns()}"
    host = host_name()
    return AgentTenure(folder, welcome.epoch, welcome.channel, host=host, process=process)


def host_name() -> str:
    """The name of this login node."""
    return socket.gethostname()[:64]


def this_host() -> str:
    """This host, since it was booted: a process of before is gone, whatever its lock says."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        boot = ""
    return f"{host_name()}/{boot}"


def patience_s(host: str) -> float:
    """How long an agent on that host may take to end; "": it is not known which."""
    return ENDS_WITHIN_S if host in ("", this_host()) else ELSEWHERE_S


def _patience_s(lock: int) -> float:
    pid, host = _holder(lock)
    return TAKEOVER_S if pid and not host else patience_s(host)


def _holder(lock: int) -> tuple[int, str]:
    """Pid and host of the process that has the lock; 0 and "": it has not said so yet."""
    pid, _, host = os.pread(lock, 128, 0).decode(errors="replace").partition(" ")
    return (int(pid) if pid.isdigit() else 0), host


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ask_to_end(lock: int) -> None:
    """The file holds the pid of the process that has the lock, so it cannot be a recycled one."""
    pid, host = _holder(lock)
    if pid and host in ("", this_host()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
