"""The daemon's end of an agent's channel, and the simulated site behind the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import pytest

from federator.agent.acts import SiteActs
from federator.agent.base import CheckpointStatus, SiteDriver
from federator.agent.config import AgentConfig
from federator.agent.core import AgentCore
from federator.agent.effects import AgentEffect
from federator.agent.journal import Journal
from federator.agent.launch_traces import LaunchTraces
from federator.agent.memory import AgentMemory
from federator.agent.observations import Done, Now
from federator.agent.order_archive import OrderArchive
from federator.agent.services.handshake import await_welcome
from federator.agent.shell import Agent
from federator.agent.spool import Spool
from federator.errors import SiteRefused
from federator.faults.clock import VirtualClock, run_virtual
from federator.faults.slurm import SimulatedSlurm
from federator.model.site_message import Ask, CancelOrder, Report
from federator.model.tagged import Message
from federator.model.workload import AttemptId, WorkloadId
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    EndedJob,
    LaunchOrder,
    Ping,
    PreemptOrder,
    Welcome,
    from_agent_decoder,
)
from federator.wire.client_protocol import BANNER, frame
from tests.fakes.build import attempt, bid_request, gang, plan_on, rack, submission
from tests.fakes.slurm import SimulatedSite

_M = TypeVar("_M", bound=Message)
_T = TypeVar("_T")
PING_EVERY_S = 5.0


class Daemon:
    """The daemon's end of one agent's channel, and the site behind it."""

    def __init__(self, folder: Path, n_nodes: int = 4) -> None:
        self.clock = VirtualClock()
        self.slurm = SimulatedSlurm(rack("a", n_nodes), self.clock)
        self.site = SimulatedSite(self.slurm)
        self.said: list[Message] = []  # by the agent
        self.epoch = 1
        self.folder = folder
        self.spool = ""  # agent.yaml's spool_dir
        self.consume_lease: Literal["gate", "wrapper"] = "gate"
        self.spool_hangs = False
        self.traces: LaunchTraces | None = None
        self.clock_is_ahead_s = 0.0  # of true time, at the site
        self._reader: asyncio.StreamReader | None = None
        self._reports = 0  # of earlier agents

    def tell(self, message: Message) -> None:
        assert self._reader is not None
        self._reader.feed_data(frame(message))

    def hang_up(self) -> None:
        assert self._reader is not None
        self._reader.feed_eof()

    def heard(self, kind: type[_M]) -> list[_M]:
        return [message for message in self.said if isinstance(message, kind)]

    async def wait_for(self, kind: type[_M], count: int = 1) -> _M:
        """The ``count``-th message of a kind, as soon as it is there."""
        for _ in range(1000):
            if len(self.heard(kind)) >= count:
                return self.heard(kind)[count - 1]
            await asyncio.sleep(0.1)
        raise AssertionError(f"the agent never said {kind.__name__}: {self.said}")

    def serve(self, *scripts: Callable[[], Awaitable[None]]) -> None:
        """Run an agent on this channel until the script is over; then one for the next script."""

        async def one_by_one() -> None:
            for script in scripts:
                await self._serve(script)

        run_virtual(self.clock, one_by_one())

    async def _serve(self, script: Callable[[], Awaitable[None]]) -> None:
        self._reader = asyncio.StreamReader()
        self._reports = len(self.heard(Report))
        config = AgentConfig(
            site="alpine",
            socket=str(self.folder / "sock"),
            state_dir=str(self.folder),
            spool_dir=self.spool,
            consume_lease=self.consume_lease,
        )
        journal = Journal(self.folder, self.clock())
        agent = Agent(
            config,
            self.site,
            journal,
            self._take,
            clock=lambda: self.clock() + self.clock_is_ahead_s,
            knows_user=lambda user: user != "stranger",
            acting=self._in_spool,
            traces=self.traces,
        )
        self.tell(
            Welcome(
                protocol=PROTOCOL_VERSION,
                epoch=self.epoch,
                site="alpine",
                partitions=("gpu",),
                poll_interval_s=10.0,
                federation="ours",
            )
        )
        welcome = await await_welcome(self._reader, self._take)
        running = asyncio.create_task(agent.run(self._reader, welcome))
        pinging = asyncio.create_task(self._ping())
        try:
            acting = asyncio.ensure_future(self._act(script))
            await asyncio.wait({running, acting}, return_when=asyncio.FIRST_COMPLETED)
            if not acting.done():
                acting.cancel()
                await running  # raises what ended it
            await acting
        finally:
            pinging.cancel()
            self.hang_up()
            await asyncio.wait({running})
        await running

    async def _in_spool(self, act: Callable[[], _T]) -> _T:
        if self.spool_hangs:
            raise TimeoutError
        return act()

    async def _act(self, script: Callable[[], Awaitable[None]]) -> None:
        await self.wait_for(Report, self._reports + 1)
        await script()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            self.tell(Ping())

    def _take(self, data: bytes) -> None:
        if data != BANNER:
            self.said.append(from_agent_decoder.decode(data[4:]))


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


def order(number: int = 0, *nodes: str) -> LaunchOrder:
    return LaunchOrder(
        attempt=attempt(number),
        user="ada",
        tenant="vision",
        name="train",
        submission=submission(),
        jobs=plan_on(*(nodes or ("a1",))),
    )


def cancel(number: int = 0, job_id: int = 0, pending_only: bool = False) -> CancelOrder:
    return CancelOrder(
        attempt=attempt(number), user="ada", site_job_id=job_id, pending_only=pending_only
    )


def ask(pass_id: int, *nodes: int) -> Ask:
    requests = tuple(
        bid_request(id=WorkloadId(k), jobs=(gang(n),), priority=3, time_limit_s=60.0)
        for k, n in enumerate(nodes)
    )
    return Ask(pass_id=pass_id, requests=requests)


def attempts_of(report: Report) -> list[AttemptId]:
    return [told.attempt for told in report.attempts]


def spooled(daemon: Daemon) -> Path:
    """Give the site a spool; its folder."""
    folder = daemon.folder / "spool"
    folder.mkdir(exist_ok=True)
    daemon.spool = str(folder)
    return folder


class PartOfAgent:
    """What one part of an agent's core needs, and the site at which its effects are carried out.

    Args:
        folder: the agent's state folder.
        site: a driver.
        clock: Unix time, and the time that is never set.
    """

    def __init__(self, folder: Path, site: SiteDriver, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.said: list[Message] = []
        self.journal = Journal(folder, clock())
        self.kept = OrderArchive(folder, clock())
        self.memory = AgentMemory(
            "alpine", self.journal.index, self.kept.ends(), self.now, SiteScheduler(("gpu",))
        )
        self._acts = SiteActs(
            site,
            self.journal,
            self.kept,
            Spool(None, "alpine", clock),
            self.said.append,
            probing=lambda _: False,
            scripts_consume=False,
        )
        self._core = cast(AgentCore, self)  # acts ask it for its memory only
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def now(self) -> Now:
        return Now(self.clock(), self.clock())

    def begin(self, take: Callable[[Any, Any], None]) -> None:
        """Have carried out what the part has decided; ``take`` gets the answers."""
        for effect in self.memory.taken():
            if not self._acts.do_at_once(effect):
                task = asyncio.create_task(self._do(effect, take))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _do(self, effect: AgentEffect, take: Callable[[Any, Any], None]) -> None:
        answer = await self._acts.do(effect, self._core)
        self.memory.now = self.now
        take(effect, answer.value if isinstance(answer, Done) else answer.failure)
        self.begin(take)

    async def finish(self) -> None:
        """Until all has been answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()


class LookedSite(SimulatedSite):
    """Counts the looks; those of some users hang or are refused."""

    HANGS_S = 1000.0

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(SimulatedSlurm(rack("a", 4), clock))
        self.looks: list[list[PreemptOrder | EndedJob]] = []
        self.hangs: set[str] = set()
        self.refuses: set[str] = set()
        self.takes_s = 0.0  # a look
        self.most_at_once = self._at_once = 0

    async def read_checkpoint_status(
        self, user: str, told: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        self.looks.append(list(told))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._read(user, told)
        finally:
            self._at_once -= 1

    async def _read(
        self, user: str, told: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        await asyncio.sleep(self.takes_s)
        if user in self.hangs:
            await asyncio.sleep(self.HANGS_S)
        if user in self.refuses:
            raise SiteRefused(f"the site does not let us act for {user}")
        return await super().read_checkpoint_status(user, told)
