"""A baseline whose global queue only counts free GPUs, while each site places what it gets.

The federation's own code, with sites that show it a mere counter for each type of GPU: the head of
the queue goes to the site with the most free GPUs, when enough are free there by count. There it
must be placed on the real nodes by the site's own ``SiteScheduler``; what does not fit waits
there, and cannot go elsewhere any more. Whenever something ends, the site tries all that wait, in
the order in which they came.

Source:
    MAST sec. 2 and 4.1: the alternative in which the global scheduler picks a cluster from its
    aggregate state and leaves the choice of machines to that cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import structs

from federator.model.plan import BidRequest
from federator.model.site import Node, SiteJobState
from federator.model.site_message import SiteAnswer, SiteClaim
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import SiteName
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.queue.policy import Policy
from federator.sched.state.rules import Rules
from federator.sim.attempts import SimulatedAttempts
from federator.sim.failures import Stage
from federator.sim.fleet import Fleet
from federator.sim.job_records import JobRecords
from federator.sim.physics import Physics
from federator.sim.scenario import Scenario, SimulatedSite
from federator.sim.site_state import SimulatedAttempt
from federator.sim.trace import ReplayOptions

_NO_LEASE_S = 1e12  # what waits at a site is not taken back


class CountingScheduler(SiteScheduler):
    """Bids by counts; the site with the most free GPUs has the best score."""

    def bid(
        self,
        requests: Iterable[BidRequest],
        now_s: float = 0.0,
        *,
        reserve: BidRequest | None = None,
        reserving: bool = False,
        claims: tuple[SiteClaim, ...] = (),
    ) -> tuple[SiteAnswer, ...]:
        free = sum(f.gpus for f in self._room.nodes)
        answers = super().bid(requests, now_s, reserve=reserve, reserving=reserving, claims=claims)
        return tuple(
            structs.replace(a, bid=replace(a.bid, score=a.bid.score._replace(fragmentation=-free)))
            if a.bid is not None
            else a
            for a in answers
        )


class QueuedAttempts(SimulatedAttempts):
    """Attempts that wait in their site's queue until they find room there.

    Args:
        stage, records, rules, physics, options: as of ``SimulatedAttempts``.
        real: the schedulers of the sites, with their real nodes.
    """

    def __init__(
        self,
        stage: Stage,
        records: JobRecords,
        rules: Rules,
        physics: Physics,
        options: ReplayOptions,
        real: Mapping[SiteName, SiteScheduler],
    ) -> None:
        super().__init__(stage, records, rules, physics, options)
        self._real = real
        self._queues: dict[SiteName, list[SimulatedAttempt]] = {name: [] for name in real}

    def _start(self, attempt: SimulatedAttempt) -> None:
        name = attempt.order.site
        if attempt not in self._queues[name]:
            self._queues[name].append(attempt)
            self._serve(name)

    def _gone(self, attempt: SimulatedAttempt, state: SiteJobState) -> None:
        name = attempt.order.site
        if attempt in self._queues[name]:
            self._queues[name].remove(attempt)
        self._real[name].release(attempt.order.attempt)
        super()._gone(attempt, state)
        self._serve(name)

    def _serve(self, name: SiteName) -> None:
        for attempt in tuple(self._queues[name]):
            if attempt in self._queues[name] and self._placed(attempt):
                self._queues[name].remove(attempt)
                super()._start(attempt)

    def _placed(self, attempt: SimulatedAttempt) -> bool:
        order = attempt.order
        scheduler = self._real[order.site]
        asked = BidRequest.of(order.workload, LOWEST_PRIORITY)
        (answer,) = scheduler.bid((asked,), self._stage.now_s)
        if answer.bid is None:
            return False
        scheduler.hold(order.attempt, answer.bid.jobs)
        return True


class LocalQueueFleet(Fleet):
    """A fleet whose sites queue. Its jobs are of one node, or of a total of GPUs.

    Args:
        scenario: with the real nodes.
        policy: ranks the global queue.
        rules: of the federation; there is no launch lease.
        physics: of the sites.
        options: of the replay.
    """

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy,
        rules: Rules,
        physics: Physics,
        options: ReplayOptions,
    ) -> None:
        counted = replace(scenario, sites=tuple(map(_counted, scenario.sites)))
        super().__init__(
            counted, policy, replace(rules, launch_lease_s=_NO_LEASE_S), physics, options
        )
        real: dict[SiteName, SiteScheduler] = {}
        for site in scenario.sites:
            shown = self.sites[site.name]
            counting = CountingScheduler(shown.site.partitions)
            counting.update(shown.site.nodes, ())
            shown.scheduler = counting
            real[site.name] = SiteScheduler(site.partitions)
            real[site.name].update(site.nodes, (), switches=site.switches)
        self._attempts = QueuedAttempts(self, self._records, rules, physics, options, real)


def _counted(site: SimulatedSite) -> SimulatedSite:
    """One node for each type of GPU, with all that the real ones have."""
    by_type: dict[str, list[Node]] = {}
    for node in site.nodes:
        by_type.setdefault(node.gpu_type, []).append(node)
    giants = tuple(
        replace(
            nodes[0],
            name=f"{site.name}-{kind or 'cpu'}",
            gpus=sum(n.gpus for n in nodes),
            cpus=sum(n.cpus for n in nodes),
            mem_mib=sum(n.mem_mib for n in nodes),
        )
        for kind, nodes in by_type.items()
    )
    return SimulatedSite(name=site.name, nodes=giants)
