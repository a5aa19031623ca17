"""Routers choose a job's site: MAST, and three others that decide with less, or more.

All run the same ``Federation`` and ``SiteScheduler`` under the same rules and physics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Final

from federator.model.workload import Job, SiteName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.sim.experiments.local_queue import LocalQueueFleet
from federator.sim.experiments.slo import Lived, gpus_of, together
from federator.sim.fleet import Fleet
from federator.sim.physics import Physics
from federator.sim.scenario import FleetSample, JobTrace, Scenario, SimulatedSite
from federator.sim.trace import ReplayOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Premise:
    """What every router is given.

    ``rules.preempt_gpus`` is the budget of all sites together.
    """

    scenario: Scenario
    rules: Rules
    physics: Physics
    options: ReplayOptions


Router = Callable[[Premise], Lived]


def mast(given: Premise) -> Lived:
    """One queue; every site bids for what can start now, and the best bid wins."""
    fleet = Fleet(given.scenario, Mast(), given.rules, given.physics, given.options)
    return Lived(lives=fleet.run(), moments=fleet.moments)


def local_allocation(given: Premise) -> Lived:
    """One queue that counts free GPUs; sites place what they are sent, or queue it."""
    fleet = LocalQueueFleet(given.scenario, Mast(), given.rules, given.physics, given.options)
    return Lived(lives=fleet.run(), moments=fleet.moments)


def ideal(given: Premise) -> Lived:
    """All nodes are one site: no border is in the way. An upper bound, not a system."""
    scenario = given.scenario
    nodes = tuple(node for site in scenario.sites for node in site.nodes)
    above = {leaf: up for site in scenario.sites for leaf, up in site.switches.items()}
    whole = SimulatedSite(name=SiteName("all"), nodes=nodes, switches=above)
    tenants = tuple(replace(tenant, home=()) for tenant in scenario.tenants)
    one = replace(scenario, sites=(whole,), tenants=tenants)
    fleet = Fleet(one, Mast(), given.rules, given.physics, given.options)
    return Lived(lives=fleet.run(), moments=fleet.moments)


def federated(given: Premise) -> Lived:
    """Each workload is bound when it comes; then every site has a federation of its own.

    Every site knows every tenant's whole quota, and has its part of the eviction budget by GPUs.
    """
    scenario, bound = given.scenario, bindings(given.scenario)
    total = sum(site.gpus for site in scenario.sites)
    lives: list[JobTrace] = [JobTrace() for _ in bound]
    moments: list[list[FleetSample]] = []
    for site in scenario.sites:
        rows = [k for k, name in enumerate(bound) if name == site.name]
        own = replace(scenario, sites=(site,), arrivals=tuple(scenario.arrivals[k] for k in rows))
        budget_gpus = given.rules.preempt_gpus * site.gpus / total
        rules = replace(given.rules, preempt_gpus=budget_gpus)
        fleet = Fleet(own, Mast(), rules, given.physics, given.options)
        for k, life in zip(rows, fleet.run(), strict=True):
            lives[k] = life
        moments.append(fleet.moments)
    return Lived(lives=lives, moments=together(moments), bound=bound)


ROUTERS: Final[Mapping[str, Router]] = MappingProxyType(
    {
        "mast": mast,
        "federated": federated,
        "local allocation": local_allocation,
        "ideal": ideal,
    }
)


def bindings(scenario: Scenario) -> list[SiteName]:
    """For each arrival the site with the lowest demand / supply, of those that could ever hold it.

    Demand is the GPUs of what was bound before and is not over, with this workload; supply is those
    of the types that it may use. When something is over is reckoned with a queue of each site's own
    that counts GPUs, serves in order of arrival, and passes over what does not fit; real run times
    are known to it. Ties go to the site named first.

    Source:
        MAST sec. 5.6: "dispatches a workload to the region with the lowest demand over supply rate
        of the required GPU type". How demand is known is not said.
    """
    counters = [_Counter(site) for site in scenario.sites]
    found = []
    for arrival in scenario.arrivals:
        gpus, jobs = gpus_of(arrival), arrival.draft.jobs
        for counter in counters:
            counter.pass_to(arrival.at_s)
        able = [c for c in counters if c.supply(jobs) >= gpus] or counters
        chosen = min(able, key=lambda c: (c.demand + gpus) / max(1, c.supply(jobs)))
        chosen.add(arrival.at_s, gpus, arrival.duration_s)
        found.append(chosen.site.name)
    return found


class _Counter:
    """A site as a counter of GPUs with a queue."""

    def __init__(self, site: SimulatedSite) -> None:
        self.site, self.free, self.demand = site, site.gpus, 0
        self._waiting: list[tuple[int, float]] = []
        self._ends: list[tuple[float, int]] = []

    def supply(self, jobs: tuple[Job, ...]) -> int:
        """GPUs of the types that any of the jobs may use."""
        types = {kind for job in jobs for kind in job.gpu_types}
        return sum(n.gpus for n in self.site.nodes if not types or n.gpu_type in types)

    def add(self, now_s: float, gpus: int, duration_s: float) -> None:
        self.demand += gpus
        self._waiting.append((gpus, duration_s))
        self._serve(now_s)

    def pass_to(self, now_s: float) -> None:
        while self._ends and self._ends[0][0] <= now_s:
            at_s, gpus = heappop(self._ends)
            self.free += gpus
            self.demand -= gpus
            self._serve(at_s)

    def _serve(self, now_s: float) -> None:
        left = []
        for gpus, duration_s in self._waiting:
            if gpus <= self.free:
                self.free -= gpus
                heappush(self._ends, (now_s + duration_s, gpus))
            else:
                left.append((gpus, duration_s))
        self._waiting = left
