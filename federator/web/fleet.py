"""Sites, racks and nodes with the use of their GPUs: what the fleet's pages show and their JSON.

Each GPU counts once: *owner* within quota, *guest* over quota, *local* by jobs that are not the
federation's, *claimed* free but kept for a claim, *out* free on a node that takes no jobs, *free*.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from federator.model.partition import PartitionSummary
from federator.model.unreadable import UNREADABLE
from federator.web.fleet_feed import SiteSeen
from federator.wire.client_protocol import SiteRow
from federator.wire.holdings_rows import NodeHoldings, SiteHoldings
from federator.wire.node_rows import NodeRow

LIMPING: Final = "fed_single_node"  # of the site's health gate: jobs of one node only
SIZES: Final = (1, 2, 4, 8)  # GPUs on one node, whose free slots are counted
USES: Final = ("owner", "guest", "local", "claimed", "free", "out")
NOT_READ: Final = "its list of nodes cannot be read"
_NONE: Final = NodeHoldings()
_TAKES_JOBS: Final = frozenset({"idle", "mixed", "allocated"})
_DIGITS: Final = re.compile(r"(\d+)")


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs by what they do; they sum to ``total``."""

    owner: int = 0
    guest: int = 0
    local: int = 0
    claimed: int = 0
    free: int = 0
    out: int = 0

    @property
    def total(self) -> int:
        return self.owner + self.guest + self.local + self.claimed + self.free + self.out

    def parts(self) -> tuple[tuple[str, int], ...]:
        """The uses that there are, in the order of ``USES``."""
        return tuple((use, n) for use in USES if (n := getattr(self, use)))


class FleetNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node; ``gpus`` says what its GPUs do."""

    name: str
    rack: str  # "": the site has no topology
    state: str  # idle, mixed, allocated, drained (by either side) or down
    gpu_type: str
    gpus: GpuUse
    limping: bool = False  # its network fails, or trainings are slow there: jobs of one node only
    reason: str = ""  # why it takes no jobs, or limps


class FleetRack(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes under one leaf switch."""

    name: str
    gpus: GpuUse
    nodes: int
    nodes_out: int = 0


class FreeOfType(msgspec.Struct, frozen=True, kw_only=True):
    """What is free of one GPU type, and for how many jobs of one node it is enough."""

    gpu_type: str
    free: int
    total: int
    slots: dict[str, int]  # by GPUs on one node: "1", "2", "4", "8"
    whole_nodes: int  # with all GPUs free: the largest gang of whole nodes
    largest_rack: int  # the most free GPUs under one leaf switch
    stranded: float | None = None
    """Of the free ones: expected to be of no use to what is usually asked for; None: not told."""


class FleetSite(msgspec.Struct, frozen=True, kw_only=True):
    """One site in numbers."""

    name: str
    region: str
    up: bool
    down_since_s: float = 0.0
    slurm_version: str = ""
    drained: bool = False
    seen_at_s: float = 0.0  # when its nodes were listed; 0: not yet
    detail: str = ""  # why its nodes are not known, or not newer
    gpus: GpuUse = GpuUse()
    nodes: int = 0
    nodes_out: int = 0
    nodes_limping: int = 0
    racks: tuple[FleetRack, ...] = ()
    free_by_type: tuple[FreeOfType, ...] = ()


class FleetView(msgspec.Struct, frozen=True, kw_only=True):
    """All sites; the answer of ``/api/fleet``."""

    schema: int = 1
    federation: str
    now_s: float
    gpus: GpuUse
    free_by_type: tuple[FreeOfType, ...]
    sites: tuple[FleetSite, ...]


def nodes_of(nodes: Iterable[NodeRow], held: SiteHoldings) -> tuple[FleetNode, ...]:
    """A site's nodes as the page shows them, by rack and then in natural order."""
    found = [_node(node, held) for node in nodes]
    return tuple(sorted(found, key=lambda node: (_natural(node.rack), _natural(node.name))))


def _node(node: NodeRow, held: SiteHoldings) -> FleetNode:
    holds = held.nodes.get(node.name, _NONE)
    is_drained = held.drained or node.name in held.drained_nodes
    takes_jobs = node.state in _TAKES_JOBS and not is_drained
    slow = held.limping_nodes.get(node.name, "")
    reason = node.reason or ("drained by the federation" if is_drained else slow)
    return FleetNode(
        name=node.name,
        rack=node.switch,
        state="drained" if is_drained and node.state in _TAKES_JOBS else node.state,
        gpu_type=node.gpu_type,
        gpus=_use(node, holds, takes_jobs=takes_jobs),
        limping=LIMPING in node.features or node.name in held.limping_nodes,
        reason=reason,
    )


def _use(node: NodeRow, holds: NodeHoldings, *, takes_jobs: bool) -> GpuUse:
    total = max(0, min(node.gpus, 1024))
    owner = min(total, holds.owner)
    guest = min(total - owner, holds.guest)
    local = max(0, min(node.gpus_alloc, total) - owner - guest)
    left = total - owner - guest - local
    claimed = min(left, holds.claimed) if takes_jobs else 0
    return GpuUse(
        owner=owner,
        guest=guest,
        local=local,
        claimed=claimed,
        free=left - claimed if takes_jobs else 0,
        out=0 if takes_jobs else left,
    )


def site_of(row: SiteRow, seen: SiteSeen | None) -> FleetSite:
    """One site in numbers; nodes that cannot be read are none."""
    detail = "it has not been asked yet"
    nodes: tuple[FleetNode, ...] = ()
    if seen is not None:
        detail = seen.detail
        try:
            nodes = nodes_of(seen.nodes(), seen.holdings)
        except UNREADABLE:
            detail = NOT_READ
    return FleetSite(
        name=row.name,
        region=row.region,
        up=row.up,
        down_since_s=row.down_since_s,
        slurm_version=row.slurm_version,
        drained=any(not drain.nodes for drain in row.drains),
        seen_at_s=seen.at_s if seen is not None else 0.0,
        detail=detail,
        gpus=summed(node.gpus for node in nodes),
        nodes=len(nodes),
        nodes_out=sum(node.state not in _TAKES_JOBS for node in nodes),
        nodes_limping=sum(node.limping for node in nodes),
        racks=_racks(nodes),
        free_by_type=_free_by_type(nodes, row.partitions) if row.up else (),
    )


def _racks(nodes: Sequence[FleetNode]) -> tuple[FleetRack, ...]:
    return tuple(
        FleetRack(
            name=name,
            gpus=summed(node.gpus for node in among),
            nodes=len(among),
            nodes_out=sum(node.state not in _TAKES_JOBS for node in among),
        )
        for name, among in by_rack(nodes).items()
    )


def by_rack(nodes: Iterable[FleetNode]) -> dict[str, list[FleetNode]]:
    """The nodes of each rack, in their order."""
    found: dict[str, list[FleetNode]] = {}
    for node in nodes:
        found.setdefault(node.rack, []).append(node)
    return found


def _free_by_type(
    nodes: Sequence[FleetNode], partitions: Sequence[PartitionSummary]
) -> tuple[FreeOfType, ...]:
    types: dict[str, list[FleetNode]] = {}
    for node in nodes:
        if node.gpus.total:
            types.setdefault(node.gpu_type, []).append(node)
    return tuple(
        _free_of_type(name, types[name], [row for row in partitions if row.gpu_type == name])
        for name in sorted(types)
    )


def _free_of_type(
    name: str, nodes: Sequence[FleetNode], partitions: Sequence[PartitionSummary]
) -> FreeOfType:
    racks: Counter[str] = Counter()
    total = sum(node.gpus.total for node in nodes)
    for node in nodes:
        racks[node.rack] += node.gpus.free
    return FreeOfType(
        gpu_type=name,
        free=sum(node.gpus.free for node in nodes),
        total=total,
        slots={str(size): sum(node.gpus.free // size for node in nodes) for size in SIZES},
        whole_nodes=sum(node.gpus.free == node.gpus.total for node in nodes),
        largest_rack=max(racks.values(), default=0),
        stranded=_stranded(total, partitions),
    )


def _stranded(total: int, partitions: Sequence[PartitionSummary]) -> float | None:
    """Of the nodes of one type; where they are in several partitions, the sum is scaled."""
    known = _sum_known(row.gpus_stranded for row in partitions)
    there = sum(row.gpus for row in partitions)
    return known if known is None or not there else round(min(1.0, total / there) * known, 1)


def _sum_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 1) if known else None


def fleet_view(federation: str, now_s: float, sites: Sequence[FleetSite]) -> FleetView:
    """All sites together."""
    return FleetView(
        federation=federation,
        now_s=now_s,
        gpus=summed(site.gpus for site in sites),
        free_by_type=_free_of_all(sites),
        sites=tuple(sites),
    )


def _free_of_all(sites: Iterable[FleetSite]) -> tuple[FreeOfType, ...]:
    """Over the sites that are up; no gang spans two, so the largest one is that of one site."""
    types: dict[str, list[FreeOfType]] = {}
    for site in sites:
        for free in site.free_by_type:
            types.setdefault(free.gpu_type, []).append(free)
    return tuple(
        FreeOfType(
            gpu_type=name,
            free=sum(free.free for free in found),
            total=sum(free.total for free in found),
            slots={str(n): sum(free.slots[str(n)] for free in found) for n in SIZES},
            whole_nodes=max(free.whole_nodes for free in found),
            largest_rack=max(free.largest_rack for free in found),
            stranded=_sum_known(free.stranded for free in found),
        )
        for name, found in sorted(types.items())
    )


def summed(uses: Iterable[GpuUse]) -> GpuUse:
    """The sum of each use."""
    totals = [0] * len(USES)
    for use in uses:
        totals[0] += use.owner
        totals[1] += use.guest
        totals[2] += use.local
        totals[3] += use.claimed
        totals[4] += use.free
        totals[5] += use.out
    return GpuUse(**dict(zip(USES, totals, strict=True)))


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """So that n2 comes before n10."""
    parts = _DIGITS.split(name)
    return tuple((int(part[:18]), "") if part.isdecimal() else (-1, part) for part in parts if part)
