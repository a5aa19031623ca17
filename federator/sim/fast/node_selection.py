"""Selects nodes of a pool for a job: the rules of ``sched.bid.node_selection``, for equal nodes.

A job of one node goes on the tightest node; of several, into the tightest rack. A total goes on one
node if one holds it, else on the fewest nodes of one rack, else of all racks, nearer to each other
if as many others with the largest of the shares are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from federator.sched.bid.fabric import STEP
from federator.sim.fast.nodes import PoolNodes
from federator.sim.trace_scenario import NODES_PER_RACK


def one_node(pool: PoolNodes, gpus: int) -> int | None:
    """The node for a job of at most a node's GPUs."""
    if not gpus:
        found = [k for rack in pool.racks for k in pool.fitting(rack, 0)]
        return min(found, key=pool.tightness, default=None)
    found_in = [t for rack in pool.racks if (t := pool.tightest_in(rack, gpus)) is not None]
    return min(found_in)[4] if found_in else None


def fewest_nodes(pool: PoolNodes, gpus: int) -> list[int]:
    """The nodes for a total, of which the pool has enough; in the order of their shares."""
    if pool.levels >> gpus:
        closing = [k for rack in pool.racks for k in pool.fitting(rack, gpus)]
        return [min(closing, key=pool.tightness)]
    freest = [pool.freest_in(rack) for rack in pool.racks]
    options = [_fewest_of(pool, order, gpus) for order, total in freest if total >= gpus]
    if options:
        return min(options, key=lambda nodes: _taken_from(pool, nodes))
    everywhere = sorted(chain.from_iterable(order for order, _ in freest), key=pool.freeness)
    return _closer(pool, _fewest_of(pool, everywhere, gpus), gpus)


def spread(pool: PoolNodes, nodes: Sequence[int], gpus: int) -> list[int]:
    """Share a total out, as much as each node has, leaving one GPU for each of the rest."""
    shares = []
    rest = len(nodes)
    for k in nodes:
        rest -= 1
        share = max(0, min(pool.free[k], max(0, gpus - rest)))
        gpus = max(0, gpus - share)
        shares.append(share)
    return shares


def locality_cost(nodes: Sequence[int], shares: Sequence[int]) -> float:
    """As ``Fabric.locality_cost``, of racks that hang on one switch."""
    if len(nodes) == 1:
        return 0.0
    units: dict[int, list[int]] = {}
    for k, share in zip(nodes, shares, strict=True):
        units.setdefault(k // NODES_PER_RACK, []).append(share)
    cost = 0.0
    for counts in units.values():
        cost += _pairs(counts)
    if len(units) > 1:
        cost += STEP * _pairs([sum(counts) for counts in units.values()])
    return cost


def _pairs(counts: list[int]) -> float:
    return (sum(counts) ** 2 - sum([c * c for c in counts])) / 2


def _taken_from(pool: PoolNodes, nodes: list[int]) -> tuple[int, int, int]:
    free, cpus = pool.free, pool.cpus
    return len(nodes), sum([free[k] for k in nodes]), sum([cpus[k] for k in nodes])


def _fewest_of(pool: PoolNodes, freest: list[int], gpus: int) -> list[int]:
    """Freest nodes first until the total is held; the last one is the tightest that does."""
    free = pool.free
    for position, k in enumerate(freest):
        if free[k] >= gpus:
            closing = [other for other in freest[position:] if free[other] >= gpus]
            return [*freest[:position], min(closing, key=pool.tightness)]
        gpus -= free[k]
    raise AssertionError("the nodes do not hold the total")


def _closer(pool: PoolNodes, chosen: list[int], gpus: int) -> list[int]:
    """As many nodes nearer to each other, if all of them have the largest of the shares."""
    if len({k // NODES_PER_RACK for k in chosen}) == 1:
        return chosen
    shares = spread(pool, chosen, gpus)
    most = max(shares)
    able = [pool.fitting(rack, most) for rack in pool.racks]
    if sum(map(len, able)) < len(chosen):
        return chosen
    other = _fill_racks(pool, able, len(chosen))
    nearer = locality_cost(other, spread(pool, other, gpus)) < locality_cost(chosen, shares)
    return other if nearer else chosen


def _fill_racks(pool: PoolNodes, able: list[list[int]], count: int) -> list[int]:
    """The largest racks first, as a whole; what is left from the tightest rack that has it.

    Args:
        pool: whose racks they are.
        able: the nodes of each rack that would do; together enough.
        count: of nodes to take.
    """
    name_rank = [rack.name_rank for rack in pool.racks]
    order = [rack for rack, nodes in enumerate(able) if nodes]
    order.sort(key=lambda rack: (-len(able[rack]), name_rank[rack]))
    chosen: list[int] = []
    whole = 0
    while whole < len(order) and len(able[order[whole]]) <= count - len(chosen):
        chosen += sorted(able[order[whole]], key=pool.tightness)
        whole += 1
    left = count - len(chosen)
    if left:
        enough = (rack for rack in order[whole:] if len(able[rack]) >= left)
        rack = min(enough, key=lambda rack: (len(able[rack]), name_rank[rack]))
        chosen += sorted(able[rack], key=pool.tightness)[:left]
    return chosen
