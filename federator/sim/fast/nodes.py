"""What is free on the nodes of one pool, and what of that is known of each of its racks?

Every node of a pool is alike. A rack remembers what was found out about it until one of its nodes
changes, so that a question costs what has changed since.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from federator.sim.fast.shared_mix import RackKey
from federator.sim.fleet import NODES_PER_RACK, nodes_of
from federator.sim.trace import TracePool


@dataclass(slots=True)
class RackState:
    """Neighbouring nodes; what is remembered of them holds until one changes.

    Attributes:
        first: number of its first node.
        stop: number behind its last.
        name_rank: where its name stands among those of the pool, sorted.
        one_node: for so many GPUs: GPUs free on the nodes that have them, how many those are, the
            ``name_rank`` of the first, and the tightest.
        usable: GPUs of use on its nodes.
        freest: nodes with any, the freest first, and their sum.
    """

    first: int
    stop: int
    name_rank: int
    one_node: dict[int, tuple[int, int, int, int] | None] = field(default_factory=dict)
    usable: RackKey | None = None
    freest: tuple[list[int], int] | None = None


Remembered = tuple[
    dict[int, tuple[int, int, int, int] | None], RackKey | None, tuple[list[int], int] | None
]


class PoolNodes:
    """Free GPUs and CPUs by node number, and whatever follows from them.

    ``levels`` has bit g where a node with a free CPU has g GPUs free; ``reachable`` is the sum of
    the GPUs of such nodes.
    """

    def __init__(self, pool: TracePool) -> None:
        nodes = nodes_of(pool)
        self.size = pool.gpus_per_node
        self.node_cpus = nodes[0].cpus if nodes else 1
        self.free = [node.gpus for node in nodes]
        self.cpus = [node.cpus for node in nodes]
        self.name_rank = _ranks([node.name for node in nodes])
        starts = range(0, len(nodes), NODES_PER_RACK)
        rack_rank = _ranks([nodes[k].switch for k in starts])
        self.racks = [
            RackState(first, min(first + NODES_PER_RACK, len(nodes)), rank)
            for first, rank in zip(starts, rack_rank, strict=True)
        ]
        self.levels, self.reachable = 0, 0
        self._count = [0] * (self.size + 1)  # of nodes with a free CPU, by free GPUs
        for k in range(len(nodes)):
            self._enter(k)

    def rack_of(self, node: int) -> RackState:
        return self.racks[node // NODES_PER_RACK]

    def change(self, node: int, gpus: int, cpus: int) -> None:
        """So much more is free on a node (negative: less)."""
        if self.cpus[node] > 0:
            free = self.free[node]
            self.reachable -= free
            self._count[free] -= 1
            if not self._count[free]:
                self.levels ^= 1 << free
        self.free[node] += gpus
        self.cpus[node] += cpus
        self._enter(node)
        rack = self.racks[node // NODES_PER_RACK]
        rack.one_node, rack.usable, rack.freest = {}, None, None

    def remembered(self) -> list[Remembered]:
        """What is known of each rack, to come back to."""
        return [(rack.one_node, rack.usable, rack.freest) for rack in self.racks]

    def recall(self, known: list[Remembered]) -> None:
        """The nodes are as they were then."""
        for rack, (one_node, usable, freest) in zip(self.racks, known, strict=True):
            rack.one_node, rack.usable, rack.freest = one_node, usable, freest

    def starved(self) -> bool:
        """Tell whether a node has GPUs free and no CPU for them."""
        return any(gpus and not cpus for gpus, cpus in zip(self.free, self.cpus, strict=True))

    def usable_on(self, gpus: int, cpus: int) -> int:
        """Free GPUs that have their part of the node's CPUs."""
        return min(gpus, cpus * self.size // self.node_cpus)

    def usable_in(self, rack: RackState) -> RackKey:
        """What of a rack is of use, on each node."""
        known = rack.usable
        if known is None:
            size, all_cpus = self.size, self.node_cpus
            found = [
                min(gpus, cpus * size // all_cpus)
                for gpus, cpus in zip(
                    self.free[rack.first : rack.stop], self.cpus[rack.first : rack.stop],
                    strict=True,
                )
            ]  # fmt: skip
            known = rack_key(found)
            rack.usable = known
        return known

    def tightness(self, node: int) -> tuple[int, int, int]:
        return self.free[node], self.cpus[node], self.name_rank[node]

    def fitting(self, rack: RackState, gpus: int) -> list[int]:
        """Nodes of a rack with a free CPU and so many free GPUs."""
        free, cpus = self.free, self.cpus
        return [k for k in range(rack.first, rack.stop) if free[k] >= gpus and cpus[k] > 0]

    def one_node_in(self, rack: RackState, gpus: int) -> tuple[int, int, int, int] | None:
        """See ``RackState.one_node``; None where no node has so many."""
        found = self.fitting(rack, gpus)
        if not found:
            return None
        free = self.free
        total = sum([free[k] for k in found])
        best = found[0] if len(found) == 1 else min(found, key=self.tightness)
        return total, len(found), self.name_rank[found[0]], best

    def freest_in(self, rack: RackState) -> tuple[list[int], int]:
        """See ``RackState.freest``."""
        if rack.freest is None:
            found = self.fitting(rack, 1)
            found.sort(key=self.freeness)
            rack.freest = found, sum([self.free[k] for k in found])
        return rack.freest

    def freeness(self, node: int) -> tuple[int, int, int]:
        return -self.free[node], -self.cpus[node], self.name_rank[node]

    def _enter(self, node: int) -> None:
        if self.cpus[node] > 0:
            free = self.free[node]
            self.reachable += free
            self._count[free] += 1
            self.levels |= 1 << free


def rack_key(usable: list[int]) -> RackKey:
    """Sorts what it is given."""
    nodes = len(usable)
    usable.sort()
    return nodes, tuple([gpus for gpus in usable if gpus > 0])


def _ranks(names: list[str]) -> list[int]:
    """Where each of some names stands when they are sorted."""
    ranks = [0] * len(names)
    for rank, k in enumerate(sorted(range(len(names)), key=names.__getitem__)):
        ranks[k] = rank
    return ranks
