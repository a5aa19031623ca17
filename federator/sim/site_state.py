"""The state of one simulated site: its jobs, and who waits for whom to leave.

The room is the ``SiteScheduler``'s own: a job is a hold from its launch to its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

from federator.model.message import LaunchAt
from federator.model.partition import PartitionSummary
from federator.model.plan import JobPlan
from federator.model.site import Leave, Node, NodeShare, NodeState, RunningJob
from federator.model.site_message import Ask, BidsMade
from federator.model.tenant import HIGHEST_PRIORITY
from federator.model.workload import AttemptId, WorkloadId
from federator.sched.bid.site_scheduler import SiteScheduler, summarise
from federator.sim.scenario import SimulatedSite


@dataclass(slots=True, kw_only=True)
class SimulatedAttempt:
    """One attempt at a site. Times are those of the simulation; -1: not yet."""

    order: LaunchAt
    waits_for: set[WorkloadId]  # victims that have not left yet
    site_job_id: int = 1
    started_at_s: float = -1.0
    works_from_s: float = -1.0  # when start-up and restoring are over
    speed: float = 1.0  # work done in a second; other than 1 of an elastic one of another size
    leaves_at_s: float = inf  # an evicted one
    leave: Leave | None = None  # how an evicted one leaves

    @property
    def gpus(self) -> int:
        return sum(share.gpus for share in shares_of(self.order.jobs).values())


@dataclass(slots=True)
class SiteState:
    """A site while a simulation runs.

    ``attempts`` are in the order of their launches.
    """

    site: SimulatedSite
    scheduler: SiteScheduler
    attempts: dict[AttemptId, SimulatedAttempt] = field(default_factory=dict)
    held_gpus: int = 0
    local_plans: dict[AttemptId, tuple[JobPlan, ...]] = field(default_factory=dict)  # that run
    down: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, site: SimulatedSite) -> SiteState:
        scheduler = SiteScheduler(site.partitions)
        scheduler.update(site.nodes, (), switches=site.switches, windows=site.windows)
        return cls(site, scheduler)

    @property
    def gpus(self) -> int:
        return self.site.gpus

    def answer(self, ask: Ask, now_s: float) -> BidsMade:
        """The bids for a question of the federation."""
        self.scheduler.rank(ask.victims)
        self.scheduler.expect(ask.predicted_ends, ask.prices, ask.cells)
        answers = self.scheduler.bid(
            ask.requests,
            now_s,
            reserve=ask.reserve,
            reserving=ask.reserving,
            claims=ask.claims,
        )
        freed = self.scheduler.freed
        return BidsMade(
            pass_id=ask.pass_id,
            answers=answers,
            freed=freed,
            keeps_claims=True,
            keeps_wishes=True,
            keeps_contiguous=True,
            keeps_data=True,
            keeps_outputs=True,
        )

    def take(self, order: LaunchAt) -> SimulatedAttempt:
        """Hold what is launched; its victims are named as long as they are here."""
        here = {a.order.workload.id for a in self.attempts.values()}
        waits_for = {id_ for id_ in order.victims if id_ in here}
        attempt = SimulatedAttempt(order=order, waits_for=waits_for)
        self.scheduler.hold(order.attempt, order.jobs, inf, tuple(order.victims))
        self.attempts[order.attempt] = attempt
        return attempt

    def start(self, attempt: SimulatedAttempt, now_s: float, *, tracked: bool) -> None:
        """From now on it runs.

        ``tracked``: the scheduler knows whom it may evict, and when who ends. It costs time.
        """
        order = attempt.order
        attempt.started_at_s = now_s
        self.held_gpus += attempt.gpus
        self.scheduler.cleared(order.attempt)  # its hold stays for as long as it runs
        if not tracked:
            return
        self.scheduler.started(
            RunningJob(
                id=order.workload.id,
                tenant=order.workload.tenant,
                priority=HIGHEST_PRIORITY,
                preemptible=False,  # until the federation tells
                started_at_s=now_s,
                nodes=shares_of(order.jobs),
                ends_by_s=now_s + order.workload.time_limit_s,
            )
        )

    def remove(self, attempt: AttemptId) -> list[SimulatedAttempt]:
        """It is gone; who waited for it alone can start now, unless a node of theirs is down."""
        gone = self.attempts.pop(attempt)
        self.scheduler.release(attempt)
        if gone.started_at_s >= 0:
            self.held_gpus -= gone.gpus
            self.scheduler.ended(attempt.workload)
        for other in self.attempts.values():
            other.waits_for.discard(attempt.workload)
        return self.can_start()

    def can_start(self) -> list[SimulatedAttempt]:
        """Those that have not, and wait neither for others to leave nor for a node."""
        return [
            a
            for a in self.attempts.values()
            if a.started_at_s < 0
            and not a.waits_for
            and self.down.isdisjoint(shares_of(a.order.jobs))
        ]

    def overused(self) -> str:
        """A node on which more runs than it has, or that is down and used; "" if there is none."""
        running = [a.order.jobs for a in self.attempts.values() if a.started_at_s >= 0]
        used = shares_of(plan for jobs in [*running, *self.local_plans.values()] for plan in jobs)
        for node in self.site.nodes:
            share = used.get(node.name)
            if share is not None and (
                share.gpus > node.gpus or share.cpus > node.cpus or node.name in self.down
            ):
                return node.name
        return ""

    def on_node(self, name: str) -> list[SimulatedAttempt]:
        """What runs there, or waits for others to leave it."""
        return [a for a in self.attempts.values() if name in shares_of(a.order.jobs)]

    def set_node(self, name: str, up: bool) -> None:
        """A node fails, and with it local users' jobs there; or it is back."""
        for key in [k for k, plans in self.local_plans.items() if name in plans[0].nodes]:
            self.give_locally(key)
        (self.down.discard if up else self.down.add)(name)
        nodes = (
            replace(node, state=NodeState.DOWN) if node.name in self.down else node
            for node in self.site.nodes
        )
        self.scheduler.update(nodes, ())

    def take_locally(self, key: AttemptId, gpus: int) -> bool:
        """A local job starts on the fullest node where it fits; False when there is none."""
        fits = [
            (free, at)
            for at, (node, free) in enumerate(self._free_gpus())
            if free >= gpus and node.cpus - node.cpus_alloc >= gpus
        ]
        if not fits:
            return False
        node = self.site.nodes[min(fits)[1]]
        share = NodeShare(gpus=gpus, cpus=gpus)
        plan = JobPlan(name="local", partition=node.partitions[0], nodes={node.name: share})
        self.scheduler.hold(key, (plan,))
        self.local_plans[key] = (plan,)
        return True

    def give_locally(self, key: AttemptId) -> None:
        """A local job has ended; nothing happens if its node had failed before."""
        if self.local_plans.pop(key, None) is not None:
            self.scheduler.release(key)

    def summary(self) -> tuple[PartitionSummary, ...]:
        """Enough for the daemon to see that something is free now which was not."""
        local = shares_of(plan for plans in self.local_plans.values() for plan in plans)
        held = self.held_gpus + sum(share.gpus for share in local.values())
        return tuple(
            PartitionSummary(
                partition=partition,
                gpu_type="",
                gpus=self.site.gpus,
                gpus_alloc=held,
                nodes_down=len(self.down),
            )
            for partition in self.site.partitions[:1]
        )

    def usage(self) -> tuple[PartitionSummary, ...]:
        """The same in full, with its idle nodes, as an agent tells it."""
        nodes = self.scheduler.snapshot(self.site.name, 0.0).nodes
        return summarise((_by_use(node) for node in nodes), self.site.partitions)

    def _free_gpus(self) -> Iterable[tuple[Node, int]]:
        now = self.scheduler.snapshot(self.site.name, 0.0).nodes
        for node in now:
            yield node, node.gpus - node.gpus_alloc if node.state.takes_jobs else -1


def _by_use(node: Node) -> Node:
    """A node in the state that Slurm would show."""
    if not node.state.takes_jobs:
        return node
    if not node.gpus_alloc and not node.cpus_alloc:
        return replace(node, state=NodeState.IDLE)
    full = node.gpus_alloc >= node.gpus
    return replace(node, state=NodeState.ALLOCATED if full else NodeState.MIXED)


def shares_of(jobs: Iterable[JobPlan]) -> dict[str, NodeShare]:
    """What the jobs of a workload hold on each node together."""
    shares: dict[str, NodeShare] = {}
    for plan in jobs:
        for name, share in plan.nodes.items():
            shares[name] = shares[name] + share if name in shares else share
    return shares
