"""The daemon's host: a service manager starts the real daemon, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from federator.config import FederationConfig, SiteConfig
from federator.daemon.api import Api
from federator.daemon.daemon import Daemon
from federator.daemon.edges import CallDesk, DaemonEdges
from federator.errors import ConfigError, FederatorError
from federator.faults.dialled import DialledWriter, SimulatedDoor
from federator.faults.log import SharedLog
from federator.faults.network import Line, LineTransport, LoginWay, Network
from federator.faults.process import Process, later
from federator.model.workload import SiteName
from federator.sched.passes.federation import Federation
from federator.wire.agent_protocol import ClientCall
from federator.wire.client_protocol import Call
from federator.wire.login_nodes import LoginNodes
from federator.wire.replies import Reply
from federator.wire.transport import Transport

Ways = dict[SiteName, tuple[Network, Sequence[LoginWay]]]
RESTART_S: Final = 1.0  # systemd's RestartSec


@dataclass(slots=True)
class _Door:
    """The daemon's own socket."""

    host: DaemonHost
    desk: CallDesk
    process: Process

    def close(self) -> None:
        if self.host.door is self:
            self.host.door = None


@dataclass(slots=True, eq=False)
class DaemonHost:
    """A host with a daemon.

    Args:
        config: what its federation.yaml says.
        log: that all daemons share.
        networks: the way to each site, and its login nodes.
        wall: this host's clock.
        monotonic: time since whenever.
        strikes: see ``Process``.
        tell: notes what struck.
        on_lead: told when a daemon of this host has read the log and leads.
    """

    config: FederationConfig
    log: SharedLog
    networks: Ways
    wall: Callable[[], float]
    monotonic: Callable[[], float]
    strikes: Callable[[str, str], bool]
    tell: Callable[[str], None]
    on_lead: Callable[[DaemonHost, Process], None]
    process: Process | None = None
    daemon: Daemon | None = None
    door: _Door | None = None
    site_door: SimulatedDoor | None = None  # of the daemon that leads, once a site is to dial it
    up: bool = True  # whether it is started again when it has ended
    starts: int = 0
    file_is_broken: bool = False
    name: str = "federation.yaml"

    def load(self) -> FederationConfig:
        """Read federation.yaml, as the daemon does to reload."""
        if self.file_is_broken:
            raise ConfigError(self.mistake(("policy",), "no mapping"))
        return self.config

    def mistake(self, keys: tuple[str, ...], message: str) -> str:
        return f"{self.name}:1: {'.'.join(keys)}: {message}"

    def start(self) -> None:
        """As systemd does."""
        if self.process is not None or not self.up:
            return
        self.starts += 1
        self.process = process = Process("daemon", self.strikes)
        process.when_dead(lambda: self._ended(process))
        process.spawn(self._run(process))

    def _ended(self, process: Process) -> None:
        if self.process is process:
            self.process = self.daemon = self.door = self.site_door = None
            later(RESTART_S, self.start)

    async def _run(self, process: Process) -> None:
        try:
            store = self.log.open(process)
            self.daemon = Daemon(self.config, store, edges=self._edges(process), source=self)
            await self.daemon.run()
        except FederatorError as error:
            process.check()
            self.tell(f"daemon ended: {error}")
        finally:
            process.die()

    def _edges(self, process: Process) -> DaemonEdges:
        def transport_of(site: SiteConfig) -> Transport:
            name = SiteName(site.ssh.host if site.ssh is not None else site.command[1])
            network, login_nodes = self.networks[name]
            ways = [LineTransport(network, process, way) for way in login_nodes]
            return LoginNodes(ways) if len(ways) > 1 else ways[0]

        async def act(function: Callable[..., Any], *args: Any) -> Any:
            process.check()
            await asyncio.sleep(self.log.slow_s + 0.002)
            return function(*args)

        async def listen(desk: CallDesk, _path: Path) -> _Door:
            self.door = _Door(self, desk, process)
            if self.federation is not None:
                self.on_lead(self, process)
            return self.door

        return DaemonEdges(
            wall=self.wall,
            monotonic=self.monotonic,
            transport_of=transport_of,
            act=act,
            listen=listen,
            door=lambda _path, expects: SimulatedDoor(expects, self, process),
        )

    def attach(self, line: Line) -> None:
        """As sshd does when a site's key logs in: join its channel to the daemon that leads."""
        door, process = self.site_door, self.process
        if door is None or process is None:
            line.down.send(None)
        else:
            process.spawn(door.admit(line.up.reader, DialledWriter(line, process)))

    @property
    def federation(self) -> Federation | None:
        """The running daemon's federation, for the model alone."""
        if self.daemon is None or self.daemon.term is None:
            return None
        return self.daemon.term.federation

    async def ask(self, user: str, call: Call) -> Reply | None:
        """A command at a site, to the daemon of this host; None: nobody answers."""
        door = self.door
        if door is None:
            return None
        asked = ClientCall(call_id=0, user=user, call=call)
        return await self._answer(door, partial(door.desk.take, asked, SiteName("")))

    async def ask_here(self, user: str, call: Call) -> Reply | None:
        """A command on this host, where root is an operator; None: nobody leads here."""
        door = self.door
        if door is None or not isinstance(door.desk, Api):
            return None
        return await self._answer(door, partial(door.desk.take_here, user, call))

    async def _answer(
        self, door: _Door, take: Callable[[Callable[[Reply], None]], None]
    ) -> Reply | None:
        process = door.process
        answered: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

        def answer(reply: Reply) -> None:
            process.point("answer")
            if not answered.done():
                answered.set_result(reply)

        def nobody() -> None:
            if not answered.done():
                answered.set_result(None)

        process.when_dead(nobody)
        process.call(take, answer)
        return await answered
