"""Exchanges the first messages with a site's agent and decides whether this daemon serves it."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Final

import msgspec

from federator.errors import SiteUnavailable
from federator.model.site_mode import SiteMode
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    FromAgent,
    Hello,
    Welcome,
    from_agent_decoder,
)
from federator.wire.client_protocol import frame
from federator.wire.framing import FrameReader, skip_to_banner
from federator.wire.transport import Channel

_RELEASE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~-]{0,31}", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,63})")
HANDSHAKE_S: Final = 75.0  # an older agent may have to finish its launches first


async def shake_hands(
    channel: Channel, welcome: Welcome, silence_s: float, handshake_s: float = HANDSHAKE_S
) -> tuple[FrameReader, Hello]:
    """Say which daemon this is, and hear which agent that is.

    Args:
        channel: to the agent, just opened.
        welcome: this daemon's first word.
        silence_s: the longest time until it says anything at all.
        handshake_s: the longest time until it says who it is.

    Raises:
        SiteUnavailable: it is no agent of this site, or not to be served by this daemon.
        TimeoutError: it does not answer.
    """
    await asyncio.wait_for(skip_to_banner(channel.reader), silence_s)
    channel.write(frame(welcome))
    frames = FrameReader(channel.reader)
    hello = await next_message(frames, handshake_s)
    if not isinstance(hello, Hello) or hello.site != welcome.site:
        raise SiteUnavailable(f"expected the agent of {welcome.site}, got {hello}")
    check_hello(hello, welcome)
    return frames, hello


async def next_message(frames: FrameReader, patience_s: float) -> FromAgent | None:
    """The agent's next word; None: it has ended."""
    body = await frames.next(patience_s)
    return None if body is None else from_agent_decoder.decode(body)


def check_hello(hello: Hello, welcome: Welcome) -> None:
    """Raises: SiteUnavailable: the agent, or its folder, is not one for this daemon."""
    if hello.protocol != PROTOCOL_VERSION:
        raise SiteUnavailable(
            f"agent speaks protocol {hello.protocol}, the daemon {PROTOCOL_VERSION}; "
            "install the same release"
        )
    if hello.other_folder:
        raise SiteUnavailable(_not_shared(hello, "is a copy of the folder that"))
    if welcome.names and "names" not in hello.answers:
        raise SiteUnavailable(
            "agent is of an earlier release, which does not know sites.NAME.names; install the "
            "same release"
        )
    if welcome.names.users and "users" not in hello.answers:
        raise SiteUnavailable(
            "agent is of an earlier release, which does not know sites.NAME.names.users; install "
            "the same release"
        )
    if welcome.mode is SiteMode.SHADOW and "shadow" not in hello.answers:
        raise SiteUnavailable(
            "agent is of an earlier release, which does not know sites.NAME.mode; install the "
            "same release"
        )
    if hello.other_log:
        raise SiteUnavailable(
            f"the site serves {_other_log(hello)}, and the log of this daemon began "
            f"{_date(welcome.log_began)}: nothing was changed there. If that log is lost, build it "
            "anew with federator recover; to take the site from it, start this daemon once with "
            "--displace"
        )
    if hello.last_epoch > welcome.epoch:
        raise SiteUnavailable(
            f"the site has served epoch {hello.last_epoch}, this daemon is of epoch "
            f"{welcome.epoch}: another daemon leads, or this one's log is an older copy or its "
            "clock is behind"
        )


class ServedFolder:
    """The state folder by which a site was last served in this term, from whichever login node."""

    def __init__(self) -> None:
        self._folder_id = ""  # "": none was met
        self._host = ""
        self._channel = 0

    def named_in(self, welcome: Welcome) -> Welcome:
        """A first word by which an agent elsewhere finds out whether its folder is that one."""
        return msgspec.structs.replace(
            welcome, served_channel=self._channel, served_host=self._host
        )

    def is_elsewhere(self, hello: Hello) -> bool:
        """Whether the site was served from another login node."""
        return self._host not in ("", hello.host)

    def check_shares(self, hello: Hello) -> None:
        """Check that a site's agents share one state folder, on whichever login node they run.

        Raises:
            SiteUnavailable: they do not; two of them could submit a job twice.
        """
        if "tenure" not in hello.answers:
            raise SiteUnavailable(
                "agent is of an earlier release, which does not know of several login nodes; "
                "install the same release"
            )
        if self._folder_id and hello.folder_id != self._folder_id:
            raise SiteUnavailable(_not_shared(hello, "is not the folder that"))

    def served(self, hello: Hello, channel: int) -> None:
        """Remember the folder of an agent that is served now; an earlier release names none."""
        if "tenure" in hello.answers:
            self._folder_id, self._host, self._channel = hello.folder_id, hello.host, channel


def _not_shared(hello: Hello, what: str) -> str:
    return (
        f"state_dir at {checked_host(hello.host)} {what} the site's other login node has: it must "
        "be one folder, on storage that they share"
    )


def checked_host(host: str) -> str:
    """The name of a login node; what could be none becomes ""."""
    return host if _HOST.fullmatch(host) else ""


def checked_release(release: str) -> str:
    """The release that an agent says it is of; what could be none becomes ""."""
    return release if _RELEASE.fullmatch(release) else ""


def _other_log(hello: Hello) -> str:
    whose = f" of federation {hello.federation}" if hello.federation else ""
    since = f", begun {_date(hello.log_began)}" if hello.log_began else ""
    return f"another event log{whose}{since}, last {_date(hello.last_epoch)}"


def _date(epoch: int) -> str:
    """The date at which a daemon of the epoch began to lead; its number grows with Unix time."""
    return datetime.fromtimestamp(epoch, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def last_of_ours(hello: Hello, welcome: Welcome) -> int:
    """The site's newest epoch; that of another federation or log says nothing about our log."""
    is_ours = hello.federation in ("", welcome.federation)
    is_ours = is_ours and hello.log_began in (0, welcome.log_began)
    return hello.last_epoch if is_ours else 0
