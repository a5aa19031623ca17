"""The world as a fault finds it: what it may strike, its random choices, and its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from federator.faults.process import later
from federator.faults.site_host import SiteHost
from federator.faults.slurm import SimulatedJob
from federator.faults.world import World


@dataclass(slots=True, eq=False)
class FaultScene:
    """One history's world, for those who inject faults into it."""

    world: World
    over: bool = False  # nothing fails any more

    def site(self) -> SiteHost:
        """Any of the sites."""
        return self.world.rng.choice(list(self.world.sites.values()))

    def node_of(self, site: SiteHost) -> str:
        """The name of any of its nodes."""
        return self.world.rng.choice([node.name for node in site.cluster.nodes()])

    def undo_within(self, least_s: float, most_s: float, undo: Callable[[], object]) -> None:
        """Have a fault end at some time between these two."""
        self.at(self.world.rng.uniform(least_s, most_s), undo)

    def at(self, in_s: float, act: Callable[[], object]) -> None:
        """Have something done then, unless nothing fails any more: all is undone by then."""
        later(in_s, self._do, act)

    def _do(self, act: Callable[[], object]) -> None:
        if not self.over:
            act()


Inject = Callable[[FaultScene], bool | None]
"""Injects one fault.

Returns:
    True if it struck something at once. One that strikes later says so then: it calls
    ``World.strike``, or a part of the world notes it (``world.NOTED``).
"""


def het_jobs_at_work(site: SiteHost) -> list[SimulatedJob]:
    """The site's jobs of the federation that run, with more than one component."""
    return [job for job in site.cluster.at_work() if len(job.jobs) > 1]
