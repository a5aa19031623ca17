"""A site's bid for a shape, computed once and kept until the site changes.

The answers are those of ``SiteScheduler.bid``: each request as if all bids made before had won.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from federator.sched.bid.bids import RETRIED
from federator.sched.bid.score import on_grid
from federator.sim.fast.node_selection import fewest_nodes, locality_cost, one_node, spread
from federator.sim.fast.nodes import PoolNodes, RackState, rack_key
from federator.sim.fast.request_shape import AskedShape
from federator.sim.fast.shared_mix import RackKey, SharedMix, Weights
from federator.sim.trace import TracePool
from federator.sim.trace_scenario import NODES_PER_RACK


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
    gpus_unasked: int
    locality_cost: float
    changes: list[tuple[int, RackKey, RackKey]]
    fragmentation: float = 0.0
    epoch: int = -1  # of the mix by which the fragmentation was weighed

    def weigh(self, weights: Weights, epoch: int) -> None:
        more = 0.0
        for starved, after, before in self.changes:
            more += starved + weights.stranded(after) - weights.stranded(before)
        self.fragmentation, self.epoch = on_grid(more), epoch


STATES_KEPT: Final = 32_768  # of one site: states x nodes
UNASKED: Final = FlatBid(FlatPlan([], []), 0, 0, 0.0, [])
"""Stands for a bid that nobody has asked for yet."""

KnownBids = dict[AskedShape, FlatBid | None]


class FlatSite:
    """One pool as a site.

    Args:
        pool: all of it free.
        rank: among the sites; the smaller wins a tie.
        mix: of the requests to all sites.
    """

    __slots__ = (
        "_all",
        "_base",
        "_epoch",
        "_held",
        "_mix",
        "_retried",
        "_states",
        "_weights",
        "known",
        "nodes",
        "rank",
    )

    def __init__(self, pool: TracePool, rank: int, mix: SharedMix) -> None:
        self.rank = rank
        self.nodes = PoolNodes(pool)
        self.known: KnownBids = {}  # in the present state
        self._all = pool.gpus
        self._mix = mix
        self._epoch = -1
        self._weights = mix.weights()
        self._states = {self.nodes.state: self.known}  # it often comes back to one
        self._held: list[FlatPlan] = []  # of the bids of this message
        self._base: KnownBids = {}  # before the first of them
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
        if not self._held:
            self._base = self.known
        self._held.append(plan)
        self.take(plan)

    def close(self) -> None:
        """The message is answered: what was bid is taken back."""
        self._move(self._held, 1)
        self.known = self._base
        self._held, self._retried = [], 0

    def take(self, plan: FlatPlan) -> None:
        self._move((plan,), -1)
        self._recall()

    def give_back(self, plan: FlatPlan) -> None:
        self._move((plan,), 1)
        self._recall()

    def _move(self, plans: Iterable[FlatPlan], sign: int) -> None:
        change = self.nodes.change
        for plan in plans:
            for node, share in zip(plan.nodes, plan.shares, strict=True):
                change(node, sign * share, sign)

    def _recall(self) -> None:
        """What was found out when the same was free on every node."""
        known = self._states.get(self.nodes.state)
        if known is None:
            if len(self._states) >= max(1, STATES_KEPT // len(self.nodes.free)):
                self._states.clear()
            known = self._states[self.nodes.state] = {}
        self.known = known

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
            ``sched.bid.alternatives``: as much of a total as there is, or as many GPUs of a node as
            the freest has.
        """
        levels = self.nodes.levels
        if shape.spread or levels < 2:
            return levels >= 2
        best = max(self.nodes.free)
        return best < shape.gpus and levels >> best != 0

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
        unasked = 0 if shape.gpus else sum([self.nodes.free[node] for node in nodes])
        return FlatBid(FlatPlan(nodes, shares), len(changes), unasked, cost, changes)

    def _changes(self, nodes: list[int], shares: list[int]) -> list[tuple[int, RackKey, RackKey]]:
        """As ``_stranded_more`` of ``sched.bid.score`` compares the racks of a plan."""
        by_rack: dict[int, list[tuple[int, int]]] = {}
        for node, share in zip(nodes, shares, strict=True):
            by_rack.setdefault(node // NODES_PER_RACK, []).append((node, share))
        return [self._change(self.nodes.racks[rack], taken) for rack, taken in by_rack.items()]

    def _change(
        self, rack: RackState, taken: list[tuple[int, int]]
    ) -> tuple[int, RackKey, RackKey]:
        site = self.nodes
        before = site.usable_in(rack)
        after, starved = site.usable[rack.first : rack.stop], 0
        for node, share in taken:
            gpus, usable = site.free[node] - share, site.usable[node]
            left = site.usable_on(gpus, site.cpus[node] - 1)
            starved += usable - share - left
            after[node - rack.first] = left
        return starved, rack_key(after), before

    def _at_base(self, shape: AskedShape) -> FlatBid | None:
        """The bid as if no other had been made in this message."""
        if shape not in self._base:
            self._move(self._held, 1)
            self._base[shape] = self._make(shape) if self.fits(shape) else None
            self._move(self._held, -1)
        return self._base[shape]
