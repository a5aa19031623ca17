"""Selects a job's nodes among the suitable ones: one rack or the nearest, the tightest fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from itertools import accumulate
from operator import attrgetter
from typing import Final

from federator.model.constraint import Way
from federator.model.gres import covers
from federator.model.reason import Reason, ReasonCode
from federator.model.site import NodeShare
from federator.model.workload import MAX_AMOUNT, Job
from federator.sched.bid.asked_nodes import choose_asked, not_to_be_had
from federator.sched.bid.cells import broken_cell
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.free_capacity import SINGLE_NODE, FreeNode, NodesOfKind, tightness
from federator.sched.bid.racks import Racks, cheapest, levels

_free_gpus: Final = attrgetter("gpus")
_free_cpus: Final = attrgetter("cpus")
_free_mem: Final = attrgetter("mem_mib")


def choose(job: Job, suitable: list[FreeNode], fabric: Fabric, way: Way) -> list[FreeNode] | Reason:
    """The nodes for a job, or what stands against it.

    Args:
        job: what is asked for.
        suitable: nodes of the right kind, at least one, whatever is free on them.
        fabric: how they are connected.
        way: the one in which its constraint is to be satisfied.
    """
    if job.nodelist or way.counted:
        return _choose_asked(job, suitable, fabric, way)
    if job.nodes is None:
        return _choose_fewest(job, suitable, fabric)
    return _choose_fixed(job, suitable, fabric)


def _choose_asked(
    job: Job, suitable: list[FreeNode], fabric: Fabric, way: Way
) -> list[FreeNode] | Reason:
    """As ``choose``, of a job that asks for nodes by name, or counts some of a kind."""
    least = least_share(job)
    fitting = nodes_fitting(job, least, suitable)
    lack = not_to_be_had(job, suitable, fitting)
    if lack is not None:
        return lack
    if not fitting:
        return _too_small(job, least, suitable)
    freest = partial(_freest_first, job) if _has_totals(job) else None
    several = [f for f in fitting if SINGLE_NODE not in f.node.features]
    for nodes in (fitting, several) if job.nodes is None else (fitting,):
        if not_to_be_had(job, nodes, nodes) is not None:
            break
        found = choose_asked(job, way, nodes, fabric, freest, partial(_hold_totals, job))
        if len(found) == 1 or (found and len(nodes) == len(several)):
            return found
        if found and job.nodes is not None:
            return found
    return Reason(
        code=ReasonCode.TOO_FEW_NODES,
        job=job.name,
        needed=max(job.nodes or 1, len(job.nodelist), way.counted_nodes),
        unit="nodes",
        free=len(fitting),
        detail=job.constraint or _per_node(job, least),
    )


def _freest_first(job: Job, nodes: Sequence[FreeNode]) -> list[FreeNode]:
    return _freest(job, list(nodes), len(nodes))


def share_per_node(job: Job) -> NodeShare:
    """The least share that every node must give."""
    return NodeShare(
        gpus=job.gpus_per_node,
        cpus=max(1, job.cpus_per_node),
        mem_mib=memory_with(job, job.gpus_per_node, max(1, job.cpus_per_node)),
        gres=job.gres,
    )


def memory_with(job: Job, gpus: int, cpus: int) -> int:
    """The MiB that a node must give beside so many GPUs and CPUs."""
    of_totals = max(job.mem_mib_per_cpu * cpus, job.mem_mib_per_gpu * gpus)
    return max(job.mem_mib_per_node, of_totals)


def least_share(job: Job) -> NodeShare:
    """The least free share that is of any use; of a GPU total, one tensor-parallel group."""
    need = share_per_node(job)
    if not job.gpus or need.gpus >= job.tensor_parallel:
        return need
    mem_mib = memory_with(job, job.tensor_parallel, need.cpus)
    return replace(need, gpus=job.tensor_parallel, mem_mib=mem_mib)


def hardware(job: Job) -> str:
    """The required GPUs, e.g. ``a100|h100 with NVLink and 40 GiB``; "" when any will do."""
    wanted = ["NVLink"] if job.nvlink else []
    wanted += [f"{job.min_gpu_mem_gib:g} GiB"] if job.min_gpu_mem_gib else []
    types = "|".join(job.gpu_types)
    if not wanted:
        return types
    return f"{types or 'any type'} with {' and '.join(wanted)}"


def bounds(need: NodeShare) -> tuple[int, int, int]:
    """The least that must be free of each: of what is not needed, less than none may be."""
    return need.gpus or -MAX_AMOUNT, need.cpus or -MAX_AMOUNT, need.mem_mib or -MAX_AMOUNT


def nodes_fitting(job: Job, need: NodeShare, suitable: Sequence[FreeNode]) -> list[FreeNode]:
    """The nodes that have so much free."""
    gpus, cpus, mem_mib = bounds(need)  # a site has thousands of nodes
    found = [f for f in suitable if f.gpus >= gpus and f.cpus >= cpus and f.mem_mib >= mem_mib]
    if need.gres:
        found = [f for f in found if covers(f.gres, need.gres)]
    return [f for f in found if f.untouched] if job.exclusive else found


def _rack_tightness(rack: list[FreeNode]) -> tuple[int, int, str]:
    return sum(map(_free_gpus, rack)), len(rack), rack[0].node.name


def _keeps_cells(suitable: list[FreeNode]) -> bool:
    return isinstance(suitable, NodesOfKind) and suitable.cells


def _tightest_of(nodes: list[FreeNode], gpus: int, cells: bool) -> FreeNode:
    """The one that so many GPUs are taken from."""
    if cells and gpus:
        return min(nodes, key=lambda f: (broken_cell(f.gpus, gpus), tightness(f)))
    return min(nodes, key=tightness)


def _racks(nodes: Iterable[FreeNode]) -> Racks:
    racks: Racks = {}
    for f in nodes:
        racks.setdefault(f.node.switch, []).append(f)
    return racks


def _tightest(job: Job, suitable: list[FreeNode]) -> FreeNode | None:
    """The one node that a job takes; a group remembers it for those that need numbers alone."""
    need = least_share(job)
    if job.exclusive or job.gres:
        suitable = NodesOfKind(nodes_fitting(job, need, suitable), _keeps_cells(suitable))
    group = suitable if isinstance(suitable, NodesOfKind) else NodesOfKind(suitable)
    return group.tightest(bounds(need))


def _choose_fixed(job: Job, suitable: list[FreeNode], fabric: Fabric) -> list[FreeNode] | Reason:
    """Take ``job.nodes`` nodes: from the tightest rack that has them all, else the cheapest way."""
    count, need = job.nodes or 1, least_share(job)
    if count == 1 and not _has_totals(job):
        tightest = _tightest(job, suitable)
        return _too_small(job, need, suitable) if tightest is None else [tightest]
    fitting = nodes_fitting(job, need, suitable)
    if not fitting:
        return _too_small(job, need, suitable)
    racks = _racks(fitting)
    whole = [rack for rack in racks.values() if _covers(job, rack, count)]
    if whole:
        cells = _keeps_cells(suitable)
        rack = min(whole, key=lambda r: (broken_cell(len(r), count) * cells, _rack_tightness(r)))
        return _pick(job, rack, count)
    if not _covers(job, fitting, count):
        return Reason(
            code=ReasonCode.TOO_FEW_NODES,
            job=job.name,
            needed=count,
            unit="nodes",
            free=len(fitting),
            largest_rack=max(map(len, racks.values())),
            detail=_per_node(job, need),
        )
    if _has_totals(job):
        for level in levels(racks, fabric):
            groups = [[f for rack in d.racks.values() for f in rack] for d in level]
            covering = [group for group in groups if _covers(job, group, count)]
            if covering:
                return _closer(job, _pick(job, min(covering, key=len), count), fitting, fabric)
    return cheapest(
        racks, count, fabric, tightness, together=_nodes_of_replica(job, job.gpus_per_node)
    )


def _nodes_of_replica(job: Job, each: int) -> int:
    """Whole nodes that the pipeline stages of one replica fill; 1: nothing to keep together.

    Source:
        Fleet spec, "3D parallel jobs": consecutive pipeline stages in one rack. Slurm numbers a
        job's nodes in the site's order, so that ranks follow racks as far as that order does.
    """
    gpus = job.tensor_parallel * job.pipeline_stages
    return gpus // each if job.pipeline_stages > 1 and each and gpus % each == 0 else 1


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
    if (job.tensor_parallel > 1 or job.mem_mib_per_gpu) and sum(
        whole_groups(job, f) for f in nodes
    ) < job.gpus:
        return False
    return sum(whole_cpus(job, f) for f in nodes) >= job.cpus if job.cpus else True


def whole_groups(job: Job, f: FreeNode) -> int:
    """GPUs of a node that a total can use: a tensor-parallel group stays on one node."""
    gpus = f.gpus
    if job.mem_mib_per_gpu:
        gpus = min(gpus, max(0, f.mem_mib) // job.mem_mib_per_gpu)
    return gpus - gpus % job.tensor_parallel


def whole_cpus(job: Job, f: FreeNode) -> int:
    """CPUs of a node that a total can use: tasks take theirs (``cpus_per_node``) on one node."""
    cpus = f.cpus
    if job.mem_mib_per_cpu:
        cpus = min(cpus, max(0, f.mem_mib) // job.mem_mib_per_cpu)
    return cpus - cpus % max(1, job.cpus_per_node)


def _pick(job: Job, nodes: list[FreeNode], count: int) -> list[FreeNode]:
    """The tightest ``count`` nodes, or the freest where a total must be covered."""
    if _has_totals(job):
        return _freest(job, nodes, count)
    return nsmallest(count, nodes, key=tightness)


def _freest(job: Job, nodes: list[FreeNode], count: int) -> list[FreeNode]:
    """The ``count`` with the most of what ``job`` wants in total, those with the most first."""
    if job.gpus:
        return nsmallest(count, nodes, key=lambda f: (-whole_groups(job, f), -f.cpus, f.node.name))
    return nsmallest(
        count, nodes, key=lambda f: (-whole_cpus(job, f), -f.cpus, -f.gpus, f.node.name)
    )


def _choose_fewest(job: Job, suitable: list[FreeNode], fabric: Fabric) -> list[FreeNode] | Reason:
    """Take the fewest nodes that hold the totals; one rack before several, tight before wide."""
    least = least_share(job)
    fitting = nodes_fitting(job, least, suitable)
    if not fitting:
        return _too_small(job, least, suitable)
    closing = _closing(job, fitting, job.gpus, job.cpus)
    if closing:
        return [_tightest_of(closing, job.gpus, _keeps_cells(suitable))]
    several = [f for f in fitting if SINGLE_NODE not in f.node.features]
    if not several:
        return Reason(code=ReasonCode.NODE_FAILED, job=job.name, detail=",".join(job.avoid))
    fitting, racks = several, _racks(several)
    found = _fewest_of_each(job, racks.values())
    for level in () if found else levels(racks, fabric):
        groups = ([f for rack in d.racks.values() for f in rack] for d in level)
        found = _fewest_of_each(job, groups)
        if found:
            break
    if not found:
        return _too_few_in_total(job, fitting, racks)
    fewest = min(found, key=lambda c: (len(c), sum(map(_free_gpus, c)), sum(map(_free_cpus, c))))
    return _closer(job, fewest, fitting, fabric)


def choose_sparing(job: Job, suitable: list[FreeNode], fabric: Fabric) -> list[FreeNode]:
    """Nodes for a job without GPUs, as few as can be of those that have GPUs free.

    Nodes without GPUs count first, then those whose GPUs are all in use, then the rest; of the
    first kind that completes the job so few are taken as it takes, whatever the racks.

    Args:
        job: it has no GPUs, and finds room on all of these nodes together.
        suitable: as of ``choose``.
        fabric: how they are connected.

    Returns:
        The nodes, those with GPUs last, so that these give no more CPUs than the others lack; or
        none, where this way finds none.
    """
    fitting = nodes_fitting(job, least_share(job), suitable)
    if job.nodes is None:
        fitting = [f for f in fitting if SINGLE_NODE not in f.node.features]
    kinds: tuple[list[FreeNode], ...] = ([], [], [])
    for f in fitting:
        kinds[0 if not f.node.gpus else 1 if f.gpus <= 0 else 2].append(f)
    first, *others = kinds
    for kind in others:
        if kind:
            chosen = (
                _complete_totals(job, first, kind)
                if _has_totals(job)
                else _complete(job.nodes or 1, first, kind, fabric)
            )
            if chosen:
                return chosen
            first = first + kind
    return []


def _complete(
    count: int, first: list[FreeNode], others: list[FreeNode], fabric: Fabric
) -> list[FreeNode]:
    """All of ``first``, and of the others those with the fewest free GPUs, near to each other."""
    missing = count - len(first)
    if not 0 < missing <= len(others):
        return []
    most = nsmallest(missing, map(_free_gpus, others))[-1]
    sure = [f for f in others if f.gpus < most]
    equal = [f for f in others if f.gpus == most]
    return [*first, *sure, *cheapest(_racks(equal), missing - len(sure), fabric, tightness)]


def _complete_totals(job: Job, first: list[FreeNode], others: list[FreeNode]) -> list[FreeNode]:
    """The fewest of the others with which the CPUs are held; then the fewest of ``first``."""

    def freest_first(nodes: list[FreeNode]) -> list[FreeNode]:
        return sorted(nodes, key=lambda f: (-whole_cpus(job, f), f.gpus, f.node.name))

    first, others = freest_first(first), freest_first(others)
    of_first = list(accumulate((whole_cpus(job, f) for f in first), initial=0))
    of_others = accumulate(whole_cpus(job, f) for f in others)
    for k, cpus in enumerate(of_others, start=1):
        beside = len(first) if job.nodes is None else job.nodes - k
        if beside < 0:
            break
        if beside <= len(first) and of_first[beside] + cpus >= job.cpus:
            left = job.cpus - of_first[beside] - cpus + whole_cpus(job, others[k - 1])
            taken = [*others[: k - 1], _tightest_with(job, others[k - 1 :], left)]
            left = job.cpus - sum(whole_cpus(job, f) for f in taken)
            return [*(first[:beside] if job.nodes else _fewest_with(job, first, left)), *taken]
    return []


def _fewest_with(job: Job, freest_first: list[FreeNode], cpus: int) -> list[FreeNode]:
    """The fewest of the nodes that have so many CPUs together, the last one the tightest."""
    for k, freest in enumerate(freest_first):
        if cpus <= 0:
            return freest_first[:k]
        if whole_cpus(job, freest) >= cpus:
            return [*freest_first[:k], _tightest_with(job, freest_first[k:], cpus)]
        cpus -= whole_cpus(job, freest)
    return freest_first


def _tightest_with(job: Job, nodes: list[FreeNode], cpus: int) -> FreeNode:
    return min((f for f in nodes if whole_cpus(job, f) >= cpus), key=tightness)


def _closer(
    job: Job, chosen: list[FreeNode], fitting: list[FreeNode], fabric: Fabric
) -> list[FreeNode]:
    """As many nodes nearer to each other, if all of them have the largest of the shares."""
    if len({f.node.switch for f in chosen}) == 1:
        return chosen
    shares = spread(job, chosen)
    gpus, cpus = max(s.gpus for s in shares), max(s.cpus for s in shares)
    able = [f for f in fitting if whole_groups(job, f) >= gpus and whole_cpus(job, f) >= cpus]
    if len(able) < len(chosen):
        return chosen
    together = _nodes_of_replica(job, gpus)
    if len(chosen) % together:
        together = 1
    other = cheapest(_racks(able), len(chosen), fabric, tightness, together)
    return min(chosen, other, key=lambda nodes: fabric.locality_cost(_units(job, nodes)))


def _units(job: Job, nodes: list[FreeNode]) -> dict[str, list[int]]:
    units: dict[str, list[int]] = {}
    for f, share in zip(nodes, spread(job, nodes), strict=True):
        units.setdefault(f.node.switch, []).append(share.gpus or 1)
    return units


def _fewest_of_each(job: Job, groups: Iterable[list[FreeNode]]) -> list[list[FreeNode]]:
    options = (_fewest_of(job, group) for group in groups)
    return [option for option in options if option is not None]


def _fewest_of(job: Job, nodes: list[FreeNode]) -> list[FreeNode] | None:
    """Freest nodes first until the totals are held; the last one is the tightest that does."""
    if not _hold_totals(job, nodes):
        return None
    gpus, cpus = job.gpus, job.cpus
    left = _freest(job, nodes, len(nodes))
    most = job.gpus // job.tensor_parallel if job.gpus else len(left)  # each gives a group
    for k, freest in enumerate(left[:most]):
        closing = _closing(job, left[k:], gpus, cpus) if _may_close(job, freest, gpus, cpus) else []
        if closing:
            return [*left[:k], min(closing, key=tightness)]
        gpus, cpus = (
            max(0, gpus - whole_groups(job, freest)),
            max(0, cpus - whole_cpus(job, freest)),
        )
    return None


def _may_close(job: Job, freest: FreeNode, gpus: int, cpus: int) -> bool:
    """False when not even the node with the most of what is wanted holds what is left of it."""
    return whole_groups(job, freest) >= gpus if job.gpus else whole_cpus(job, freest) >= cpus


def _closing(job: Job, nodes: list[FreeNode], gpus: int, cpus: int) -> list[FreeNode]:
    """Those that hold so much alone."""
    found = [f for f in nodes if f.gpus >= gpus and f.cpus >= cpus]
    if gpus and job.mem_mib_per_gpu:
        found = [f for f in found if whole_groups(job, f) >= gpus]
    return [f for f in found if whole_cpus(job, f) >= cpus] if cpus else found


def spread(job: Job, chosen: list[FreeNode]) -> list[NodeShare]:
    """Share the totals out, as much as each node has, leaving the per-node minimum for the rest.

    Every node of ``chosen`` has ``least_share`` free, and all together have the totals.
    """
    need, least_gpus = share_per_node(job), least_share(job).gpus
    if not _has_totals(job):
        return [need] * len(chosen)
    gpus, cpus = job.gpus, job.cpus
    shares: list[NodeShare] = []
    for k, f in enumerate(chosen):
        rest = len(chosen) - k - 1
        g = max(need.gpus, min(whole_groups(job, f), max(0, gpus - rest * least_gpus)))
        c = max(need.cpus, min(whole_cpus(job, f), max(0, cpus - rest * need.cpus)))
        gpus, cpus = max(0, gpus - g), max(0, cpus - c)
        shares.append(NodeShare(gpus=g, cpus=c, mem_mib=memory_with(job, g, c), gres=need.gres))
    return shares


def _too_small(job: Job, need: NodeShare, suitable: list[FreeNode]) -> Reason:
    """The one amount that even the best node lacks (GPUs, CPUs, memory, then other gres)."""
    for unit, wanted, free in (
        ("GPUs", need.gpus, _free_gpus),
        ("CPUs", need.cpus, _free_cpus),
        ("MiB", need.mem_mib, _free_mem),
    ):
        best = max(map(free, suitable))
        if wanted > best:
            return Reason(
                code=ReasonCode.NODE_TOO_SMALL,
                job=job.name,
                needed=wanted,
                free=max(0, best),
                unit=unit,
                detail=hardware(job) if unit == "GPUs" else "",
            )
    for name, amount in need.gres:
        best = max(f.gres.get(name, 0) for f in suitable)
        if amount > best:
            return Reason(
                code=ReasonCode.NODE_TOO_SMALL,
                job=job.name,
                needed=amount,
                free=max(0, best),
                unit=name,
            )
    return Reason(
        code=ReasonCode.TOO_FEW_NODES,
        job=job.name,
        needed=job.nodes or 1,
        free=0,
        unit="nodes",
        detail=_per_node(job, need),
    )


def _too_few_in_total(job: Job, fitting: list[FreeNode], racks: Racks) -> Reason:
    wanted, unit, free = (
        (job.gpus, "GPUs", _free_gpus) if job.gpus else (job.cpus, "CPUs", _free_cpus)
    )
    if (job.mem_mib_per_cpu or job.mem_mib_per_gpu) and sum(map(free, fitting)) >= wanted:
        wanted, unit, free = job.total_mem_mib, "MiB", _free_mem
    return Reason(
        code=ReasonCode.TOO_FEW_NODES,
        job=job.name,
        needed=wanted,
        unit=unit,
        free=sum(map(free, fitting)),
        free_nodes=len(fitting),
        largest_rack=max(sum(map(free, rack)) for rack in racks.values()),
        detail=hardware(job) if unit == "GPUs" else "",
    )


def _per_node(job: Job, need: NodeShare) -> str:
    if job.exclusive:
        return "wholly free"
    if need.gpus:
        wanted = hardware(job)
        return f"{need.gpus} GPUs of {wanted}" if wanted else f"{need.gpus} GPUs"
    return f"{need.cpus} CPUs"
