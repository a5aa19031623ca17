"""Which nodes of one site could run this job now? Gang placement on the switch tree.

The rules are MAST's without preemption (OSDI'24 sec. 4.3): one rack if possible, else racks in
batches, fewest nodes. Where the paper is silent we choose the tightest fit, so that whole nodes
and racks stay free for gangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from operator import attrgetter
from typing import Final, NamedTuple

from federator.model.plan import JobPlan, Score
from federator.model.reason import Reason, ReasonCode
from federator.model.site import Node, NodeShare
from federator.model.workload import Job

SAME_RACK_WEIGHT = 1.0
OTHER_RACK_WEIGHT = 10.0
KINDS_KEPT = 256  # by a room: users may ask for kinds without end

_free_gpus: Final = attrgetter("gpus")
_free_cpus: Final = attrgetter("cpus")
_free_mem: Final = attrgetter("mem_mib")


@dataclass(slots=True)
class FreeNode:
    """What is left of a node while a pass places jobs on it."""

    node: Node
    gpus: int
    cpus: int
    mem_mib: int

    @classmethod
    def of(cls, node: Node) -> FreeNode:
        return cls(
            node=node,
            gpus=max(0, node.gpus - node.gpus_alloc),
            cpus=max(0, node.cpus - node.cpus_alloc),
            mem_mib=max(0, node.mem_mib - node.mem_mib_alloc),
        )

    def renew(self, node: Node) -> None:
        """Take over what is free of a node now."""
        fresh = FreeNode.of(node)
        self.node, self.gpus, self.cpus, self.mem_mib = node, fresh.gpus, fresh.cpus, fresh.mem_mib

    @property
    def untouched(self) -> bool:
        """Nothing runs on it."""
        return self.gpus == self.node.gpus and self.cpus == self.node.cpus

    def has(self, share: NodeShare) -> bool:
        return self.gpus >= share.gpus and self.cpus >= share.cpus and self.mem_mib >= share.mem_mib

    def take(self, share: NodeShare) -> None:
        self.gpus -= share.gpus
        self.cpus -= share.cpus
        self.mem_mib -= share.mem_mib

    def give_back(self, share: NodeShare) -> None:
        self.gpus += share.gpus
        self.cpus += share.cpus
        self.mem_mib += share.mem_mib


class Room:
    """What is left of one site while jobs are placed on it.

    Which nodes are of the right kind for a job does not change as they fill up: they are looked
    up once for each kind.

    Args:
        nodes: those that take jobs.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = [FreeNode.of(node) for node in nodes]
        self.by_name = {f.node.name: f for f in self.nodes}
        self._by_partition: dict[str, list[FreeNode]] = {}
        for f in self.nodes:
            for partition in dict.fromkeys(f.node.partitions):
                self._by_partition.setdefault(partition, []).append(f)
        self._in: dict[tuple[str, ...], list[FreeNode]] = {}
        self._of_kind: dict[_Kind, list[FreeNode] | ReasonCode] = {}

    def take(self, plan: JobPlan) -> None:
        """Count what a plan holds as gone; nodes that are not here are passed over."""
        for name, share in plan.nodes.items():
            if name in self.by_name:
                self.by_name[name].take(share)

    def give_back(self, plan: JobPlan) -> None:
        """Undo ``take``."""
        for name, share in plan.nodes.items():
            if name in self.by_name:
                self.by_name[name].give_back(share)

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

    def of_kind(self, kind: _Kind) -> list[FreeNode] | ReasonCode:
        """The nodes of a kind, whatever is free on them; or of what there is none."""
        if kind not in self._of_kind:
            if len(self._of_kind) >= KINDS_KEPT:
                self._of_kind.clear()
            self._of_kind[kind] = self._find(kind)
        return self._of_kind[kind]

    def _find(self, kind: _Kind) -> list[FreeNode] | ReasonCode:
        found = self.nodes_in((kind.partition,))
        if not found:
            return ReasonCode.NO_PARTITION
        if kind.with_gpus:
            types = kind.gpu_types
            found = [f for f in found if f.node.gpus and (not types or f.node.gpu_type in types)]
            if not found:
                return ReasonCode.NO_GPU_TYPE
        if kind.features:
            wanted = set(kind.features)
            found = [f for f in found if wanted.issubset(f.node.features)]
            if not found:
                return ReasonCode.NO_FEATURE
        return found


class _Kind(NamedTuple):
    """What about a node must be right for a job, however full the node is."""

    partition: str
    with_gpus: bool
    gpu_types: tuple[str, ...]
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    plan: JobPlan
    score: Score


def place_job(job: Job, room: Room, partitions: Sequence[str]) -> Placed | tuple[Reason, ...]:
    """Choose nodes for one job in the best of the partitions it may use.

    Args:
        job: what is asked for.
        room: the site's nodes that take jobs, with what is left of them; it is not changed.
        partitions: those the federation may use, in the site's order.

    Returns:
        The plan and its score (smallest wins; ties: first partition), or the reasons of the
        partition that came nearest.
    """
    allowed = [name for name in partitions if not job.partitions or name in job.partitions]
    if not allowed:
        wanted = ",".join(job.partitions)
        return (Reason(code=ReasonCode.NO_PARTITION, job=job.name, detail=wanted),)
    best: Placed | None = None
    nearest: tuple[Reason, ...] = ()
    for partition in allowed:
        found = place_in(job, room, partition)
        if isinstance(found, Placed):
            if best is None or found.score < best.score:
                best = found
        elif not nearest or _distance(found) > _distance(nearest):
            nearest = found
    return best if best is not None else nearest


_STAGES = (
    ReasonCode.NO_PARTITION,
    ReasonCode.NO_GPU_TYPE,
    ReasonCode.NO_FEATURE,
    ReasonCode.NODE_TOO_SMALL,
    ReasonCode.TOO_FEW_NODES,
)


def _distance(reasons: tuple[Reason, ...]) -> int:
    """How far a job got before it failed; larger is nearer to a fit."""
    return _STAGES.index(reasons[0].code)


def place_in(job: Job, room: Room, partition: str) -> Placed | tuple[Reason, ...]:
    """As ``place_job``, in one partition."""
    suitable = _suitable(job, room, partition)
    if isinstance(suitable, Reason):
        return (suitable,)
    if job.nodes is not None:
        chosen = _choose_fixed(job, least_share(job), suitable)
        if isinstance(chosen, Reason):
            return (chosen,)
        shares = _spread(job, chosen)
    else:
        fewest = _choose_fewest(job, suitable)
        if isinstance(fewest, Reason):
            return (fewest,)
        chosen, shares = fewest, _spread(job, fewest)
    if job.exclusive:
        shares = [NodeShare(gpus=f.gpus, cpus=f.cpus, mem_mib=s.mem_mib)
                  for f, s in zip(chosen, shares, strict=True)]  # fmt: skip
    nodes = {f.node.name: share for f, share in zip(chosen, shares, strict=True)}
    plan = JobPlan(name=job.name, partition=partition, nodes=nodes,
                   gpu_types=_gpus_by_type(chosen, shares))  # fmt: skip
    return Placed(plan=plan, score=_score(chosen, shares))


def _gpus_by_type(chosen: Sequence[FreeNode], shares: Sequence[NodeShare]) -> dict[str, int]:
    found: dict[str, int] = {}
    for f, share in zip(chosen, shares, strict=True):
        if share.gpus and f.node.gpu_type:
            found[f.node.gpu_type] = found.get(f.node.gpu_type, 0) + share.gpus
    return found


def share_per_node(job: Job) -> NodeShare:
    """What every node must give at the least."""
    return NodeShare(
        gpus=job.gpus_per_node,
        cpus=max(1, job.cpus_per_node),
        mem_mib=job.mem_mib_per_node,
    )


def least_share(job: Job) -> NodeShare:
    """What a node must have free to be of any use; a share of a GPU total is at least one."""
    need = share_per_node(job)
    return NodeShare(gpus=max(need.gpus, min(1, job.gpus)), cpus=need.cpus, mem_mib=need.mem_mib)


def _suitable(job: Job, room: Room, partition: str) -> list[FreeNode] | Reason:
    """Nodes of the right kind, whatever is free on them."""
    with_gpus = bool(job.gpus or job.gpus_per_node)
    found = room.of_kind(_Kind(partition, with_gpus, job.gpu_types, job.features))
    if found is ReasonCode.NO_GPU_TYPE:
        return Reason(code=found, job=job.name, unit="GPUs", needed=job.total_gpus,
                      detail="|".join(job.gpu_types))  # fmt: skip
    if isinstance(found, ReasonCode):
        missing = (
            partition if found is ReasonCode.NO_PARTITION else "&".join(sorted(set(job.features)))
        )
        return Reason(code=found, job=job.name, detail=missing)
    return found


def suitable_nodes(job: Job, room: Room, partition: str) -> Sequence[FreeNode]:
    """Nodes of the right kind, whatever is free on them; none where there are none."""
    found = _suitable(job, room, partition)
    return () if isinstance(found, Reason) else found


def _fitting(job: Job, need: NodeShare, suitable: list[FreeNode]) -> list[FreeNode]:
    gpus, cpus, mem_mib = need.gpus, need.cpus, need.mem_mib  # a site has thousands of nodes
    found = [f for f in suitable if f.gpus >= gpus and f.cpus >= cpus and f.mem_mib >= mem_mib]
    return [f for f in found if f.untouched] if job.exclusive else found


def _tightness(f: FreeNode) -> tuple[int, int, int, str]:
    """Nodes with few free GPUs first; among equals the smaller node, so CPU nodes before full
    GPU nodes."""
    return (f.gpus, f.node.gpus, f.cpus, f.node.name)


def _racks(nodes: Iterable[FreeNode]) -> list[list[FreeNode]]:
    racks: dict[str, list[FreeNode]] = {}
    for f in nodes:
        racks.setdefault(f.node.switch, []).append(f)
    return list(racks.values())


def _choose_fixed(job: Job, need: NodeShare, suitable: list[FreeNode]) -> list[FreeNode] | Reason:
    """Take ``job.nodes`` nodes: from the tightest rack that has them all, else rack by rack."""
    count = job.nodes or 1
    fitting = _fitting(job, need, suitable)
    if not fitting:
        return _too_small(job, need, suitable)
    racks = _racks(fitting)
    whole = [rack for rack in racks if _covers(job, rack, count)]
    if whole:
        rack = min(whole, key=lambda r: (sum(map(_free_gpus, r)), len(r), r[0].node.name))
        return _pick(job, rack, count)
    if _covers(job, fitting, count):
        return _pick(job, fitting, count) if _has_totals(job) else _rack_by_rack(racks, count)
    return Reason(code=ReasonCode.TOO_FEW_NODES, job=job.name, needed=count,
                  free=len(fitting), unit="nodes", detail=_per_node(job, need))  # fmt: skip


def _rack_by_rack(racks: list[list[FreeNode]], count: int) -> list[FreeNode]:
    """The largest racks first, and the tightest nodes of each; ``racks`` is put into order."""
    racks.sort(key=lambda r: (-len(r), r[0].node.name))
    chosen: list[FreeNode] = []
    for rack in racks:
        chosen += nsmallest(count - len(chosen), rack, key=_tightness)
        if len(chosen) == count:
            break
    return chosen


def _has_totals(job: Job) -> bool:
    return bool(job.gpus or job.cpus)


def _covers(job: Job, nodes: list[FreeNode], count: int) -> bool:
    if len(nodes) < count:
        return False
    if not _has_totals(job):
        return True
    if not _hold_totals(job, nodes):
        return False
    return _hold_totals(job, _freest(job, nodes, count))


def _hold_totals(job: Job, nodes: list[FreeNode]) -> bool:
    if sum(map(_free_gpus, nodes)) < job.gpus or sum(map(_free_cpus, nodes)) < job.cpus:
        return False
    return sum(_whole_cpus(job, f) for f in nodes) >= job.cpus if job.cpus else True


def _whole_cpus(job: Job, f: FreeNode) -> int:
    """CPUs of a node that a total can use: tasks take theirs (``cpus_per_node``) on one node."""
    return f.cpus - f.cpus % max(1, job.cpus_per_node)


def _pick(job: Job, nodes: list[FreeNode], count: int) -> list[FreeNode]:
    """The tightest ``count`` nodes, or the freest where a total must be covered."""
    if _has_totals(job):
        return _freest(job, nodes, count)
    return nsmallest(count, nodes, key=_tightness)


def _freest(job: Job, nodes: list[FreeNode], count: int) -> list[FreeNode]:
    """The ``count`` with the most of what ``job`` wants in total, those with the most first."""
    if job.gpus:
        return nsmallest(count, nodes, key=lambda f: (-f.gpus, -f.cpus, f.node.name))
    return nsmallest(count, nodes, key=lambda f: (-f.cpus, -f.gpus, f.node.name))


def _choose_fewest(job: Job, suitable: list[FreeNode]) -> list[FreeNode] | Reason:
    """Take the fewest nodes that hold the totals; one rack before several, tight before wide."""
    least = least_share(job)
    fitting = _fitting(job, least, suitable)
    if not fitting:
        return _too_small(job, least, suitable)
    closing = _closing(job, fitting, job.gpus, job.cpus)
    if closing:
        return [min(closing, key=_tightness)]
    options = [_fewest_of(job, rack) for rack in _racks(fitting)]
    found = [option for option in options if option is not None]
    across = None if found else _fewest_of(job, fitting)
    if across is not None:
        found = [across]
    if not found:
        if job.gpus:
            return Reason(code=ReasonCode.TOO_FEW_NODES, job=job.name, needed=job.gpus,
                          free=sum(f.gpus for f in fitting), unit="GPUs",
                          detail="|".join(job.gpu_types))  # fmt: skip
        return Reason(code=ReasonCode.TOO_FEW_NODES, job=job.name, needed=job.cpus,
                      free=sum(f.cpus for f in fitting), unit="CPUs")  # fmt: skip
    return min(found, key=lambda c: (len(c), sum(map(_free_gpus, c)), sum(map(_free_cpus, c))))


def _fewest_of(job: Job, nodes: list[FreeNode]) -> list[FreeNode] | None:
    """Freest nodes first until the totals are held; the last one is the tightest that does."""
    if not _hold_totals(job, nodes):
        return None
    gpus, cpus = job.gpus, job.cpus
    left = _freest(job, nodes, len(nodes))
    for k, freest in enumerate(left):
        closing = _closing(job, left[k:], gpus, cpus) if _may_close(job, freest, gpus, cpus) else []
        if closing:
            return [*left[:k], min(closing, key=_tightness)]
        gpus, cpus = max(0, gpus - freest.gpus), max(0, cpus - _whole_cpus(job, freest))
    return None


def _may_close(job: Job, freest: FreeNode, gpus: int, cpus: int) -> bool:
    """False when not even the node with the most of what is wanted holds what is left of it."""
    return freest.gpus >= gpus if job.gpus else _whole_cpus(job, freest) >= cpus


def _closing(job: Job, nodes: list[FreeNode], gpus: int, cpus: int) -> list[FreeNode]:
    """Those that hold so much alone."""
    found = [f for f in nodes if f.gpus >= gpus and f.cpus >= cpus]
    return [f for f in found if _whole_cpus(job, f) >= cpus] if cpus else found


def _spread(job: Job, chosen: list[FreeNode]) -> list[NodeShare]:
    """Share the totals out, as much as each node has, leaving the per-node minimum for the rest.

    Every node of ``chosen`` has that minimum free (``_least``), and all together have the totals.
    """
    need = share_per_node(job)
    gpus, cpus = job.gpus, job.cpus
    shares: list[NodeShare] = []
    for k, f in enumerate(chosen):
        rest = len(chosen) - k - 1
        g = max(need.gpus, min(f.gpus, max(0, gpus - rest * max(1, need.gpus))))
        c = max(need.cpus, min(_whole_cpus(job, f), max(0, cpus - rest * need.cpus)))
        gpus, cpus = max(0, gpus - g), max(0, cpus - c)
        shares.append(NodeShare(gpus=g, cpus=c, mem_mib=need.mem_mib))
    return shares


def _too_small(job: Job, need: NodeShare, suitable: list[FreeNode]) -> Reason:
    """The one amount that even the best node lacks (GPUs before CPUs before memory)."""
    for unit, wanted, free in (
        ("GPUs", need.gpus, _free_gpus),
        ("CPUs", need.cpus, _free_cpus),
        ("MiB", need.mem_mib, _free_mem),
    ):
        best = max(map(free, suitable))
        if wanted > best:
            return Reason(code=ReasonCode.NODE_TOO_SMALL, job=job.name, needed=wanted,
                          free=best, unit=unit,
                          detail="|".join(job.gpu_types) if unit == "GPUs" else "")  # fmt: skip
    return Reason(code=ReasonCode.TOO_FEW_NODES, job=job.name, needed=job.nodes or 1, free=0,
                  unit="nodes", detail=_per_node(job, need))  # fmt: skip


def _per_node(job: Job, need: NodeShare) -> str:
    if job.exclusive:
        return "wholly free"
    if need.gpus:
        types = " " + "|".join(job.gpu_types) if job.gpu_types else ""
        return f"{need.gpus}{types} GPUs"
    return f"{need.cpus} CPUs"


def _score(chosen: list[FreeNode], shares: list[NodeShare]) -> Score:
    left = 0
    for f, share in zip(chosen, shares, strict=True):
        if f.gpus - share.gpus > 0:
            left += f.gpus - share.gpus
    return Score(locality_cost=locality_cost(chosen, shares), fragmentation=float(left))


def locality_cost(chosen: Sequence[FreeNode], shares: Sequence[NodeShare]) -> float:
    """Sum of w(d) over all pairs of GPUs (of nodes, for a job without GPUs).

    w = 0 inside a node, 1 inside a rack, 10 further (fleet spec, eq. 2).
    """
    by_rack: dict[str, list[int]] = {}
    for f, share in zip(chosen, shares, strict=True):
        by_rack.setdefault(f.node.switch, []).append(share.gpus)
    if not any(any(units) for units in by_rack.values()):
        by_rack = {rack: [1] * len(units) for rack, units in by_rack.items()}
    sums = [sum(units) for units in by_rack.values()]
    inside = sum(sum(units) ** 2 - sum(u * u for u in units) for units in by_rack.values()) / 2
    between = (sum(sums) ** 2 - sum(s * s for s in sums)) / 2
    return SAME_RACK_WEIGHT * inside + OTHER_RACK_WEIGHT * between
