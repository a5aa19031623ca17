"""What does a site bid for a shape, as it is now? Found once, and kept until the site changes.

The answers are those of ``SiteScheduler.bid``: each request as if all bids made before had won.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from federator.sched.bidding import RETRIED
from federator.sim.fast.asked import AskedShape
from federator.sim.fast.choice import fewest_nodes, locality_cost, one_node, spread
from federator.sim.fast.nodes import PoolNodes, RackState, Remembered, rack_key
from federator.sim.fast.shared_mix import RackKey, SharedMix, Weights
from federator.sim.fleet import NODES_PER_RACK
from federator.sim.trace import TracePool


@dataclass(frozen=True, slots=True, eq=False)
class FlatPlan:
    """Nodes for one job, by number, and what they give."""

    nodes: list[int]
    shares: list[int]


@dataclass(slots=True, eq=False)
class FlatBid:
    """A plan and the terms of its score that may differ between sites.

    ``changes`` has, for each of its racks, the GPUs left without CPUs, and what is of use in the
    rack after and before.
    """

    plan: FlatPlan
    racks: int
    locality_cost: float
    changes: list[tuple[int, RackKey, RackKey]]
    fragmentation: float = 0.0
    epoch: int = -1  # of the mix by which the fragmentation was weighed

    def weigh(self, weights: Weights, epoch: int) -> None:
        more = 0.0
        for starved, after, before in self.changes:
            more += starved + weights.stranded(after) - weights.stranded(before)
        self.fragmentation, self.epoch = more, epoch


UNASKED: Final = FlatBid(FlatPlan([], []), 0, 0.0, [])
"""Stands for a bid that nobody has asked for yet."""

KnownBids = dict[AskedShape, FlatBid | None]


class FlatSite:
    """One pool as a site.

    Args:
        pool: all of it free.
        rank: among the sites; the smaller wins a tie.
        mix: of the requests to all sites.
    """

    __slots__ = ("_all", "_base", "_epoch", "_held", "_mix", "_retried", "_weights",
                 "known", "nodes", "rank")  # fmt: skip

    def __init__(self, pool: TracePool, rank: int, mix: SharedMix) -> None:
        self.rank = rank
        self.nodes = PoolNodes(pool)
        self._all = pool.gpus
        self._mix = mix
        self.known: KnownBids = {}
        self._epoch = -1
        self._weights = mix.weights()
        self._held: list[FlatPlan] = []  # of the bids of this message
        self._base: tuple[KnownBids, list[Remembered]] | None = None  # before the first of them
        self._retried = 0

    # ---- bids ----

    def fits(self, shape: AskedShape) -> bool:
        """Tell whether there is room for it now."""
        if shape.spread:
            return self.nodes.reachable >= shape.gpus
        return self.nodes.levels >> shape.gpus != 0

    def bid(self, shape: AskedShape) -> FlatBid | None:
        """The bid, weighed as of now; None where there is no room."""
        found = self.known.get(shape, UNASKED)
        if found is UNASKED:
            found = self.known[shape] = self._make(shape) if self.fits(shape) else None
        if found is not None and found.epoch != self._mix.epoch:
            if self._epoch != self._mix.epoch:
                self.weigh_anew()
            found.weigh(self._weights, self._epoch)
        return found

    def is_held_back(self, shape: AskedShape, bid: FlatBid) -> bool:
        """Tell whether bids made before in this message are why this one is not better."""
        if not self._held or bid.racks == 1 or self._retried >= RETRIED:
            return False
        self._retried += 1
        alone = self._at_base(shape)
        return alone is not None and alone.locality_cost < bid.locality_cost

    def hold(self, plan: FlatPlan) -> None:
        """A bid of this message: nothing is offered twice."""
        if self._base is None:
            self._base = self.known, self.nodes.remembered()
        self._held.append(plan)
        self.take(plan)

    def close(self) -> None:
        """The message is answered: what was bid is taken back."""
        if self._base is None:
            return
        for plan in reversed(self._held):
            self.give_back(plan)
        self.known, remembered = self._base
        self.nodes.recall(remembered)
        self._base, self._held, self._retried = None, [], 0

    def take(self, plan: FlatPlan) -> None:
        for node, share in zip(plan.nodes, plan.shares, strict=True):
            self.nodes.change(node, -share, -1)
        self.known = {}

    def give_back(self, plan: FlatPlan) -> None:
        for node, share in zip(plan.nodes, plan.shares, strict=True):
            self.nodes.change(node, share, 1)
        self.known = {}

    # ---- weights ----

    @property
    def unweighed(self) -> bool:
        """Nothing has had a price here since the mix changed."""
        return self._epoch != self._mix.epoch

    def weigh_anew(self) -> None:
        self._weights, self._epoch = self._mix.weights(), self._mix.epoch

    def never_fits(self, shape: AskedShape) -> bool:
        """Tell whether not even the empty site could hold it."""
        return shape.gpus > (self._all if shape.spread else self.nodes.size)

    def prices_in_refusing(self, shape: AskedShape) -> bool:
        """Tell whether refusing it for now puts a price on something: on what would start instead.

        Source:
            ``sched.alternatives``: as much of a total as there is, or as many GPUs of a node as the
            freest has.
        """
        levels = self.nodes.levels
        if shape.spread:
            return levels >> 1 != 0
        best = max(self.nodes.free, default=0)
        return 0 < best < shape.gpus and levels >> best != 0

    # ---- plans ----

    def _make(self, shape: AskedShape) -> FlatBid:
        if shape.spread:
            nodes = fewest_nodes(self.nodes, shape.gpus)
            shares = spread(self.nodes, nodes, shape.gpus)
        else:
            node = one_node(self.nodes, shape.gpus)
            assert node is not None
            nodes, shares = [node], [shape.gpus]
        changes = self._changes(nodes, shares)
        cost = locality_cost(nodes, shares)
        return FlatBid(FlatPlan(nodes, shares), len(changes), cost, changes)

    def _changes(self, nodes: list[int], shares: list[int]) -> list[tuple[int, RackKey, RackKey]]:
        """As ``_stranded_more`` of ``sched.placement`` compares the racks of a plan."""
        by_rack: dict[int, list[tuple[int, int]]] = {}
        for node, share in zip(nodes, shares, strict=True):
            by_rack.setdefault(node // NODES_PER_RACK, []).append((node, share))
        return [self._change(self.nodes.racks[rack], taken) for rack, taken in by_rack.items()]

    def _change(
        self, rack: RackState, taken: list[tuple[int, int]]
    ) -> tuple[int, RackKey, RackKey]:
        site = self.nodes
        before = site.usable_in(rack)
        after, starved = list(before[1]), 0
        for node, share in taken:
            gpus, cpus = site.free[node], site.cpus[node]
            usable = site.usable_on(gpus, cpus)
            left = min(gpus - share, site.usable_on(gpus, cpus - 1))
            starved += usable - share - left
            if usable > 0:
                after.remove(usable)
            if left > 0:
                after.append(left)
        return starved, (before[0], rack_key(after)[1]), before

    def _at_base(self, shape: AskedShape) -> FlatBid | None:
        """The bid as if no other had been made in this message."""
        assert self._base is not None
        known, remembered = self._base
        if shape in known:
            return known[shape]
        here = self.known, self.nodes.remembered()
        for plan in self._held:
            self.give_back(plan)
        self.nodes.recall(remembered)
        known[shape] = alone = self._make(shape) if self.fits(shape) else None
        for plan in self._held:
            self.take(plan)
        self.known = here[0]
        self.nodes.recall(here[1])
        return alone
