"""Takes many nodes from several racks: level by level of the switch tree, by its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import groupby
from typing import Any, Final

from federator.sched.bid.fabric import Fabric
from federator.sched.bid.free_capacity import FreeNode

DOMAINS_TRIED: Final = 8  # of one level
Racks = dict[str, list[FreeNode]]  # the nodes that would do, by leaf switch
Tightness = Callable[[FreeNode], Any]  # smaller is taken first


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes that hang on one switch."""

    switch: str
    racks: Racks

    @property
    def nodes(self) -> int:
        return sum(map(len, self.racks.values()))


def levels(racks: Racks, fabric: Fabric) -> Iterator[list[Domain]]:
    """The domains of several racks, level by level from the lowest."""
    found: dict[str, Racks] = {}
    for leaf, nodes in racks.items():
        own = (leaf,) if fabric.height(leaf) else ()  # nodes beside switches
        for switch in (*own, *fabric.above(leaf)):
            found.setdefault(switch, {})[leaf] = nodes
    for _, switches in groupby(sorted(found, key=fabric.height), key=fabric.height):
        yield [Domain(switch, found[switch]) for switch in switches]


def cheapest(
    racks: Racks, count: int, fabric: Fabric, tightness: Tightness, together: int = 1
) -> list[FreeNode]:
    """Take ``count`` of the nodes at the least locality cost that this search finds.

    Of each level the domains that have enough nodes are filled, the ``DOMAINS_TRIED`` tightest of
    them, and the cheapest of all is taken: under a wide switch a gang may fall into fewer pieces
    than under a narrow one. In two levels that is the least cost there is; in deeper ones it may
    not be.

    Args:
        racks: together they have so many.
        count: of nodes, each giving as many GPUs.
        fabric: the switch tree.
        tightness: which nodes of a rack to take first.
        together: nodes that should be in one rack together; a divisor of ``count``.
    """
    best: tuple[float, list[FreeNode]] | None = None
    for level in levels(racks, fabric):
        covering = [domain for domain in level if domain.nodes >= count]
        for domain in nsmallest(DOMAINS_TRIED, covering, key=lambda d: (d.nodes, d.switch)):
            chosen = _fill(domain, count, fabric, tightness, together)
            if not chosen:
                chosen = _fill(domain, count, fabric, tightness, 1)
            units: dict[str, list[int]] = {}
            for f in chosen:
                units.setdefault(f.node.switch, []).append(1)
            cost = fabric.locality_cost(units)
            if best is None or cost < best[0]:
                best = cost, chosen
    assert best is not None  # the root has them all
    return best[1]


def _fill(
    domain: Domain, count: int, fabric: Fabric, tightness: Tightness, together: int
) -> list[FreeNode]:
    """The largest parts first, as a whole; what is left from the tightest part that has it.

    For equal shares this has the least cost of all divisions among the parts: the sum of squares
    of what each part gives is as large as it can be. Nothing, if the parts have not enough.
    """
    if all(fabric.above(leaf)[0] == domain.switch for leaf in domain.racks):
        return _fill_racks(domain.racks, count, tightness, together)
    parts = _parts(domain, fabric)
    size = {name: _size(part, together) for name, part in parts.items()}
    if sum(size.values()) < count:
        return []
    chosen: list[FreeNode] = []
    left = count
    widest = {name: max(map(len, part.racks.values())) for name, part in parts.items()}
    order = sorted(parts, key=lambda name: (-size[name], -widest[name], name))
    while left:
        name = order[0]
        if size[name] > left:  # the tightest that still has it
            name = min((n for n in order if size[n] >= left), key=lambda n: (size[n], n))
        order.remove(name)
        wanted = min(left, size[name])
        if not wanted:
            return []
        chosen += _from_part(parts[name], wanted, fabric, tightness, together)
        left -= wanted
    return chosen


def _fill_racks(racks: Racks, count: int, tightness: Tightness, together: int) -> list[FreeNode]:
    """As ``_fill``, where the parts are racks: a site may have thousands."""
    size = {leaf: len(rack) - len(rack) % together for leaf, rack in racks.items()}
    if sum(size.values()) < count:
        return []
    chosen: list[FreeNode] = []
    order = sorted(size, key=lambda leaf: (-size[leaf], leaf))
    whole = 0
    while whole < len(order) and size[order[whole]] <= count - len(chosen):
        leaf = order[whole]
        chosen += nsmallest(size[leaf], racks[leaf], key=tightness)
        whole += 1
    left = count - len(chosen)
    if left:
        enough = (leaf for leaf in order[whole:] if size[leaf] >= left)
        leaf = min(enough, key=lambda leaf: (size[leaf], leaf))
        chosen += nsmallest(left, racks[leaf], key=tightness)
    return chosen


def _from_part(
    part: Domain, count: int, fabric: Fabric, tightness: Tightness, together: int
) -> list[FreeNode]:
    if len(part.racks) == 1:
        (rack,) = part.racks.values()
        return nsmallest(count, rack, key=tightness)
    return _fill(part, count, fabric, tightness, together)


def _size(part: Domain, together: int) -> int:
    return sum(len(rack) - len(rack) % together for rack in part.racks.values())


def _parts(domain: Domain, fabric: Fabric) -> Mapping[str, Domain]:
    """The parts that hang on a domain's switch directly: racks, or switches that hold racks."""
    parts: dict[str, Racks] = {}
    for leaf, nodes in domain.racks.items():
        path = (leaf, *fabric.above(leaf))
        below = leaf if leaf == domain.switch else path[path.index(domain.switch) - 1]
        parts.setdefault(below, {})[leaf] = nodes
    return {switch: Domain(switch, racks) for switch, racks in parts.items()}
