"""The real daemon in one process with its sites: the real agents over simulated Slurms.

    python -m tests.fakes.live_daemon FOLDER

It is as ``federator daemon --config FOLDER/federation.yaml``, but for the channels to its sites,
which stay in this process, so that on a busy machine none is ever late. Whoever connects to an
agent's socket is ``USER``, as the kernel would say of one who is logged in there.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from federator.agent.base import CheckpointStatus
from federator.agent.config import AgentConfig
from federator.agent.journal import Journal
from federator.agent.services.handshake import await_welcome, take_over, tenure_here
from federator.agent.shell import Agent
from federator.cli import services
from federator.config import SiteConfig, load_config
from federator.daemon.daemon import Daemon
from federator.daemon.own_config import ConfigFile
from federator.faults.slurm import SimulatedJob, SimulatedSlurm
from federator.model.dataset import CopyPhase
from federator.model.site import SiteJobState
from federator.store.opening import open_store
from federator.wire.agent_protocol import CopyOrder, EndedJob, PreemptOrder
from federator.wire.client_protocol import Call
from federator.wire.client_socket import Answer, ClientSocket, OpenSocket
from federator.wire.framing import ByteReader
from federator.wire.replies import Reply
from federator.wire.transport import Channel, Transport
from tests.fakes.build import rack
from tests.fakes.slurm import SimulatedSite

USER: Final = "vision1"
JOB_LASTS_S: Final = 1.0
RACKS: Final = {"g": (8, "g{}"), "n": (16, "n{:02}")}  # their nodes, and what those are called


class LiveSite(SimulatedSite):
    """A site whose jobs end by themselves, and whose copies are done at once."""

    def __init__(self, gpu_type: str) -> None:
        nodes = [
            replace(node, name=called.format(k))
            for name, (count, called) in RACKS.items()
            for k, node in enumerate(rack(name, count, gpu_type=gpu_type), 1)
        ]
        nodes += rack("c", 2, gpus=0)
        super().__init__(SimulatedSlurm(nodes, time.time, on_start=self._started))

    def _started(self, job: SimulatedJob) -> None:
        end = partial(self.slurm.end, job.attempt, SiteJobState.COMPLETED)
        asyncio.get_running_loop().call_later(JOB_LASTS_S, end)

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        await super().copy(order)
        return CopyPhase.DONE, 7, ""

    async def read_checkpoint_status(
        self, user: str, told: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        """All have saved at once, and go."""
        del user
        for order in told:
            self.slurm.end(order.attempt, SiteJobState.CANCELLED)
        return [CheckpointStatus(acked_at_s=time.time()) for _ in told]


class HereChannel:
    """A channel that leads from the daemon to an agent of the same process."""

    def __init__(self) -> None:
        self.from_agent = asyncio.StreamReader(limit=2**20)
        self.reader: ByteReader = self.from_agent
        self.to_agent = asyncio.StreamReader(limit=2**20)
        self.agent: asyncio.Task[None] | None = None

    def write(self, data: bytes) -> None:
        self.to_agent.feed_data(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.to_agent.feed_data(b"".join(parts))

    async def drain(self) -> None:
        """Nothing is in between."""

    async def close(self) -> None:
        self.to_agent.feed_eof()
        if self.agent is not None:
            await asyncio.wait([self.agent])

    def last_words(self) -> str:
        return ""


class HereTransport:
    """Starts agents of one site in this process.

    Args:
        folder: the agent's.
        name: the site's.
        gpu_type: of its nodes.
    """

    def __init__(self, folder: Path, name: str, gpu_type: str) -> None:
        self._folder, self._name = folder, name
        self._site: Any = LiveSite(gpu_type)  # the watch of local jobs is no part of it

    async def open(self) -> Channel:
        channel = HereChannel()
        channel.agent = asyncio.create_task(self._serve(channel))
        return channel

    async def probe(self) -> None:
        """It can be reached."""

    async def _serve(self, channel: HereChannel) -> None:
        write = channel.from_agent.feed_data
        welcome = await await_welcome(channel.to_agent, write)
        self._folder.mkdir(exist_ok=True)
        await take_over(self._folder, welcome.epoch)
        tenure = tenure_here(self._folder, welcome)
        tenure.begin()
        socket = str(self._folder / "agent.sock")
        agent = Agent(
            AgentConfig(site=self._name, socket=socket, state_dir=str(self._folder)),
            self._site,
            Journal(self._folder, time.time(), tenure),
            write,
            knows_user=lambda _: True,
            listen=_listen,
        )
        try:
            await agent.run(channel.to_agent, welcome)
        finally:
            channel.from_agent.feed_eof()


async def _listen(answer: Answer, path: Path) -> OpenSocket:
    async def of_user(_uid: str, call: Call) -> Reply:
        return await answer(USER, call)

    return await ClientSocket(of_user).listen(path)


def main(folder: Path) -> None:
    """Serve until a signal."""
    path = folder / "federation.yaml"
    sites: dict[str, HereTransport] = {}

    def transport_of(site: SiteConfig) -> Transport:
        name, gpu_type = site.command
        return sites.setdefault(name, HereTransport(folder / name, name, gpu_type))

    services.log_to_stderr("info")
    loaded = load_config(path)
    edges = replace(services._edges(loaded), transport_of=transport_of)
    daemon = Daemon(loaded, open_store(loaded.store), edges=edges, source=ConfigFile(path))
    asyncio.run(services._until_signalled(daemon))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
