"""The daemon's edges to the world; tests put others in their place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from federator.audit.service import Audit
from federator.config import SiteConfig, SshConfig
from federator.daemon.leader import Work
from federator.daemon.site_door import SiteDoor
from federator.daemon.starts_file import NOWHERE, StartsFile
from federator.errors import SiteUnavailable
from federator.history.service import JobHistory
from federator.model.workload import SiteName
from federator.traces.exporter import SpanSink
from federator.wire.agent_protocol import ClientCall
from federator.wire.login_nodes import LoginNodes
from federator.wire.replies import Reply
from federator.wire.transport import Channel, ProcessTransport, SshTransport, Transport


class ElsewhereTransport:
    """The way to a site that dials, for whoever is not the daemon that it dials."""

    async def open(self) -> Channel:
        """Say that there is none."""
        raise SiteUnavailable("the site dials the daemon (connect: outbound); it cannot be reached")

    async def probe(self) -> None:
        """Say that there is none."""
        await self.open()


def transport_of(site: SiteConfig) -> Transport:
    """The way to a site's agent that its configuration names.

    Who dials is no business of this process: see ``daemon.site_door``.
    """
    if site.dials:
        return ElsewhereTransport()
    if site.ssh is None:
        return ProcessTransport(argv=site.command)
    ways = ssh_ways(site.ssh)
    return LoginNodes(ways) if len(ways) > 1 else ways[0]


def ssh_ways(ssh: SshConfig) -> list[SshTransport]:
    """The way to each login node of a site, the first one first."""
    return [
        SshTransport(host=host, port=port, user=ssh.user, key=ssh.key, known_hosts=ssh.known_hosts)
        for host, port in ssh.login_nodes
    ]


class Listening(Protocol):
    """A socket at which calls are taken."""

    def close(self) -> None: ...


class CallDesk(Protocol):
    """Takes the calls of users and operators."""

    def take(self, call: ClientCall, origin: SiteName, answer: Callable[[Reply], None]) -> None: ...

    async def serve(self, path: Path) -> Listening: ...


def _since_boot() -> float:
    """Seconds; they count while the process is stopped, or the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def here(work: Work) -> None:
    """Run a coroutine in this event loop."""
    await work()


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonEdges:
    """The daemon's edges to the world; by default the real ones."""

    wall: Callable[[], float] = time.time  # Unix time; it may be set, also backwards
    monotonic: Callable[[], float] = _since_boot
    transport_of: Callable[[SiteConfig], Transport] = transport_of
    act: Callable[..., Awaitable[Any]] = asyncio.to_thread  # calls what may block
    listen: Callable[[CallDesk, Path], Awaitable[Listening]] = lambda desk, path: desk.serve(path)
    door: Callable[[Path, Callable[[SiteName], bool]], SiteDoor] = SiteDoor  # for sites that dial
    beside: Callable[[Work], Coroutine[Any, Any, None]] = here
    """Runs what keeps the lead; ``in_a_thread`` where turns may be long."""
    history: JobHistory | None = None  # followed while it leads
    audit: Audit | None = None  # written while it leads
    traces: SpanSink | None = None  # told while it leads
    starts: StartsFile = NOWHERE  # what was learned of estimated starts


REAL_EDGES: Final = DaemonEdges()
