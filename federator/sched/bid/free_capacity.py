"""The free capacity of a site while jobs are placed on it, indexed by what a job may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from federator.model.constraint import Expression, Way, holds
from federator.model.gres import Gres, covers
from federator.model.mappings import NOTHING
from federator.model.node_shape import ANY_SHAPE, NodeShape
from federator.model.plan import JobPlan
from federator.model.reason import ReasonCode
from federator.model.site import Node, NodeShare
from federator.model.workload import Job
from federator.sched.bid.cells import broken_cell
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.fragmentation import RackKey, RequestMix, rack_key

NEEDS_KEPT: Final = 64  # by each rack, for which its tightest node is known
KINDS_KEPT: Final = 256  # by a room: users may ask for kinds without end
# A feature that the site's health gate gives to a node whose network fails: it takes jobs of one
# node only (prolog_epilog/fednode/orders.py).
SINGLE_NODE: Final = "fed_single_node"
NVLINK: Final = "nvlink"  # a node's feature, where the federation's table does not say it


class RackRoom:
    """The nodes under one leaf switch, and what is known of them until one of them changes.

    Attributes:
        version: another number whenever something else is free on one of its nodes.
    """

    __slots__ = ("_as_of", "_key", "_nodes", "_usable", "version")

    def __init__(self) -> None:
        self.version = 0
        self._nodes: list[FreeNode] = []  # those with GPUs
        self._as_of = -1
        self._usable: dict[int, int] = {}
        self._key: RackKey = (0, ())

    def add(self, f: FreeNode) -> None:
        self._nodes.append(f)
        self.version += 1

    def usable(self) -> tuple[dict[int, int], RackKey]:
        """The GPUs of use on each node, by its ``id``, and the same as the mix of requests asks."""
        if self._as_of != self.version:
            self._as_of = self.version
            self._usable = {id(f): f.usable_gpus for f in self._nodes}
            self._key = rack_key(self._usable.values())
        return self._usable, self._key


@dataclass(slots=True)
class FreeNode:
    """The free part of a node while a pass places jobs on it."""

    node: Node
    gpus: int
    cpus: int
    mem_mib: int
    gres: dict[str, int]  # beside GPUs, by name; empty where the node has none
    rack: RackRoom = field(default_factory=RackRoom, compare=False, repr=False)

    @classmethod
    def of(cls, node: Node) -> FreeNode:
        return cls(
            node=node,
            gpus=max(0, node.gpus - node.gpus_alloc),
            cpus=max(0, node.cpus - node.cpus_alloc),
            mem_mib=max(0, node.mem_mib - node.mem_mib_alloc),
            gres=_free_gres(node) if node.gres else {},
        )

    def renew(self, node: Node) -> None:
        """Take over what is free of a node now."""
        fresh = FreeNode.of(node)
        self.node, self.gpus, self.cpus, self.mem_mib = node, fresh.gpus, fresh.cpus, fresh.mem_mib
        self.gres = fresh.gres
        self.rack.version += 1

    @property
    def usable_gpus(self) -> int:
        """Free GPUs that have their part of the node's CPUs: without it they are of no use."""
        return min(self.gpus, self.cpus * self.node.gpus // (self.node.cpus or 1))

    @property
    def untouched(self) -> bool:
        """Nothing runs on it."""
        return self.gpus == self.node.gpus and self.cpus == self.node.cpus

    def has(self, share: NodeShare) -> bool:
        """Tell whether a share is free. Of what it does not ask for, less than none may be.

        (Where a bid made before would evict, its plan and its victims are both counted.)
        """
        return (
            (not share.gpus or self.gpus >= share.gpus)
            and (not share.cpus or self.cpus >= share.cpus)
            and (not share.mem_mib or self.mem_mib >= share.mem_mib)
            and (not share.gres or covers(self.gres, share.gres))
        )

    @property
    def left(self) -> NodeShare:
        """All that is free of it."""
        gres = tuple(sorted(self.gres.items())) if self.gres else ()
        return NodeShare(gpus=self.gpus, cpus=self.cpus, mem_mib=self.mem_mib, gres=gres)

    def take(self, share: NodeShare) -> None:
        self.rack.version += 1
        self.gpus -= share.gpus
        self.cpus -= share.cpus
        self.mem_mib -= share.mem_mib
        if share.gres:
            self.move_gres(share.gres, -1)

    def give_back(self, share: NodeShare) -> None:
        self.rack.version += 1
        self.gpus += share.gpus
        self.cpus += share.cpus
        self.mem_mib += share.mem_mib
        if share.gres:
            self.move_gres(share.gres, 1)

    def move_gres(self, gres: Gres, sign: int) -> None:
        """Give so much of it back, or take it (-1); what Slurm does not consume stays there."""
        shared = self.node.gres_shared
        for name, amount in gres:
            if not shared or name.partition(":")[0] not in shared:
                self.gres[name] = self.gres.get(name, 0) + sign * amount

    def would_cover(self, asked: Gres, taken: Gres) -> bool:
        """Tell whether all that is asked for would be free if so much were taken."""
        self.move_gres(taken, -1)
        found = covers(self.gres, asked)
        self.move_gres(taken, 1)
        return found


def _free_gres(node: Node) -> dict[str, int]:
    used = dict(node.gres_alloc)
    return {name: max(0, amount - used.get(name, 0)) for name, amount in node.gres}


class Kind(NamedTuple):
    """The properties that a node must have for a job, however full the node is."""

    partition: str
    with_gpus: bool
    gpu_types: tuple[str, ...]
    min_gpu_mem_gib: float
    nvlink: bool
    features: tuple[str, ...]
    avoid: tuple[str, ...]
    spread: bool = False  # over several nodes
    gres: Gres = ()
    every: Expression | None = None  # that features of each node satisfy
    exclude: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    shape: NodeShape = ANY_SHAPE

    @classmethod
    def of(cls, job: Job, partition: str, way: Way) -> Kind:
        """The kind for one way to satisfy the job's constraint."""
        with_gpus = bool(job.total_gpus)
        return cls(
            partition,
            with_gpus,
            job.gpu_types if with_gpus else (),
            job.min_gpu_mem_gib if with_gpus else 0.0,
            with_gpus and job.nvlink,
            job.features,
            job.avoid,
            (job.nodes or 1) > 1,
            job.gres,
            way.every,
            job.exclude,
            job.within,
            job.shape,
        )

    def gpus_do(self, node: Node) -> bool:
        """Tell whether the GPUs of a node are capable enough."""
        return (
            node.gpus > 0
            and (not self.gpu_types or node.gpu_type in self.gpu_types)
            and node.gpu_mem_gib >= self.min_gpu_mem_gib
            and (not self.nvlink or node.nvlink or NVLINK in node.features)
        )

    def is_enough(self, node: Node) -> bool:
        """Tell whether a node has the gres, and is built as it must be, as far as is known."""
        holds_gres = not self.gres or covers(dict(node.gres), self.gres)
        return holds_gres and (node.shape is None or node.shape.holds(self.shape))


class NodesOfKind(list[FreeNode]):
    """Nodes of one kind; remembers of each rack which of them is the tightest fit.

    Args:
        nodes: of the kind.
        cells: whether large cells are kept whole before the fit is tight.
    """

    __slots__ = ("_parts", "cells")

    def __init__(self, nodes: Iterable[FreeNode], cells: bool = False) -> None:
        super().__init__(nodes)
        self.cells = cells
        self._parts: list[_RackPart] | None = None

    def tightest(self, least: Least) -> FreeNode | None:
        """The node that one with such a need is placed on; None where it fits none.

        A node with the fewest free GPUs; of several, one in the tightest rack. The other way round,
        half-used nodes stay in other racks: twice as many GPUs are stranded, and large jobs wait
        longer (docs/results.md).
        """
        if self._parts is None:
            by_switch: dict[str, list[FreeNode]] = {}
            for f in self:
                by_switch.setdefault(f.node.switch, []).append(f)
            self._parts = [_RackPart(nodes, self.cells) for nodes in by_switch.values()]
        found = [t for part in self._parts if (t := part.tightest(least)) is not None]
        return min(found)[-1] if found else None


Least = tuple[int, int, int]
"""GPUs, CPUs and MiB that a node must have free, at least."""

_Tightest = tuple[int, int, int, int, int, str, "FreeNode"]
"""What decides between the racks, then the name of a node, which no two have, and the node."""


class _RackPart:
    """Those of a group that are in one rack."""

    __slots__ = ("_as_of", "_cells", "_known", "_nodes", "_rack")

    def __init__(self, nodes: list[FreeNode], cells: bool) -> None:
        self._nodes, self._cells = nodes, cells
        self._rack = nodes[0].rack
        self._as_of = -1
        self._known: dict[Least, _Tightest | None] = {}

    def tightest(self, least: Least) -> _Tightest | None:
        if self._as_of != self._rack.version:
            self._as_of = self._rack.version
            self._known.clear()
        try:
            return self._known[least]
        except KeyError:
            if len(self._known) >= NEEDS_KEPT:
                self._known.clear()
            found = self._known[least] = self._find(least)
            return found

    def _find(self, least: Least) -> _Tightest | None:
        gpus, cpus, mem_mib = least
        fitting = [
            f for f in self._nodes if f.gpus >= gpus and f.cpus >= cpus and f.mem_mib >= mem_mib
        ]
        if not fitting:
            return None
        if gpus <= 0:
            node = min(fitting, key=tightness)
            return (0, 0, *tightness(node), node)
        cells = (0, 0)
        if self._cells:
            node = min(fitting, key=lambda f: (broken_cell(f.gpus, gpus), tightness(f)))
            whole = sum(f.gpus == f.node.gpus for f in self._nodes)
            of_rack = broken_cell(whole, 1) if node.gpus == node.node.gpus else 0
            cells = (broken_cell(node.gpus, gpus), of_rack)
        else:
            node = min(fitting, key=tightness)
        free = sum([f.gpus for f in fitting])
        return (*cells, node.gpus, free, len(fitting), fitting[0].node.name, node)


def tightness(f: FreeNode) -> tuple[int, int, int, str]:
    """Nodes with few free GPUs first; among equals the smaller node, so CPU nodes before full
    GPU nodes."""
    return (f.gpus, f.node.gpus, f.cpus, f.node.name)


@dataclass(frozen=True, slots=True)
class Suitable:
    """The nodes of a kind, whatever is free on them.

    ``alike``: those that are tried alone before all together. For a job with GPUs the nodes of each
    GPU type, the least capable first; for another those without GPUs. Empty where all are alike.
    """

    nodes: list[FreeNode]
    alike: tuple[list[FreeNode], ...] = field(default=())


class FreeCapacity:
    """The free capacity of one site while jobs are placed on it.

    Which nodes are of the right kind for a job does not change as they fill up: they are looked
    up once for each kind. While the jobs of one workload are placed, each node is ``assign``ed by
    one of them at most, and is none for the others.

    Args:
        nodes: those that take jobs.
        fabric: how they are connected; by default every leaf switch hangs on one spine.
        mix: what has been asked for lately, to judge what a plan leaves free.
        licenses: those that are free at the site, by name.
        order: the place of each node, by name, among all nodes of the site; by default ``nodes``
            are all of them.

    Attributes:
        prices: what a GPU costs for an hour, by partition and GPU type; see ``score.Prices``.
        cells: whether jobs break the smallest cells that hold them; see ``keep_cells``.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        fabric: Fabric | None = None,
        mix: RequestMix | None = None,
        licenses: Mapping[str, int] = NOTHING,
        order: Mapping[str, int] | None = None,
    ) -> None:
        self.nodes = [FreeNode.of(node) for node in nodes]
        self.order = order or {f.node.name: k for k, f in enumerate(self.nodes)}
        self.by_name = {f.node.name: f for f in self.nodes}
        self.fabric = Fabric() if fabric is None else fabric
        self.mix = RequestMix() if mix is None else mix
        self.licenses = dict(licenses)
        self.prices: Mapping[str, Mapping[str, float]] = NOTHING
        self.cells = False
        self._by_partition: dict[str, list[FreeNode]] = {}
        racks: dict[str, RackRoom] = {}
        for f in self.nodes:
            f.rack = racks.setdefault(f.node.switch, f.rack)
            if f.node.gpus:
                f.rack.add(f)
            for partition in dict.fromkeys(f.node.partitions):
                self._by_partition.setdefault(partition, []).append(f)
        self._in: dict[tuple[str, ...], list[FreeNode]] = {}
        self._of_kind: dict[Kind, Suitable | ReasonCode] = {}
        self._assigned: set[str] = set()

    def keep_cells(self, cells: bool) -> None:
        """Say whether jobs break the smallest cells that hold them, or fit as tight as can be."""
        if cells != self.cells:
            self.cells = cells
            self._of_kind.clear()

    def renew(self, changed: Iterable[Node]) -> None:
        """Only what is free on some nodes is new; those that are not here are passed over."""
        for node in changed:
            f = self.by_name.get(node.name)
            if f is not None:
                f.renew(node)

    def take(self, plan: JobPlan) -> None:
        """Count what a plan holds as gone; nodes that are not here are passed over."""
        for name, share in plan.nodes.items():
            if name in self.by_name:
                self.by_name[name].take(share)
        for name, amount in plan.licenses:
            self.licenses[name] = self.licenses.get(name, 0) - amount

    def release(self, plan: JobPlan) -> None:
        """Undo ``take``."""
        for name, share in plan.nodes.items():
            if name in self.by_name:
                self.by_name[name].give_back(share)
        for name, amount in plan.licenses:
            self.licenses[name] = self.licenses.get(name, 0) + amount

    def assign(self, plan: JobPlan) -> None:
        """``take`` it, and keep its nodes from the other jobs of the workload."""
        self.take(plan)
        self._assigned.update(plan.nodes)

    def unassign(self, plan: JobPlan) -> None:
        """Undo ``assign``."""
        self.release(plan)
        self._assigned.difference_update(plan.nodes)

    def settle(self) -> None:
        """All jobs of the workload are placed; the next one may have any node."""
        self._assigned.clear()

    def nodes_in(self, partitions: tuple[str, ...]) -> list[FreeNode]:
        """The nodes that are in any of these partitions."""
        if partitions not in self._in and len(partitions) == 1:
            self._in[partitions] = self._by_partition.get(partitions[0], [])
        if partitions not in self._in:
            wanted = set(partitions)
            self._in[partitions] = [
                f for f in self.nodes if not wanted.isdisjoint(f.node.partitions)
            ]
        return self._in[partitions]

    def of_kind(self, kind: Kind) -> Suitable | ReasonCode:
        """The nodes of a kind, whatever is free on them; or of what there is none.

        Those that are assigned are left out, of ``alike`` with all that this leaves nothing of.
        """
        found = self._all_of_kind(kind)
        if not self._assigned or isinstance(found, ReasonCode):
            return found
        nodes = self._unassigned(found.nodes)
        alike = [left for group in found.alike if (left := self._unassigned(group))]
        return Suitable(nodes, tuple(alike))

    def _unassigned(self, nodes: Iterable[FreeNode]) -> list[FreeNode]:
        left = [f for f in nodes if f.node.name not in self._assigned]
        return NodesOfKind(left, cells=True) if self.cells else left

    def _all_of_kind(self, kind: Kind) -> Suitable | ReasonCode:
        if kind not in self._of_kind:
            if len(self._of_kind) >= KINDS_KEPT:
                self._of_kind.clear()
            self._of_kind[kind] = self._find(kind)
        return self._of_kind[kind]

    def _find(self, kind: Kind) -> Suitable | ReasonCode:
        found = self._capable(kind)
        if isinstance(found, ReasonCode):
            return found
        if kind.within:
            allowed = set(kind.within)
            found = [f for f in found if f.node.name in allowed]
            if not found:
                return ReasonCode.NODES_ASKED
        if kind.exclude:
            excluded = set(kind.exclude)
            found = [f for f in found if f.node.name not in excluded]
            if not found:
                return ReasonCode.NODES_ASKED
        if kind.avoid:
            avoided = frozenset(kind.avoid)
            found = [f for f in found if f.node.name not in avoided]
        if kind.spread:
            found = [f for f in found if SINGLE_NODE not in f.node.features]
        if not found:
            return ReasonCode.NODE_FAILED
        alike = _by_type(found) if kind.with_gpus else _without_gpus(found)
        kinds = tuple(NodesOfKind(nodes, self.cells) for nodes in alike)
        return Suitable(NodesOfKind(found, self.cells), kinds)

    def _capable(self, kind: Kind) -> list[FreeNode] | ReasonCode:
        """Those whose hardware and features are right."""
        found = self.nodes_in((kind.partition,))
        if not found:
            return ReasonCode.NO_PARTITION
        if kind.with_gpus:
            found = [f for f in found if kind.gpus_do(f.node)]
            if not found:
                return ReasonCode.NO_GPU_TYPE
        if kind.features:
            wanted = set(kind.features)
            found = [f for f in found if wanted.issubset(f.node.features)]
            if not found:
                return ReasonCode.NO_FEATURE
        if kind.every is not None:
            found = [f for f in found if holds(kind.every, f.node.features)]
            if not found:
                return ReasonCode.NO_FEATURE
        if kind.gres or kind.shape != ANY_SHAPE:
            found = [f for f in found if kind.is_enough(f.node)]
            if not found:
                return ReasonCode.NODE_TOO_SMALL
        return found


def _without_gpus(nodes: Sequence[FreeNode]) -> tuple[list[FreeNode], ...]:
    found = [f for f in nodes if not f.node.gpus]
    return (found,) if 0 < len(found) < len(nodes) else ()


def _by_type(nodes: Iterable[FreeNode]) -> tuple[list[FreeNode], ...]:
    groups: dict[tuple[float, str], list[FreeNode]] = {}
    for f in nodes:
        groups.setdefault((f.node.gpu_worth, f.node.gpu_type), []).append(f)
    return tuple(groups[key] for key in sorted(groups)) if len(groups) > 1 else ()
