"""A site's login node: sshd starts real agents, one of them works, and it may die.

What ``federator.cli.services`` does for a real agent is done here, on folders that outlive it: the
journal with its lock, and the spool.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from federator.agent.config import AgentConfig
from federator.agent.journal import Journal, JournalMark, JournalStep, Served, check_epoch
from federator.agent.services.handshake import (
    ELSEWHERE_S,
    ENDS_WITHIN_S,
    TAKEOVER_S,
    await_welcome,
    refuse_foreign_daemon,
    refuse_other_folder,
)
from federator.agent.shell import Agent
from federator.agent.tenure import AgentTenure
from federator.errors import FederatorError, SiteUnavailable
from federator.faults.cluster import Cluster
from federator.faults.driver import FaultyDriver
from federator.faults.file_dates import FileDates
from federator.faults.network import AgentEnd, Line, LoginWay, Network
from federator.faults.process import DiskFull, Process, here
from federator.faults.spell import Spell
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import Welcome
from federator.wire.client_protocol import Call
from federator.wire.client_socket import Answer
from federator.wire.replies import Reply

_T = TypeVar("_T")
_SPOOL_HANGS_S: Final = 3.0
_TORN: Final = b'\n{"attempt": "fed:42949'


@dataclass(slots=True)
class Disk:
    """The faults of a site's files."""

    journal_full: bool = False
    spool_hangs: bool = False


class MortalJournal(Journal):
    """The real journal of an agent that may die at each line."""

    def __init__(
        self,
        folder: Path,
        now_s: float,
        process: Process,
        disk: Disk,
        tell: Callable[[str], None],
        tenure: AgentTenure,
    ) -> None:
        process.check()
        super().__init__(folder, now_s, tenure)
        self._process = process
        self._disk = disk
        self._tell = tell
        self._journal = folder / "journal"

    def write(self, attempt: AttemptId, mark: JournalMark) -> None:
        name = "leave" if mark.leave_by_s and mark.step is JournalStep.JOB else mark.step.value
        self._process.point(f"{name} before")
        if self._disk.journal_full:
            self._tell("journal full")
            raise DiskFull(errno.ENOSPC, "No space left on device")
        try:
            self._process.point("journal torn")
        except BaseException:
            with self._journal.open("ab") as file:
                file.write(_TORN)
            raise
        super().write(attempt, mark)
        self._process.point(f"{name} after")

    def accept(self, term: Served, *, displaces: bool = False) -> None:
        self._process.check()
        super().accept(term, displaces=displaces)

    def close(self) -> None:
        """Do what the kernel does when its process ends."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@dataclass(slots=True)
class _Socket:
    """The users' socket of one agent."""

    host: SiteHost
    process: Process
    answer: Answer

    def close(self) -> None:
        if self.host.socket is self:
            self.host.socket = None


@dataclass(slots=True, eq=False)
class SiteHost:
    """One site's login node.

    Args:
        cluster: its Slurm.
        network: the way to the daemon.
        folder: on its disk.
        clock: its wall clock.
        strikes: see ``Process``.
        tell: notes what struck.
        has_spool: whether the site has leases and tickets.
    """

    cluster: Cluster
    network: Network
    folder: Path
    clock: Callable[[], float]
    strikes: Callable[[str, str], bool]
    tell: Callable[[str], None]
    has_spool: bool = True
    spell: Spell = field(default_factory=Spell)
    disk: Disk = field(default_factory=Disk)
    agents: list[Process] = field(default_factory=list)  # those alive
    login_nodes: list[str] = field(default_factory=lambda: ["login1"])
    stopped: set[str] = field(default_factory=set)  # of these
    diallers: dict[str, Process] = field(default_factory=dict)  # by login node
    socket: _Socket | None = None
    _dates: FileDates = field(init=False)
    _locked_by: Process | None = None
    _nodes: dict[int, str] = field(default_factory=dict)  # where each agent runs
    _begun: int = 0  # agents
    _ends: dict[int, Callable[[], None]] = field(default_factory=dict)  # SIGTERM, by process

    def __post_init__(self) -> None:
        self._dates = FileDates(self.clock)

    @property
    def name(self) -> str:
        return self.cluster.name

    @property
    def spool(self) -> Path | None:
        return self.folder / "spool" if self.has_spool else None

    def has_noted(self, attempt: AttemptId, job_id: int) -> bool:
        """Whether the agent's journal has an attempt's job."""
        journal = self.folder / "journal"
        if not journal.exists():
            return False
        lines = journal.read_text(encoding="utf-8", errors="replace").splitlines()
        named, noted = f'"{attempt}"', re.compile(rf'"job_id": {job_id}\b')
        return any(named in line and noted.search(line) for line in lines)

    # ---- login nodes ----

    def ways(self) -> list[LoginWay]:
        """To each of its login nodes."""
        return [
            LoginWay(
                start_agent=partial(self._start_agent, node),
                answers=lambda node=node: node not in self.stopped,  # type: ignore[misc]
            )
            for node in self.login_nodes
        ]

    def present_node(self) -> str:
        """The login node of the agent in whose process this is called."""
        return self._nodes.get(id(here()), self.login_nodes[0])

    def stop(self, node: str) -> None:
        """A login node stands still: its agents, and sshd."""
        self.stopped.add(node)
        if node in self.diallers:
            self.diallers[node].pause()
        for agent in self.agents:
            if self._nodes[id(agent)] == node:
                agent.pause()

    def go_on(self, node: str) -> None:
        """It goes on where it was."""
        if node not in self.stopped:
            return
        self.stopped.discard(node)
        if node in self.diallers:
            self.diallers[node].resume()
        others = {self._nodes[id(a)] for a in self.agents} - {node}
        for agent in list(self.agents):
            if self._nodes[id(agent)] == node:
                if others:
                    self.tell("a former agent wakes")
                agent.resume()

    def _start_agent(self, node: str, line: Line) -> None:
        """As sshd does when the federation's key logs in."""
        if node not in self.stopped:
            self.start_agent(node, line)

    def start_agent(self, node: str, line: Line) -> Process:
        """Start an agent on a login node; it serves this channel."""
        process = Process(self.name, self.strikes)
        self._nodes[id(process)] = node
        end = AgentEnd(line, process)
        self.agents.append(process)
        process.when_dead(lambda: self._gone(process))
        process.spawn(self._serve(process, end))
        return process

    def _gone(self, process: Process) -> None:
        if process in self.agents:
            self.agents.remove(process)
        if self._locked_by is process:
            self._locked_by = None
        if self.socket is not None and self.socket.process is process:
            self.socket = None
        self._ends.pop(id(process), None)
        self._nodes.pop(id(process), None)

    async def _serve(self, process: Process, end: AgentEnd) -> None:
        journal: MortalJournal | None = None
        node = self._nodes[id(process)]
        try:
            welcome = await await_welcome(end.reader, end.write)
            refuse_foreign_daemon(self.folder, self.name, welcome, end.write)
            refuse_other_folder(self.folder, self.name, node, welcome, end.write)
            await self._take_over(process, end, welcome.epoch)
            journal = self._journal(process, welcome)
            process.when_dead(journal.close)
            agent = self._agent(process, end, journal, welcome.partitions)
            process.when_dead(agent._kept.close)
            await agent.run(end.reader, welcome)
        except (FederatorError, DiskFull) as error:
            process.check()
            self.tell(f"agent ended: {error}")
        finally:
            process.die()  # its end, in whatever way

    def _journal(self, process: Process, welcome: Welcome) -> MortalJournal:
        process.check()
        self._begun += 1
        tenure = AgentTenure(
            self.folder,
            welcome.epoch,
            welcome.channel,
            host=self._nodes[id(process)],
            process=str(self._begun),
        )
        tenure.begin()
        return MortalJournal(self.folder, self.clock(), process, self.disk, self.tell, tenure)

    def _agent(
        self, process: Process, end: AgentEnd, journal: Journal, _partitions: tuple[str, ...]
    ) -> Agent:
        async def listen(answer: Answer, _path: Path) -> _Socket:
            self.socket = _Socket(self, process, answer)
            return self.socket

        async def acting(act: Callable[[], _T]) -> _T:
            process.point("spool before")
            if self.disk.spool_hangs:
                self.tell("spool hangs")
                await asyncio.sleep(_SPOOL_HANGS_S)
                raise TimeoutError
            try:
                result = act()
            finally:
                self._date_files()
            process.point("spool after")
            return result

        self._date_files()
        config = AgentConfig(
            site=self.name,
            socket=str(self.folder / "sock"),
            state_dir=str(self.folder),
            spool_dir=str(self.spool or ""),
        )
        driver = FaultyDriver(
            self.cluster, self.spell, process, self.tell, self.spool, journal.tenure.check
        )
        return Agent(
            config,
            driver,
            journal,
            end.write,
            knows_user=lambda _: True,
            clock=self.clock,
            acting=acting,
            listen=listen,
        )

    def _date_files(self) -> None:
        spool = self.folder / "spool"
        self._dates.date(self.folder / "orders", spool / "tickets", spool / "leases")

    async def _take_over(self, process: Process, end: AgentEnd, epoch: int) -> None:
        """As ``handshake.take_over``, of a lock that dies with its process.

        Who leaves another agent behind has no lock.
        """
        for turn in range(int(TAKEOVER_S / 0.1)):
            if self._locked_by is None:
                self._locked_by = process
                self._ends[id(process)] = end.hang_up
                return
            check_epoch(self.folder, epoch)
            is_here = self._nodes[id(self._locked_by)] == self._nodes[id(process)]
            if turn == 0 and is_here:
                self.tell("two agents")
            if turn * 0.1 >= (ENDS_WITHIN_S if is_here else ELSEWHERE_S):
                return
            if turn % 10 == 0 and is_here:
                self._ends[id(self._locked_by)]()
            await asyncio.sleep(0.1)
        raise SiteUnavailable("an older agent still holds the lock")

    def kill_agents(self) -> bool:
        """All of them, now."""
        there = list(self.agents)
        for process in there:
            process.die()
        return bool(there)

    async def ask(self, user: str, call: Call) -> Reply | None:
        """A user's command at this site; None: nobody answers."""
        socket = self.socket
        if socket is None or not socket.process.alive:
            return None
        found: list[Reply] = []

        async def answer() -> None:
            with suppress(FederatorError):  # as the socket hangs up
                found.append(await socket.answer(user, call))

        task = socket.process.spawn(answer())
        await asyncio.wait({task})
        return found[0] if found else None
