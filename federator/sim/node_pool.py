"""The free GPUs of a pool: nodes indexed by their free GPUs, or a mere counter.

What a job holds is a ``Held``: the nodes that it has wholly, the node of which it has a part, and
the GPUs of that part. A set of nodes is a whole number, bit k for node k, so the lowest node of a
set is one operation whatever the size of the pool.
"""

from __future__ import annotations

from typing import Protocol

from federator.sim.trace import ReplayOptions, TracePool

Held = tuple[int, int, int]


class Space(Protocol):
    """Room for jobs; what was taken is given back once."""

    def take(self, gpus: int) -> Held | None:
        """Hold GPUs for a job; None if it does not fit now, and then nothing changes."""
        ...

    def give(self, held: Held) -> None:
        """Free what a job held."""
        ...


class CountSpace:
    """A counter of GPUs: whatever is not used can be used."""

    __slots__ = ("free",)

    def __init__(self, gpus: int) -> None:
        self.free = gpus

    def take(self, gpus: int) -> Held | None:
        if gpus > self.free:
            return None
        self.free -= gpus
        return 0, 0, gpus

    def give(self, held: Held) -> None:
        self.free += held[2]


class NodeSpace:
    """Nodes of equal size.

    A job of at most a node's GPUs goes on one node, the one with the fewest free GPUs that fits. A
    larger one takes wholly free nodes, and its remainder the freest node that is left. Ties go to
    the lower node number.

    Nodes are kept by their number of free GPUs, and the numbers that any node has in another set:
    bit g of ``_levels`` says that some node has g free.
    """

    __slots__ = ("_free", "_levels", "_per_node", "_with")

    def __init__(self, nodes: int, gpus_per_node: int) -> None:
        self._per_node = gpus_per_node
        self._free = [gpus_per_node] * nodes  # not kept for nodes that one job holds wholly
        self._with = [0] * (gpus_per_node + 1)
        self._with[gpus_per_node] = (1 << nodes) - 1
        self._levels = 1 << gpus_per_node

    def take(self, gpus: int) -> Held | None:
        if gpus > self._per_node:
            return self._take_nodes(gpus)
        fitting = self._levels >> gpus
        if not fitting:
            return None
        level = gpus + (fitting & -fitting).bit_length() - 1
        nodes = self._with[level]
        node = nodes & -nodes
        self._free[node.bit_length() - 1] = level - gpus
        self._move(node, level, level - gpus)
        return 0, node, gpus

    def give(self, held: Held) -> None:
        nodes, node, gpus = held
        if nodes:
            self._move(nodes, 0, self._per_node)
        if node:
            k = node.bit_length() - 1
            free = self._free[k]
            self._free[k] = free + gpus
            self._move(node, free, free + gpus)

    def _take_nodes(self, gpus: int) -> Held | None:
        """For a job that is larger than a node."""
        count, part = divmod(gpus, self._per_node)
        rest = self._with[self._per_node]
        if rest.bit_count() < count:
            return None
        nodes = 0
        for _ in range(count):
            node = rest & -rest
            nodes |= node
            rest ^= node
        if not part:
            self._move(nodes, self._per_node, 0)
            return nodes, 0, 0
        if rest:
            level = self._per_node
        else:
            level = (self._levels & ((1 << self._per_node) - 1)).bit_length() - 1
            if level < part:
                return None
            rest = self._with[level]
        node = rest & -rest
        self._move(nodes, self._per_node, 0)
        self._free[node.bit_length() - 1] = level - part
        self._move(node, level, level - part)
        return nodes, node, part

    def _move(self, nodes: int, level: int, to: int) -> None:
        """Some nodes of ``level`` free GPUs have ``to`` from now on."""
        if level == to:
            return
        left = self._with[level] ^ nodes
        self._with[level] = left
        if not left:
            self._levels ^= 1 << level
        self._with[to] |= nodes
        self._levels |= 1 << to


class AuditedSpace:
    """Another space, watched: it keeps books of its own and trusts nothing.

    Raises:
        AssertionError: a GPU is given to two jobs, or given back by who does not hold it.
    """

    def __init__(self, watched: Space, nodes: int, gpus_per_node: int) -> None:
        self._watched = watched
        self._per_node = gpus_per_node
        self._used = [0] * nodes
        self._held: list[Held] = []

    def take(self, gpus: int) -> Held | None:
        held = self._watched.take(gpus)
        if held is not None:
            shares = self._shares(held)
            assert sum(shares.values()) == gpus, f"{held} is not {gpus} GPUs"
            for node, share in shares.items():
                self._used[node] += share
                assert self._used[node] <= self._per_node, f"node {node} is used twice"
            self._held.append(held)
        return held

    def give(self, held: Held) -> None:
        self._held.remove(held)
        for node, share in self._shares(held).items():
            self._used[node] -= share
        self._watched.give(held)

    def _shares(self, held: Held) -> dict[int, int]:
        """GPUs by node number; a counter is one node."""
        nodes, node, part = held
        whole = [k for k in range(nodes.bit_length()) if nodes >> k & 1]
        assert not nodes & node, "the node of the remainder is one of the whole ones"
        shares = dict.fromkeys(whole, self._per_node)
        if node or not nodes:
            shares[max(0, node.bit_length() - 1)] = part
        return shares


def counter(gpus: int, options: ReplayOptions) -> Space:
    """A counter of so many GPUs."""
    space = CountSpace(gpus)
    return AuditedSpace(space, 1, gpus) if options.audit else space


def nodes_of(pool: TracePool, options: ReplayOptions) -> Space:
    """The nodes of a pool, all free."""
    space = NodeSpace(pool.nodes, pool.gpus_per_node)
    return AuditedSpace(space, pool.nodes, pool.gpus_per_node) if options.audit else space
