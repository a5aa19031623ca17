"""Sites that dial the daemon: their diallers, and the daemon's door, on simulated channels.

The door is the real one but for its socket. A dialler does what ``federator.agent.services.dialer``
does, without processes of its own: the same pauses, and the same answers of the door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path
from random import Random
from typing import Final, Protocol

from federator.agent.services.dialer import ENDS_WITHIN_S, LASTING_S, DialTurns
from federator.daemon.site_door import SiteDoor
from federator.faults.network import CONNECT_S, DaemonEnd, Line
from federator.faults.process import Process, later
from federator.faults.site_host import SiteHost
from federator.model.workload import SiteName
from federator.wire.attaching import ATTACHED, STANDING_BY

ANSWERS_WITHIN_S: Final = 15.0  # a daemon that stands still; ``federator site attach`` ends then
NO_WAY_OUT_S: Final = (0.0, 25.0)  # of a site that has lost its channel
FORGOTTEN_S: Final = 60.0  # after the site has closed a channel that no agent has used


class DialledHost(Protocol):
    """A daemon's host, to a site that dials it."""

    site_door: SimulatedDoor | None

    def attach(self, line: Line) -> None: ...


class SimulatedDoor(SiteDoor):
    """The door of one daemon, without a socket.

    Args:
        expects: see ``SiteDoor``.
        host: where sites find it while it is open.
        process: the daemon's.
    """

    def __init__(
        self, expects: Callable[[SiteName], bool], host: DialledHost, process: Process
    ) -> None:
        super().__init__(Path(), expects)
        self._host = host
        self._process = process

    async def open(self) -> None:
        """Be found."""
        self._process.point("connect")
        self._host.site_door = self

    def close(self) -> None:
        """Let nobody in any more, and close all channels."""
        if self._host.site_door is self:
            self._host.site_door = None
        super().close()

    def _is_ours(self, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG002 - sshd has seen to it
        return True


class _DialledSocket(asyncio.Transport):
    """The daemon's end of a channel, as asyncio has it of a socket."""

    def __init__(self, line: Line, process: Process) -> None:
        super().__init__()
        self._line = line
        self._process = process
        self._end = DaemonEnd(line, process)
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._end.write(bytes(data))

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        self._end.writelines([bytes(part) for part in parts])

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing and self._process.alive:
            self._closing = True
            self._end.hang_up()
            self._line.up.end()

    def abort(self) -> None:
        self.close()


class DialledWriter(asyncio.StreamWriter):
    """What the daemon writes a channel with that a site has opened.

    Args:
        line: the channel.
        process: the daemon's.
    """

    def __init__(self, line: Line, process: Process) -> None:
        self._transport: asyncio.WriteTransport = _DialledSocket(line, process)

    async def drain(self) -> None:
        """Nothing to wait for."""

    def __del__(self) -> None:
        """Nothing is open."""


class _Dialler:
    """That of one login node.

    Args:
        site: whose.
        node: the login node.
        daemons: one host after the other is tried.
    """

    def __init__(self, site: SiteHost, node: str, daemons: Sequence[DialledHost]) -> None:
        self._site = site
        self._node = node
        self._daemons = daemons
        self._attached_at_s = inf

    async def run(self) -> None:
        """Dial for ever."""
        turns, loop = DialTurns(len(self._daemons)), asyncio.get_running_loop()
        while True:
            self._attached_at_s = inf
            await self._one_channel(self._daemons[turns.next])
            lasted = loop.time() - self._attached_at_s >= LASTING_S
            await asyncio.sleep(turns.ended(lasted=lasted))

    async def _one_channel(self, to: DialledHost) -> None:
        network = self._site.network
        if network.cut or network.no_way_out:
            network.holding()
            await asyncio.sleep(CONNECT_S)
            return
        await asyncio.sleep(2 * network.latency())
        line = Line(network)
        line.up.send(f"{self._site.name} {self._node}\n".encode())
        later(network.latency(), to.attach, line)
        if await self._is_attached(line):
            await self._serve(line)
        else:
            line.up.send(None)
            later(FORGOTTEN_S, line.forget)

    async def _is_attached(self, line: Line) -> bool:
        """Whether the daemon has taken it, at once or after it has stood by."""
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                answer = await line.down.reader.readline()
        except TimeoutError:
            return False
        if answer == STANDING_BY:
            answer = await line.down.reader.readline()
        return answer == ATTACHED

    async def _serve(self, line: Line) -> None:
        """Have an agent serve it until either ends; the agent ends with it, or is killed."""
        self._attached_at_s = asyncio.get_running_loop().time()
        agent, gone = self._site.start_agent(self._node, line), asyncio.Event()
        agent.when_dead(gone.set)
        ends = [asyncio.ensure_future(each.wait()) for each in (gone, line.down.ended)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(ends[:1], timeout=ENDS_WITHIN_S)
        ends[1].cancel()
        agent.die()


def begin_dialling(site: SiteHost, daemons: Sequence[DialledHost]) -> None:
    """Start the dialler of each login node of a site that dials."""
    for node in site.login_nodes:
        process = site.diallers[node] = Process(f"dialler of {site.name}", site.strikes)
        process.spawn(_Dialler(site, node, daemons).run())


def lose_link(site: SiteHost, rng: Random) -> bool:
    """Break the channel in use, or those of all login nodes; False: there is none.

    The daemon's host cannot be reached for a while.
    """
    lines = [line for line in site.network.lines if not line.up.ended.is_set()]
    for line in lines if rng.random() < 0.5 else lines[:1]:
        line.cut()
    if lines:
        site.network.no_way_out = True
        later(rng.uniform(*NO_WAY_OUT_S), setattr, site.network, "no_way_out", False)
    return bool(lines)
