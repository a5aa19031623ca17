"""Bounds from below how many victims are needed, so that most partitions are passed over.

It looks at the same jobs in the same order as the choice of victims does, but counts instead of
placing: whose release makes which nodes large enough, and how few victims that can take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil

from federator.model.site import NodeShare
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeNode
from federator.sched.bid.node_selection import bounds, least_share
from federator.sched.bid.running_jobs import Occupant

Bound = tuple[int, int]  # the importance of the most important victim; victims


def can_be_bounded(job: Job) -> bool:
    """Nodes that are large enough by themselves are all that it takes, or a total of GPUs."""
    if job.cpus or job.exclusive or job.gres or job.is_picky:
        return False
    return bool(job.gpus if job.nodes is None else job.gpus_per_node and not job.gpus)


@dataclass(slots=True)
class _Freed:
    """A node on which victims run."""

    gpus: int
    cpus: int
    mem_mib: int
    by: list[tuple[int, int]] = field(default_factory=list)  # GPUs and number of each victim
    enough: bool = False


def least_victims(
    job: Job, nodes: Sequence[FreeNode], candidates: Iterable[Occupant]
) -> tuple[Bound, int] | None:
    """A bound from below on what evicting costs in a partition; None: it is of no use there.

    Args:
        job: see ``can_be_bounded``.
        nodes: of the right kind, whatever is free on them.
        candidates: who may go, in the order of eviction.

    Returns:
        The bound, and the GPUs of all who would be looked at.
    """
    if job.nodes is None:
        return _least_of_total(job, nodes, candidates)
    need = least_share(job)
    least = bounds(need)
    among = {id(f) for f in nodes}
    missing = (job.nodes or 1) - sum(f.has(need) for f in nodes)
    touched: dict[int, _Freed] = {}
    opened: list[tuple[FreeNode, _Freed]] = []
    gpus = 0
    for number, victim in enumerate(candidates):
        gpus += victim.gpus
        for f, share in victim.shares:
            if id(f) not in among:
                continue
            freed = touched.get(id(f))
            if freed is None:
                fits = f.has(need)
                freed = touched[id(f)] = _Freed(f.gpus, f.cpus, f.mem_mib, enough=fits)
            _give(freed, share, number)
            if (
                not freed.enough
                and freed.gpus >= least[0]
                and freed.cpus >= least[1]
                and freed.mem_mib >= least[2]
            ):
                freed.enough = True
                opened.append((f, freed))
        if len(opened) >= missing:
            return (victim.importance, _fewest(opened, missing, need.gpus)), gpus
    return None


def _least_of_total(
    job: Job, nodes: Sequence[FreeNode], candidates: Iterable[Occupant]
) -> tuple[Bound, int] | None:
    """As if every GPU that is free, or comes free, were of use."""
    among = {id(f) for f in nodes}
    missing = job.gpus - sum(max(0, f.gpus) for f in nodes)
    sizes: list[int] = []
    freed = gpus = 0
    for victim in candidates:
        gpus += victim.gpus
        size = sum(share.gpus for f, share in victim.shares if id(f) in among)
        sizes.append(size)
        freed += size
        if freed >= missing:
            break
    else:
        return None
    count = 0
    for size in sorted(sizes, reverse=True):
        if missing <= 0:
            break
        missing, count = missing - size, count + 1
    return (victim.importance, max(1, count)), gpus


def _give(freed: _Freed, share: NodeShare, number: int) -> None:
    freed.gpus += share.gpus
    freed.cpus += share.cpus
    freed.mem_mib += share.mem_mib
    freed.by.append((share.gpus, number))


def _fewest(opened: Sequence[tuple[FreeNode, _Freed]], missing: int, gpus: int) -> int:
    """No fewer victims than this open so many nodes; one may count for several nodes."""
    spans = Counter(number for _, freed in opened for _, number in freed.by)
    parts = []
    for f, freed in opened:
        left, count = gpus - f.gpus, 0
        for amount, _ in sorted(freed.by, reverse=True):
            if left <= 0:
                break
            left, count = left - amount, count + 1
        parts.append(max(1, count) / max(spans[number] for _, number in freed.by))
    parts.sort()
    return ceil(sum(parts[:missing]) - 1e-9)
