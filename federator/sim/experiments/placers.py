"""Places jobs on nodes: by the federation's own code, and by plain rules to compare it with.

A job of at most a node's GPUs takes a part of one node; a larger one takes whole nodes of one site.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final, Protocol

from federator.model.plan import Bid, BidRequest
from federator.model.site import Node
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import AttemptId, Job, WorkloadId
from federator.sched.bid.site_scheduler import SiteScheduler

NODE_GPUS: Final = 8
_PARTITION: Final = "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sites that are alike: racks of nodes with eight GPUs. A node is a number from 0."""

    sites: int
    racks: int  # of a site
    nodes: int  # of a rack

    @property
    def site_nodes(self) -> int:
        return self.racks * self.nodes

    @property
    def gpus(self) -> int:
        return self.sites * self.site_nodes * NODE_GPUS

    def nodes_of(self, site: int) -> range:
        return range(site * self.site_nodes, (site + 1) * self.site_nodes)

    def rack_of(self, node: int) -> int:
        return node // self.nodes


class Placer(Protocol):
    """Chooses nodes; what is free is kept by who asks."""

    def place(self, job: int, gpus: int, free: Sequence[int]) -> list[int] | None:
        """Nodes for a job, each giving the same part; None if it does not fit.

        Args:
            job: its number.
            gpus: that it asks for.
            free: GPUs of each node.
        """
        ...

    def release(self, job: int) -> None:
        """It has ended."""
        ...


Choice = Callable[[Sequence[int], Sequence[int]], int]  # of the nodes that fit, and what is free


@dataclass(frozen=True, slots=True)
class RulePlacer:
    """Plain rules.

    Attributes:
        layout: of the fleet.
        part: which node a part of a node is taken from, of those where it fits.
        site: which site whole nodes are taken from: of those that have enough, by their whole free
            nodes.
        order: how a site's whole free nodes are arranged when the first so many are taken.
    """

    layout: Layout
    part: Choice
    site: Choice
    order: Callable[[list[int], int], list[int]] = lambda nodes, _: nodes

    def place(self, job: int, gpus: int, free: Sequence[int]) -> list[int] | None:  # noqa: ARG002
        if gpus <= NODE_GPUS:
            fitting = [node for node, count in enumerate(free) if count >= gpus]
            return [self.part(fitting, free)] if fitting else None
        count, sites = gpus // NODE_GPUS, range(self.layout.sites)
        whole = [[n for n in self.layout.nodes_of(s) if free[n] == NODE_GPUS] for s in sites]
        fitting = [s for s in sites if len(whole[s]) >= count]
        if not fitting:
            return None
        return self.order(whole[self.site(fitting, list(map(len, whole)))], count)[:count]

    def release(self, job: int) -> None:
        """Nothing is kept."""


def _first(fitting: Sequence[int], _: Sequence[int]) -> int:
    return fitting[0]


def _tightest(fitting: Sequence[int], free: Sequence[int]) -> int:
    return min(fitting, key=free.__getitem__)


def first_fit(layout: Layout, _: Random) -> Placer:
    """The first node, or site, that has enough."""
    return RulePlacer(layout, _first, _first)


def best_fit(layout: Layout, _: Random) -> Placer:
    """The node, or site, that has least more than enough, as ``NodeSpace`` does; then the first."""
    return RulePlacer(layout, _tightest, _tightest)


def rack_fit(layout: Layout, _: Random) -> Placer:
    """As ``best_fit``, and then the tightest rack; a gang in one rack wherever one has enough."""

    def tightest(fitting: Sequence[int], free: Sequence[int]) -> int:
        racks = [0] * (layout.sites * layout.racks)
        for node, gpus in enumerate(free):
            racks[layout.rack_of(node)] += gpus
        return min(fitting, key=lambda node: (free[node], racks[layout.rack_of(node)]))

    def by_rack(nodes: list[int], count: int) -> list[int]:
        size = Counter(map(layout.rack_of, nodes))
        enough = min((n for n in size.values() if n >= count), default=max(size.values()))
        return sorted(
            nodes,
            key=lambda n: (size[layout.rack_of(n)] != enough, -size[layout.rack_of(n)], n),
        )

    return RulePlacer(layout, tightest, _tightest, by_rack)


def random_fit(layout: Layout, draw: Random) -> Placer:
    """Any that has enough."""

    def any_of(fitting: Sequence[int], _: Sequence[int]) -> int:
        return draw.choice(fitting)

    return RulePlacer(layout, any_of, any_of, lambda nodes, _: draw.sample(nodes, len(nodes)))


class FederationPlacer:
    """``SiteScheduler`` of every site bids, and the smallest score wins, then the first site.

    Args:
        layout: of the fleet.
        weighed: whether the score's fragmentation term counts when bids are compared.
        cells: whether jobs break the smallest cells that hold them (``policy.cells``).
    """

    def __init__(self, layout: Layout, *, weighed: bool = True, cells: bool = False) -> None:
        self._weighed = weighed
        self._number = {str(n): n for n in range(layout.sites * layout.site_nodes)}
        self._sites = [SiteScheduler((_PARTITION,)) for _ in range(layout.sites)]
        self._held: dict[int, SiteScheduler] = {}
        for site, scheduler in enumerate(self._sites):
            scheduler.update([_node(layout, n) for n in layout.nodes_of(site)], ())
            scheduler.expect({}, cells=cells)

    def place(self, job: int, gpus: int, free: Sequence[int]) -> list[int] | None:  # noqa: ARG002
        nodes = max(1, gpus // NODE_GPUS)
        wanted = Job(name="job", nodes=nodes, gpus_per_node=gpus // nodes)
        asked = BidRequest(
            id=WorkloadId(job),
            tenant="",
            user="",
            priority=LOWEST_PRIORITY,
            jobs=(wanted,),
            time_limit_s=inf,
        )
        bids = [
            (bid.score if self._weighed else bid.score._replace(fragmentation=0.0), at, bid)
            for at, scheduler in enumerate(self._sites)
            if (bid := _bid(scheduler, asked)) is not None
        ]
        if not bids:
            return None
        _, at, bid = min(bids, key=lambda found: found[:2])
        self._sites[at].hold(_attempt(job), bid.jobs)
        self._held[job] = self._sites[at]
        return [self._number[name] for name in bid.jobs[0].nodes]

    def release(self, job: int) -> None:
        self._held.pop(job).release(_attempt(job))


def federation(layout: Layout, _: Random) -> Placer:
    """As the daemon would."""
    return FederationPlacer(layout)


def in_cells(layout: Layout, _: Random) -> Placer:
    """As the daemon would with ``policy.cells``."""
    return FederationPlacer(layout, cells=True)


def unweighed(layout: Layout, _: Random) -> Placer:
    """As the daemon would if the score had no fragmentation term."""
    return FederationPlacer(layout, weighed=False)


def _bid(scheduler: SiteScheduler, asked: BidRequest) -> Bid | None:
    (answer,) = scheduler.bid((asked,))
    return answer.bid


def _attempt(job: int) -> AttemptId:
    return AttemptId(workload=WorkloadId(job), attempt=1)


def _node(layout: Layout, number: int) -> Node:
    return Node(
        name=str(number),
        partitions=(_PARTITION,),
        switch=f"r{layout.rack_of(number)}",
        cpus=2 * NODE_GPUS,
        gpus=NODE_GPUS,
        gpu_type="gpu",
    )
