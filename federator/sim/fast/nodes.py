"""The free GPUs on the nodes of one pool, summed up for each of its racks.

Every node of a pool is alike. A rack remembers what was found out about it until one of its nodes
changes, so that a question costs what has changed since.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from federator.sim.fast.shared_mix import RackKey
from federator.sim.trace import TracePool
from federator.sim.trace_scenario import NODES_PER_RACK, nodes_of

Tightest = tuple[int, int, int, int, int]
"""Of the nodes of a rack with so many GPUs: the fewest free on one of them, the GPUs free on all,
how many they are, where the name of the first stands, and the tightest of them."""


@dataclass(slots=True)
class RackState:
    """Neighbouring nodes; what is remembered of them holds until one changes.

    Attributes:
        first: number of its first node.
        stop: number behind its last.
        name_rank: where its name stands among those of the pool, sorted.
        tightest: by GPUs wanted on one node.
        usable: GPUs of use on its nodes.
        freest: nodes with GPUs free, the freest first, and their sum.
    """

    first: int
    stop: int
    name_rank: int
    tightest: dict[int, Tightest | None] = field(default_factory=dict)
    usable: RackKey | None = None
    freest: tuple[list[int], int] | None = None


class PoolNodes:
    """Free GPUs and CPUs by node number, and whatever follows from them.

    Attributes:
        free: GPUs.
        open: GPUs that are free beside a free CPU; -1 where no CPU is.
        usable: free GPUs that have their part of the node's CPUs.
        levels: bit g is set where a node with a free CPU has g GPUs free.
        reachable: sum of the GPUs of such nodes.
        state: a number that stands for what is free on each node, and for nothing else.
    """

    def __init__(self, pool: TracePool) -> None:
        nodes = nodes_of(pool)
        self.size = pool.gpus_per_node
        self._node_cpus = nodes[0].cpus if nodes else 1
        self.free = [node.gpus for node in nodes]
        self.cpus = [node.cpus for node in nodes]
        self.name_rank = _ranks([node.name for node in nodes])
        starts = range(0, len(nodes), NODES_PER_RACK)
        rack_rank = _ranks([nodes[k].switch for k in starts])
        self.racks = [
            RackState(first, min(first + NODES_PER_RACK, len(nodes)), rank)
            for first, rank in zip(starts, rack_rank, strict=True)
        ]
        self.open, self.usable = self.free[:], self.free[:]
        self.levels = 1 << self.size if nodes else 0
        self.reachable = pool.gpus
        self.state = 0  # less what is taken
        self._nodes_at = [0] * self.size + [len(nodes)]  # by free GPUs beside a free CPU
        self._state_bits = ((self.size + 1) * (self._node_cpus + 1)).bit_length()

    def change(self, node: int, gpus: int, cpus: int) -> None:
        """So much more is free on a node (negative: less)."""
        nodes_at, before = self._nodes_at, self.open[node]
        if before >= 0:
            self.reachable -= before
            nodes_at[before] -= 1
            if not nodes_at[before]:
                self.levels ^= 1 << before
        free = self.free[node] = self.free[node] + gpus
        left_cpus = self.cpus[node] = self.cpus[node] + cpus
        self.usable[node] = self.usable_on(free, left_cpus)
        if left_cpus > 0:
            self.reachable += free
            nodes_at[free] += 1
            self.levels |= 1 << free
        self.open[node] = free if left_cpus > 0 else -1
        self.state -= (gpus * (self._node_cpus + 1) + cpus) << (self._state_bits * node)
        rack = self.racks[node // NODES_PER_RACK]
        rack.tightest, rack.usable, rack.freest = {}, None, None

    def starved(self) -> bool:
        """Tell whether a node has GPUs free and no CPU for them."""
        return any(gpus and not cpus for gpus, cpus in zip(self.free, self.cpus, strict=True))

    def usable_on(self, gpus: int, cpus: int) -> int:
        """Free GPUs that have their part of the node's CPUs."""
        with_cpus = cpus * self.size // self._node_cpus
        return gpus if gpus <= with_cpus else with_cpus

    def tightness(self, node: int) -> tuple[int, int, int]:
        return self.free[node], self.cpus[node], self.name_rank[node]

    def freeness(self, node: int) -> tuple[int, int, int]:
        return -self.free[node], -self.cpus[node], self.name_rank[node]

    def fitting(self, rack: RackState, gpus: int) -> list[int]:
        """Nodes of a rack with a free CPU and so many free GPUs."""
        first = rack.first
        return [k for k, free in enumerate(self.open[first : rack.stop], first) if free >= gpus]

    def usable_in(self, rack: RackState) -> RackKey:
        """What of a rack is of use, on each node."""
        if rack.usable is None:
            rack.usable = rack_key(self.usable[rack.first : rack.stop])
        return rack.usable

    def tightest_in(self, rack: RackState, gpus: int) -> Tightest | None:
        """See ``RackState.tightest``; None where no node has so many."""
        known = rack.tightest
        if gpus not in known:
            found = self.fitting(rack, gpus)
            known[gpus] = self._tightest_of(found) if found else None
        return known[gpus]

    def _tightest_of(self, fitting: list[int]) -> Tightest:
        node = fitting[0] if len(fitting) == 1 else min(fitting, key=self.tightness)
        free_gpus = sum([self.free[k] for k in fitting])
        return self.free[node], free_gpus, len(fitting), self.name_rank[fitting[0]], node

    def freest_in(self, rack: RackState) -> tuple[list[int], int]:
        """See ``RackState.freest``."""
        if rack.freest is None:
            found = self.fitting(rack, 1)
            found.sort(key=self.freeness)
            rack.freest = found, sum([self.free[k] for k in found])
        return rack.freest


def rack_key(usable: list[int]) -> RackKey:
    """The same whichever node has which; it sorts what it is given."""
    usable.sort()
    return len(usable), tuple(usable[bisect_right(usable, 0) :])


def _ranks(names: list[str]) -> list[int]:
    """Where each of some names stands when they are sorted."""
    ranks = [0] * len(names)
    for rank, k in enumerate(sorted(range(len(names)), key=names.__getitem__)):
        ranks[k] = rank
    return ranks
