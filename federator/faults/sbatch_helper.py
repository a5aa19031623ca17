"""The helper that calls sbatch for an agent, in a process of its own.

Once it was called it goes on whatever becomes of the agent. Its limits are those of
``slurm/site_exec.py``: called within 12 s or not at all, and ended after 30 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.agent.base import SbatchRefused
from federator.errors import SiteRefused, SiteUnavailable
from federator.faults.cluster import Cluster
from federator.faults.process import NOBODY, later
from federator.faults.spell import SbatchOutcome, Spell
from federator.slurm.helper_client import START_WITHIN_S
from federator.slurm.refusals import kind_of_refusal
from federator.wire.agent_protocol import LaunchOrder

SBATCH_ENDS_S: Final = 30.0  # after it was called (site_exec.TIMEOUT_S)
NO_QOS: Final = "sbatch: error: Batch job submission failed: Invalid qos specification"
TWICE_PINNED: Final = "sbatch: error: Batch job submission failed: Invalid node name specified"
BEYOND_S: Final = 60.0  # when the helper is long dead


@dataclass(frozen=True, slots=True, kw_only=True)
class SbatchHelper:
    """Calls sbatch at one site.

    Args:
        cluster: the Slurm.
        spell: its faults.
        tell: notes what struck.
        spool: where tickets lie; None: the partition is open.
    """

    cluster: Cluster
    spell: Spell
    tell: Callable[[str], None]
    spool: Path | None

    def latest_s(self) -> float:
        """The time by which sbatch is called, or not at all, of a request that is made now."""
        return self.cluster.clock() + START_WITHIN_S

    def call(self, order: LaunchOrder, ticket: str, start_by_s: float) -> asyncio.Future[int]:
        """Begin to submit an attempt; the answer is its job id, or why there is none."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        fate = self.spell.of_resizes.pop(order.attempt, None)
        if fate is None:
            fate, self.spell.fate = self.spell.fate, SbatchOutcome.WELL
        else:
            self.tell("sbatch of a resize fails")
        if fate is not SbatchOutcome.WELL:
            self.tell(f"sbatch {fate.value}")
        work = self._run(order, ticket, fate, start_by_s, answer)
        asyncio.get_running_loop().create_task(work, context=NOBODY.copy())
        return answer

    async def _run(
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
        if self.cluster.clock() > start_by_s:
            raise SiteRefused("too late: the site took too long to call sbatch")
        if fate is SbatchOutcome.SLOW:
            await asyncio.sleep(START_WITHIN_S - 1.0)
        waits_s = (
            SBATCH_ENDS_S - 1.0 if fate in (SbatchOutcome.SLOW, SbatchOutcome.REFUSED_LATE) else 0.1
        )
        await asyncio.sleep(waits_s)
        if self.spell.down:
            self.spell.say_once("slurmctld down", self.tell)
            raise SiteUnavailable("sbatch: Unable to contact slurm controller")
        if fate in (SbatchOutcome.REFUSED, SbatchOutcome.REFUSED_LATE):
            raise SiteRefused("sbatch: error: Batch job submission failed")
        if order.user in self.spell.refuses:
            self.spell.say_once("sbatch refuses for good", self.tell)
            self.cluster.witness.refused(self.cluster.name, order.attempt)
            raise SbatchRefused(NO_QOS, kind_of_refusal(NO_QOS))
        if fate is SbatchOutcome.NEVER_REACHED:
            raise SiteUnavailable("sbatch: Socket timed out")
        self._check_pins(order)
        self.cluster.witness.is_task(order.attempt, order.array_index)
        self._make_ready(order)
        if fate is SbatchOutcome.BEYOND:
            self.cluster.witness.beyond(order.attempt)
            later(BEYOND_S, self._reach, order)
            raise SiteUnavailable("sbatch: Socket timed out")
        if ticket and self.spool is not None and not (self.spool / "tickets" / ticket).exists():
            raise SiteRefused("refused: partition gpu takes jobs of the federation only")
        job_id = self._reach(order)
        if fate is SbatchOutcome.REPLY_LOST:
            raise SiteUnavailable("sbatch: Socket timed out")
        return job_id

    def _make_ready(self, order: LaunchOrder) -> None:
        """As the helper does before it calls sbatch."""
        if order.output is not None:
            assert self.cluster.disk is not None
            self.cluster.disk.make(order.output)

    def _reach(self, order: LaunchOrder) -> int:
        return self.cluster.take_in(
            order.attempt, order.user, order.jobs, order.time_limit_s, _spares(order)
        )

    def _check_pins(self, order: LaunchOrder) -> None:
        """As sbatch does: components of a het job are not pinned to the same node."""
        names = [name for plan in order.jobs for name in plan.nodes]
        if len(names) > len(set(names)):
            self.cluster.witness.misplaced(self.cluster.name, order.attempt)
            raise SiteRefused(TWICE_PINNED)


def _spares(order: LaunchOrder) -> int:
    """Its ``--fed-spare``; with it the site's sbatch is given ``--no-kill``."""
    asked = [o.value for part in order.submission.components for o in part if o.name == "fed-spare"]
    return int(asked[0] or 0) if asked else 0
