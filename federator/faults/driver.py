"""The driver between a real agent and its simulated Slurm: slow, and dying at named points."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from federator.agent.base import (
    NOTHING,
    CheckpointStatus,
    KnownJobs,
    Partition,
    Probe,
    Removal,
    SubmittedJob,
    Sweep,
    Tidying,
)
from federator.errors import SiteRefused, SiteUnavailable
from federator.faults.cluster import Cluster
from federator.faults.process import Process
from federator.faults.sbatch_helper import SbatchHelper
from federator.faults.slurm import SimulatedJob
from federator.faults.slurmctld import SimulatedAccounts, Slurmctld
from federator.faults.spell import Spell
from federator.model.dataset import CopyPhase
from federator.model.site import Node, SiteJob, SiteJobState
from federator.wire.agent_protocol import (
    CopyOrder,
    EndedJob,
    LaunchOrder,
    OutputOrder,
    OutputStatus,
    PreemptOrder,
    SignalTo,
)


class SimulatedInspector:
    """The looks that only a ``SiteInspector`` has, of a simulated site, which nobody verifies."""

    async def settings(self) -> Mapping[str, str]:
        raise SiteUnavailable("not simulated")

    async def partitions(self) -> Sequence[Partition]:
        raise SiteUnavailable("not simulated")

    async def nodes(self) -> Sequence[Node]:
        raise SiteUnavailable("not simulated")

    async def jobs(self, job_ids: Collection[int]) -> Mapping[int, SiteJob]:  # noqa: ARG002
        raise SiteUnavailable("not simulated")

    async def probe(self, user: str, probe: Probe) -> int:  # noqa: ARG002
        raise SiteUnavailable("not simulated")

    async def missing_names(self) -> Sequence[str] | None:
        return None

    async def is_loose(self, user: str) -> bool:  # noqa: ARG002
        raise SiteUnavailable("not simulated")


class FaultyDriver(SimulatedInspector):
    """A ``SiteDriver`` of one agent's process.

    Args:
        cluster: the Slurm.
        spell: the faults that strike it.
        process: the agent's.
        tell: notes what struck.
        spool: where tickets lie; None: the partition is open.
        may_submit: raises ``StaleState`` if another agent of the site acts.
    """

    def __init__(
        self,
        cluster: Cluster,
        spell: Spell,
        process: Process,
        tell: Callable[[str], None],
        spool: Path | None,
        may_submit: Callable[[], None],
    ) -> None:
        self._may_submit = may_submit
        self._cluster = cluster
        self._spell = spell
        self._process = process
        self._tell = tell
        self._slurmctld = Slurmctld(spell, process, tell)
        self.accounts = SimulatedAccounts(cluster, self._slurmctld)
        self._sbatch = SbatchHelper(cluster=cluster, spell=spell, tell=tell, spool=spool)

    async def version(self) -> str:
        await self._slurmctld.ask()
        return "25.05.3"

    async def sweep(self, own: KnownJobs = NOTHING) -> Sweep:
        self._process.point("sweep before")
        await self._slurmctld.ask()
        if self._spell.unreadable:
            self._spell.say_once("sweep unreadable", self._tell)
            raise SiteUnavailable("jobs cannot be read")
        attempts, holders = self._cluster.reports(own.launched), self._cluster.holders(own.launched)
        if self._spell.sweep_s:
            self._spell.say_once("sweep slow", self._tell)
            await asyncio.sleep(self._spell.sweep_s)
        nodes = self._cluster.nodes()
        complete = True
        if self._spell.hides_node and len(nodes) > 1:
            self._spell.say_once("sweep incomplete", self._tell)
            nodes, complete = nodes[1:], False
        self._process.point("sweep after")
        return Sweep(nodes=nodes, attempts=attempts, holders=holders, nodes_complete=complete)

    async def settings_changed(self) -> bool:
        """Never: a simulated site is set up once."""
        return False

    # ---- sbatch ----

    async def launch(
        self,
        order: LaunchOrder,
        ticket: str = "",
        start_line: str = "",  # noqa: ARG002
    ) -> SubmittedJob:
        start_by_s = self._sbatch.latest_s()
        self._may_submit()
        self._process.point("sbatch before call")
        await asyncio.sleep(0)  # it may be stopped here
        self._process.check()
        answer = self._sbatch.call(order, ticket, start_by_s)
        self._process.point("sbatch before")
        job_id = await answer
        self._process.point("sbatch after")
        return SubmittedJob(job_id, "")

    # ---- all else ----

    async def notify(self, order: PreemptOrder, deadline_s: float) -> None:  # noqa: ARG002
        self._process.point("tell before")
        await self._slurmctld.ask()
        self._cluster.code.notify(_running(self._cluster, order.site_job_id))
        self._process.point("tell after")

    async def signal(self, user: str, job_id: int, name: str, to: SignalTo) -> None:  # noqa: ARG002
        await self._slurmctld.ask()
        self._process.check()
        job = _running(self._cluster, job_id)
        if name == "KILL":
            self._cluster.end_job(job, SiteJobState.FAILED, signal=9)
        else:
            self._cluster.code.notify(job)

    async def limit(self, user: str, job_id: int, minutes: int) -> None:  # noqa: ARG002
        raise SiteRefused("simulated users lower no limits")

    async def kill_wait_s(self) -> float:
        await self._slurmctld.ask()
        return 3.0

    async def inspect(self, user: str, orders: Sequence[LaunchOrder]) -> list[str]:  # noqa: ARG002
        return [""] * len(orders)

    async def tidy(self, user: str, order: Tidying) -> Removal:  # noqa: ARG002
        return Removal()

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        self._process.check()
        disks = self._cluster.disks
        return (CopyPhase.NONE, 0, "") if disks is None else disks.step(self._cluster.name, order)

    async def output(self, order: OutputOrder) -> OutputStatus:
        self._process.point("output before")
        assert self._cluster.disk is not None
        answer = self._cluster.disk.step(order)
        self._process.point("output after")
        return answer

    async def read_checkpoint_status(
        self,
        user: str,  # noqa: ARG002
        orders: Sequence[PreemptOrder | EndedJob],
    ) -> list[CheckpointStatus]:
        await self._slurmctld.ask()
        return [CheckpointStatus() for _ in orders]

    async def cancel(self, user: str, job_id: int, *, pending_only: bool) -> bool:
        self._process.point("scancel before")
        await self._slurmctld.ask()
        self._process.check()
        job = self._cluster.jobs.get(job_id)
        if job is not None and job.user != user:
            raise SiteRefused(f"job {job_id} belongs to another user")
        if job_id in self._cluster.nameless:
            raise SiteRefused(f"job {job_id} is not of the federation")
        if self._cluster.refuses_cancels:
            self._spell.say_once("scancel fails", self._tell)
        done = self._cluster.cancel(job_id, pending_only=pending_only)
        self._process.point("scancel after")
        return done


def _running(cluster: Cluster, job_id: int) -> SimulatedJob:
    job = cluster.jobs.get(job_id)
    if job is None or job.state is not SiteJobState.RUNNING:
        raise SiteRefused(f"job {job_id} does not run")
    return job
