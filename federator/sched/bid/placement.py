"""Places one job on the nodes of one site: gang placement on the switch tree.

The rules are MAST's without preemption (OSDI'24 sec. 4.3): one rack if possible, else racks in
batches, fewest nodes. Where the paper is silent we choose the tightest fit, so that whole nodes
and racks stay free for gangs; GPUs of one type before a mixture, and the least capable that do.
A job without GPUs goes on nodes without GPUs wherever these alone are enough, whatever their racks;
else on all of these it needs, and on as few others as complete it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from federator.model.constraint import Way, ways_of
from federator.model.node_shape import largest
from federator.model.plan import JobPlan
from federator.model.reason import Reason, ReasonCode
from federator.model.score import Score, with_cost
from federator.model.site import NodeShare
from federator.model.workload import Job
from federator.sched.bid.contiguous_nodes import contiguous
from federator.sched.bid.few_switches import under_few_switches
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode, Kind, Suitable
from federator.sched.bid.node_selection import choose, choose_sparing, hardware, spread
from federator.sched.bid.score import PERFECT, cost_of_places, score_of_places


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    plan: JobPlan
    score: Score
    cost: float = 0.0  # as of ``Bid.cost``

    @property
    def terms(self) -> tuple[float, ...]:
        """All that places are compared by."""
        return with_cost(self.score, self.cost)


def place_job(
    job: Job, room: FreeCapacity, partitions: Sequence[str]
) -> Placed | tuple[Reason, ...]:
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
    best: _Option | None = None
    nearest: Reason | None = None
    for partition in allowed:
        found = _option_in(job, room, partition)
        if isinstance(found, _Option):
            if best is None or found.terms < best.terms:
                best = found
            if not job.total_gpus and best.score == PERFECT:
                break
        elif nearest is None or _nearness(found) > _nearness(nearest):
            nearest = found
    if best is not None:
        return best.placed(job)
    assert nearest is not None
    return (nearest,)


def fits_somewhere(job: Job, room: FreeCapacity, partitions: Sequence[str]) -> bool:
    """Tell whether ``place_job`` would find a place: the first will do, not the best."""
    return any(
        isinstance(_option_in(job, room, partition), _Option)
        for partition in partitions
        if not job.partitions or partition in job.partitions
    )


_STAGES = (
    ReasonCode.NO_PARTITION,
    ReasonCode.NO_GPU_TYPE,
    ReasonCode.NO_FEATURE,
    ReasonCode.NODES_ASKED,
    ReasonCode.NODE_FAILED,
    ReasonCode.NODE_TOO_SMALL,
    ReasonCode.TOO_FEW_NODES,
    ReasonCode.LICENSES,
    ReasonCode.SWITCHES,
)


def _nearness(reason: Reason) -> tuple[int, int]:
    """A measure of how far a job got before it failed; larger is nearer to a fit."""
    return _STAGES.index(reason.code), reason.free


def place_in(job: Job, room: FreeCapacity, partition: str) -> Placed | tuple[Reason, ...]:
    """As ``place_job``, in one partition; a gang mixes kinds of nodes only where it must."""
    found = _option_in(job, room, partition)
    return found.placed(job) if isinstance(found, _Option) else (found,)


@dataclass(frozen=True, slots=True)
class _Option:
    """Nodes for a job in one partition, as far as it takes to compare them."""

    partition: str
    chosen: list[FreeNode]
    shares: list[NodeShare]
    score: Score
    cost: float
    terms: tuple[float, ...]  # all that options are compared by

    def placed(self, job: Job) -> Placed:
        chosen, shares = self.chosen, self.shares
        plan = JobPlan(
            name=job.name,
            partition=self.partition,
            nodes={f.node.name: share for f, share in zip(chosen, shares, strict=True)},
            gpu_types=_gpus_by_type(chosen, shares),
            licenses=job.licenses,
            reservation=job.reservation[0] if job.reservation else "",
            rails=_rails(chosen, shares),
            whole_mem_mib=sum(max(0, f.node.mem_mib) for f in chosen) if job.exclusive else 0,
        )
        return Placed(plan=plan, score=self.score, cost=self.cost)


def _option_in(job: Job, room: FreeCapacity, partition: str) -> _Option | Reason:
    """The best of the ways to satisfy the job's constraint; ties to the first."""
    lacking = short_of_licenses(job, room)
    if lacking is not None:
        return lacking
    first, *others = ways_of(job.constraint)
    best = _option_in_way(job, room, partition, first)
    for way in others:
        found = _option_in_way(job, room, partition, way)
        if _is_better(found, best):
            best = found
    return best


def short_of_licenses(job: Job, room: FreeCapacity) -> Reason | None:
    """The licences that a job asks for and the room does not have so many of; None: it has all."""
    for name, amount in job.licenses:
        free = room.licenses.get(name, 0)
        if amount > free:
            return Reason(
                code=ReasonCode.LICENSES, job=job.name, needed=amount, free=max(0, free), unit=name
            )
    return None


def _is_better(one: _Option | Reason, other: _Option | Reason) -> bool:
    if isinstance(one, Reason):
        return isinstance(other, Reason) and _nearness(one) > _nearness(other)
    return isinstance(other, Reason) or one.terms < other.terms


def _option_in_way(job: Job, room: FreeCapacity, partition: str, way: Way) -> _Option | Reason:
    suitable = _suitable(job, room, partition, way)
    if isinstance(suitable, Reason):
        return suitable
    best: _Option | None = None
    for nodes in suitable.alike:
        found = _option_among(job, room, partition, nodes, way)
        if isinstance(found, _Option) and (best is None or found.terms < best.terms):
            best = found
    if best is not None:
        return best
    found = _option_among(job, room, partition, suitable.nodes, way)
    if job.total_gpus or not suitable.alike or isinstance(found, Reason):
        return found
    if job.is_picky:
        return found
    sparing = choose_sparing(job, suitable.nodes, room.fabric)
    if not sparing:
        return found
    other = _option_of(job, room, partition, sparing)
    return other if other.terms < found.terms else found


def _option_among(
    job: Job, room: FreeCapacity, partition: str, nodes: list[FreeNode], way: Way
) -> _Option | Reason:
    chosen = choose(job, nodes, room.fabric, way)
    if job.switches and not isinstance(chosen, Reason):
        chosen = under_few_switches(job, nodes, chosen, room.fabric, way)
    if job.contiguous and not isinstance(chosen, Reason):
        chosen = contiguous(job, nodes, chosen, room, way)
    return chosen if isinstance(chosen, Reason) else _option_of(job, room, partition, chosen)


def _option_of(job: Job, room: FreeCapacity, partition: str, chosen: list[FreeNode]) -> _Option:
    shares = spread(job, chosen)
    if job.exclusive:
        shares = [
            NodeShare(gpus=f.gpus, cpus=f.cpus, mem_mib=s.mem_mib, gres=s.gres)
            for f, s in zip(chosen, shares, strict=True)
        ]
    score = score_of_places(job, chosen, shares, room)
    cost = cost_of_places(partition, chosen, shares, room.prices) if room.prices else 0.0
    return _Option(partition, chosen, shares, score, cost, with_cost(score, cost))


def _rails(chosen: Sequence[FreeNode], shares: Sequence[NodeShare]) -> int:
    """GPUs of every node, if they are all of its own and equally many; else 0.

    Slurm pins nodes, not GPUs: only a node that is had as a whole is known to give GPU r to rail r.

    Source:
        Fleet spec, "3D parallel jobs": data-parallel rank r on GPU r mod 8 of every node.
    """
    whole = all(f.node.gpus == share.gpus for f, share in zip(chosen, shares, strict=True))
    counts = {share.gpus for share in shares}
    return counts.pop() if len(chosen) > 1 and whole and len(counts) == 1 else 0


def _gpus_by_type(chosen: Sequence[FreeNode], shares: Sequence[NodeShare]) -> dict[str, int]:
    found: dict[str, int] = {}
    for f, share in zip(chosen, shares, strict=True):
        if share.gpus and f.node.gpu_type:
            found[f.node.gpu_type] = found.get(f.node.gpu_type, 0) + share.gpus
    return found


_ALL_EXCLUDED: Final = "all that would do are excluded"
_ALL_CLOSED: Final = "all that would do are excluded, or reserved"
_NONE_RESERVED: Final = "none in the reservation is right"


def _suitable(job: Job, room: FreeCapacity, partition: str, way: Way) -> Suitable | Reason:
    """Nodes of the right kind, whatever is free on them."""
    found = room.of_kind(Kind.of(job, partition, way))
    if found is ReasonCode.NO_GPU_TYPE:
        return Reason(
            code=found, job=job.name, unit="GPUs", needed=job.total_gpus, detail=hardware(job)
        )
    if found is ReasonCode.NODE_TOO_SMALL:
        nodes = room.nodes_in((partition,))
        return _built_too_small(job, nodes) or _without_gres(job, nodes)
    if found is ReasonCode.NODE_FAILED:
        return Reason(code=found, job=job.name, detail=",".join(job.avoid))
    if isinstance(found, ReasonCode):
        missing = job.constraint or "&".join(sorted(set(job.features)))
        if found is ReasonCode.NO_PARTITION:
            missing = partition
        elif found is ReasonCode.NODES_ASKED:
            missing = _NONE_RESERVED if job.reservation else _ALL_EXCLUDED
            missing = _ALL_CLOSED if job.within and not job.reservation else missing
        return Reason(code=found, job=job.name, detail=missing)
    if not found.nodes:
        needed, name = job.nodes or 1, job.name
        return Reason(
            code=ReasonCode.TOO_FEW_NODES, job=name, needed=needed, unit="nodes", apart=(name,)
        )
    return found


def _built_too_small(job: Job, nodes: Sequence[FreeNode]) -> Reason | None:
    """The part of a node, as sockets, of which none has so much; None: it is not that."""
    shapes = [f.node.shape for f in nodes if f.node.shape is not None]
    lack = largest(shapes).lack(job.shape)
    if lack is None or len(shapes) < len(nodes):
        return None
    unit, wanted, most = lack
    code = ReasonCode.NODE_TOO_SMALL
    return Reason(code=code, job=job.name, needed=wanted, free=most, unit=unit)


def _without_gres(job: Job, nodes: Sequence[FreeNode]) -> Reason:
    """The gres no node has so much of; all of them where each is there, only not on one node."""
    most = {name: max(dict(f.node.gres).get(name, 0) for f in nodes) for name, _ in job.gres}
    for name, amount in job.gres:
        if amount > most[name]:
            return Reason(
                code=ReasonCode.NODE_TOO_SMALL,
                job=job.name,
                needed=amount,
                free=most[name],
                unit=name,
            )
    wanted = ",".join(f"{name}:{amount}" for name, amount in job.gres)
    detail = f"none that is right otherwise has {wanted}"
    return Reason(code=ReasonCode.NODE_TOO_SMALL, job=job.name, detail=detail)


def suitable_nodes(job: Job, room: FreeCapacity, partition: str) -> Sequence[FreeNode]:
    """Nodes of the right kind, whatever is free on them; none where there are none."""
    ways = ways_of(job.constraint)
    by_way = [_suitable(job, room, partition, way) for way in ways]
    groups = [found.nodes for found in by_way if isinstance(found, Suitable)]
    if len(groups) <= 1:
        return groups[0] if groups else ()
    return list({f.node.name: f for nodes in groups for f in nodes}.values())
