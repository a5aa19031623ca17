"""The slurmctld and the accounts that an agent's process asks: slow, or down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from federator.agent.base import Missing
from federator.errors import SiteUnavailable
from federator.faults.cluster import Cluster
from federator.faults.process import Process
from federator.faults.spell import Spell
from federator.model.site import AttemptReport
from federator.model.workload import AttemptId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob

ASKING_S: Final = 0.02
GIVES_UP_S: Final = 2.0


class Slurmctld:
    """Answers, or does not.

    Args:
        spell: the faults that strike it.
        process: the agent's.
        tell: notes what struck.
    """

    def __init__(self, spell: Spell, process: Process, tell: Callable[[str], None]) -> None:
        self._spell = spell
        self.process = process
        self._tell = tell

    async def ask(self) -> None:
        """Let the time of a question pass.

        Raises:
            SiteUnavailable: it is down.
        """
        self.process.check()
        await asyncio.sleep(ASKING_S)
        if self._spell.down:
            self._spell.say_once("slurmctld down", self._tell)
            await asyncio.sleep(GIVES_UP_S)
            raise SiteUnavailable("slurmctld does not answer")


class SimulatedAccounts:
    """The ``SiteAccounts`` of a simulated site: the records of slurmdbd, where there is one.

    Args:
        cluster: the Slurm.
        slurmctld: must answer as well.
    """

    def __init__(self, cluster: Cluster, slurmctld: Slurmctld) -> None:
        self._cluster = cluster
        self._slurmctld = slurmctld

    async def ends_of(self, missing: Collection[Missing]) -> Mapping[AttemptId, AttemptReport]:
        await self._slurmctld.ask()
        self._slurmctld.process.check()
        return self._cluster.accounted(missing)

    async def use_of(self, jobs: Sequence[EndedJob]) -> list[MeasuredUse | None]:
        """Nothing: what jobs use decides nothing."""
        return [None] * len(jobs)
