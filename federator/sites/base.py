"""What must a site be able to do? The few acts that an agent needs of its Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from federator.model.site import AttemptReport, LocalJob, Node, RunningJob
from federator.sites.protocol import LaunchOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One look at a site. The jobs were read before the nodes, so that the nodes show them."""

    nodes: tuple[Node, ...]
    attempts: tuple[AttemptReport, ...]  # of the federation, live or ended not long ago
    running: tuple[RunningJob, ...] = ()  # of the federation
    local: tuple[LocalJob, ...] = ()  # everything else that runs on these nodes
    switches: Mapping[str, str] = field(default_factory=dict)  # the switch above each switch
    problems: tuple[str, ...] = ()  # records that could not be read
    nodes_complete: bool = True  # no node is among them


class SiteDriver(Protocol):
    """Slurm as an agent sees it.

    Every method raises ``SiteUnavailable`` when slurmctld does not answer.
    """

    async def version(self) -> str: ...

    async def sweep(self) -> Sweep: ...

    async def launch(self, order: LaunchOrder) -> int:
        """Submit an attempt, pinned, as the real user; return the (leader's) job id.

        Raises:
            SiteRefused: Slurm said no; there is no job.
        """
        ...

    async def cancel(self, user: str, job_id: int, *, pending_only: bool) -> bool:
        """End a job; with ``pending_only`` only if it has not started.

        Returns:
            False if Slurm has no such job (any more).

        Raises:
            SiteRefused: Slurm said no.
        """
        ...
