"""The driver between a real agent and its simulated Slurm: slow, and dying at named points.

sbatch runs in the helper, a process of its own: once it was called it goes on whatever becomes of
the agent. Its limits are those of ``slurm/site_exec.py``: called within 12 s or not at all,
and ended after 30 s.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from federator.agent.base import (
    NOTHING,
    CheckpointStatus,
    KnownJobs,
    Missing,
    Partition,
    Probe,
    Removal,
    SbatchRefused,
    SubmittedJob,
    Sweep,
    Tidying,
)
from federator.errors import SiteRefused, SiteUnavailable
from federator.faults.cluster import Cluster
from federator.faults.process import NOBODY, Process, later
from federator.faults.slurm import SimulatedJob
from federator.model.site import AttemptReport, Node, SiteJob, SiteJobState
from federator.model.workload import AttemptId
from federator.slurm.client import START_WITHIN_S
from federator.slurm.refusals import kind_of_refusal
from federator.wire.agent_protocol import LaunchOrder, PreemptOrder, SignalTo

SBATCH_ENDS_S: Final = 30.0  # after it was called (site_exec.TIMEOUT_S)
ASKING_S: Final = 0.02
NO_QOS: Final = "sbatch: error: Batch job submission failed: Invalid qos specification"
BEYOND_S: Final = 60.0  # when the helper is long dead


class SbatchOutcome(enum.Enum):
    """The outcome of one sbatch."""

    WELL = "well"
    REPLY_LOST = "reply lost"
    NEVER_REACHED = "never reached"
    REFUSED = "refused"
    REFUSED_LATE = "refused late"
    SLOW = "slow"
    TOO_LATE = "too late"
    BEYOND = "beyond"


@dataclass(slots=True)
class Spell:
    """The faults of those who use a Slurm, for as long as they last."""

    down: bool = False  # slurmctld does not answer
    sweep_s: float = 0.0  # from squeue to sinfo
    hides_node: bool = False
    unreadable: bool = False
    fate: SbatchOutcome = SbatchOutcome.WELL  # of the next sbatch
    refuses: set[str] = field(default_factory=set)  # users whose QOS sbatch does not know
    said: set[str] = field(default_factory=set)  # what was told of it already


class FaultyDriver:
    """A ``SiteDriver`` of one agent's process.

    Args:
        cluster: the Slurm.
        spell: what befalls it.
        process: the agent's.
        tell: notes what struck.
        spool: where tickets lie; None: the partition is open.
    """

    def __init__(
        self,
        cluster: Cluster,
        spell: Spell,
        process: Process,
        tell: Callable[[str], None],
        spool: Path | None,
    ) -> None:
        self._cluster = cluster
        self._spell = spell
        self._process = process
        self._tell = tell
        self._spool = spool

    def _say(self, what: str) -> None:
        """Once in each spell."""
        if what not in self._spell.said:
            self._spell.said.add(what)
            self._tell(what)

    async def _ask(self) -> None:
        self._process.check()
        await asyncio.sleep(ASKING_S)
        if self._spell.down:
            self._say("slurmctld down")
            await asyncio.sleep(2.0)
            raise SiteUnavailable("slurmctld does not answer")

    async def version(self) -> str:
        await self._ask()
        return "25.05.3"

    async def sweep(self, own: KnownJobs = NOTHING) -> Sweep:
        self._process.point("sweep before")
        await self._ask()
        if self._spell.unreadable:
            self._say("sweep unreadable")
            raise SiteUnavailable("jobs cannot be read")
        attempts, holders = self._cluster.reports(own.launched), self._cluster.holders(own.launched)
        if self._spell.sweep_s:
            self._say("sweep slow")
            await asyncio.sleep(self._spell.sweep_s)
        nodes = self._cluster.nodes()
        complete = True
        if self._spell.hides_node and len(nodes) > 1:
            self._say("sweep incomplete")
            nodes, complete = nodes[1:], False
        self._process.point("sweep after")
        return Sweep(nodes=nodes, attempts=attempts, holders=holders, nodes_complete=complete)

    # ---- sbatch ----

    async def accounted(self, missing: Collection[Missing]) -> Mapping[AttemptId, AttemptReport]:
        """The records of slurmdbd, where there is one."""
        await self._ask()
        self._process.check()
        return self._cluster.accounted(missing)

    async def launch(
        self,
        order: LaunchOrder,
        ticket: str = "",
        start_line: str = "",  # noqa: ARG002
    ) -> SubmittedJob:
        self._process.point("sbatch before call")
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        fate, self._spell.fate = self._spell.fate, SbatchOutcome.WELL
        if fate is not SbatchOutcome.WELL:
            self._tell(f"sbatch {fate.value}")
        start_by_s = self._cluster.now_s() + START_WITHIN_S
        helper = self._helper(order, ticket, fate, start_by_s, answer)
        asyncio.get_running_loop().create_task(helper, context=NOBODY.copy())
        self._process.point("sbatch before")
        job_id = await answer
        self._process.point("sbatch after")
        return SubmittedJob(job_id, "")

    async def _helper(
        self,
        order: LaunchOrder,
        ticket: str,
        fate: SbatchOutcome,
        start_by_s: float,
        answer: asyncio.Future[int],
    ) -> None:
        result: int | Exception
        try:
            result = await self._sbatch(order, ticket, fate, start_by_s)
        except (SiteRefused, SiteUnavailable) as error:
            result = error
        if answer.done():  # nobody is there any more
            return
        if isinstance(result, int):
            answer.set_result(result)
        else:
            answer.set_exception(result)
            answer.exception()  # it may be nobody's

    async def _sbatch(
        self, order: LaunchOrder, ticket: str, fate: SbatchOutcome, start_by_s: float
    ) -> int:
        await asyncio.sleep(START_WITHIN_S + 1.0 if fate is SbatchOutcome.TOO_LATE else 0.05)
        if self._cluster.now_s() > start_by_s:
            raise SiteRefused("too late: the site took too long to call sbatch")
        if fate is SbatchOutcome.SLOW:
            await asyncio.sleep(START_WITHIN_S - 1.0)
        waits_s = (
            SBATCH_ENDS_S - 1.0 if fate in (SbatchOutcome.SLOW, SbatchOutcome.REFUSED_LATE) else 0.1
        )
        await asyncio.sleep(waits_s)
        if self._spell.down:
            self._say("slurmctld down")
            raise SiteUnavailable("sbatch: Unable to contact slurm controller")
        if fate in (SbatchOutcome.REFUSED, SbatchOutcome.REFUSED_LATE):
            raise SiteRefused("sbatch: error: Batch job submission failed")
        if order.user in self._spell.refuses:
            self._say("sbatch refuses for good")
            self._cluster.refuses(order.attempt)
            raise SbatchRefused(NO_QOS, kind_of_refusal(NO_QOS))
        if fate is SbatchOutcome.NEVER_REACHED:
            raise SiteUnavailable("sbatch: Socket timed out")
        self._cluster.check_pins(order.attempt, order.jobs)
        self._cluster.is_task(order.attempt, order.array_index)
        if fate is SbatchOutcome.BEYOND:
            self._cluster.beyond(order.attempt)
            later(BEYOND_S, self._reach, order)
            raise SiteUnavailable("sbatch: Socket timed out")
        if ticket and self._spool is not None and not (self._spool / "tickets" / ticket).exists():
            raise SiteRefused("refused: partition gpu takes jobs of the federation only")
        job_id = self._reach(order)
        if fate is SbatchOutcome.REPLY_LOST:
            raise SiteUnavailable("sbatch: Socket timed out")
        return job_id

    def _reach(self, order: LaunchOrder) -> int:
        return self._cluster.take_in(order.attempt, order.user, order.jobs, order.time_limit_s)

    # ---- all else ----

    async def notify(self, order: PreemptOrder, deadline_s: float) -> None:  # noqa: ARG002
        self._process.point("tell before")
        await self._ask()
        self._cluster.notify(self._running(order.site_job_id))
        self._process.point("tell after")

    async def signal(self, user: str, job_id: int, name: str, to: SignalTo) -> None:  # noqa: ARG002
        await self._ask()
        self._process.check()
        job = self._running(job_id)
        if name == "KILL":
            self._cluster.kill_job(job)
        else:
            self._cluster.notify(job)

    def _running(self, job_id: int) -> SimulatedJob:
        job = self._cluster.jobs.get(job_id)
        if job is None or job.state is not SiteJobState.RUNNING:
            raise SiteRefused(f"job {job_id} does not run")
        return job

    async def kill_wait_s(self) -> float:
        await self._ask()
        return 3.0

    async def inspect(self, user: str, orders: Sequence[LaunchOrder]) -> list[str]:  # noqa: ARG002
        return [""] * len(orders)

    async def tidy(self, user: str, order: Tidying) -> Removal:  # noqa: ARG002
        return Removal()

    async def read_checkpoint_status(
        self,
        user: str,  # noqa: ARG002
        orders: Sequence[PreemptOrder],
    ) -> list[CheckpointStatus]:
        await self._ask()
        return [CheckpointStatus() for _ in orders]

    async def cancel(self, user: str, job_id: int, *, pending_only: bool) -> bool:
        self._process.point("scancel before")
        await self._ask()
        self._process.check()
        job = self._cluster.jobs.get(job_id)
        if job is not None and job.user != user:
            raise SiteRefused(f"job {job_id} belongs to another user")
        if job_id in self._cluster.nameless:
            raise SiteRefused(f"job {job_id} is not of the federation")
        if self._cluster.refuses_cancels:
            self._say("scancel fails")
        done = self._cluster.cancel(job_id, pending_only=pending_only)
        self._process.point("scancel after")
        return done

    # ---- nobody verifies a simulated site ----

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

    async def is_loose(self, user: str) -> bool:  # noqa: ARG002
        raise SiteUnavailable("not simulated")
