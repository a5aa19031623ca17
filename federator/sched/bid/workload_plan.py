"""Plans all jobs of a workload together: all of them are placed at one site, or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from federator.model.gres import plus
from federator.model.license import Licenses
from federator.model.plan import Bid
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import Job
from federator.sched.bid.distinct_nodes import too_few_nodes
from federator.sched.bid.forced_nodes import crowded_out
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.placement import Placed, fits_somewhere, place_in, place_job
from federator.sched.bid.score import total

FEWEST_ORDERS: Final = 4  # in which the jobs of one workload are tried, when one finds no place
PLACEMENTS: Final = 256  # of the jobs of one workload, beyond which no more orders are tried
Reasons = tuple[Reason, ...]


def place_all(jobs: Sequence[Job], room: FreeCapacity, partitions: Sequence[str]) -> Bid | Reasons:
    """Place all jobs of a workload, no two on one node, or none.

    On success ``free_capacity`` has lost what the bid holds; else it is as it was.
    """
    # The largest first: a small component must not take the node that a gang needs. Whoever then
    # finds no place is tried before all others, unless that comes to an order tried before.
    tried: set[tuple[Job, ...]] = set()
    reasons: Reasons = ()
    order = first_order(jobs)
    for _ in range(orders_to_try(len(jobs))):
        result = _place_in_order(jobs, order, room, partitions)
        if isinstance(result, Bid):
            return result
        unplaced, reasons = result
        tried.add(tuple(jobs[k] for k in order))
        if len(tried) == 1 and len(jobs) > 1:
            short = _short_in_total(jobs, room, partitions)
            if short is not None:
                return (short,) if unplaced != order[0] else reasons
        order = [unplaced, *(k for k in order if k != unplaced)]
        if tuple(jobs[k] for k in order) in tried:
            break
    return reasons if len(jobs) == 1 else _in_any_partitions(jobs, room, partitions) or reasons


def first_order(jobs: Sequence[Job]) -> list[int]:
    """The largest first."""
    return sorted(range(len(jobs)), key=lambda k: (-jobs[k].total_gpus, -(jobs[k].nodes or 1), k))


def _in_any_partitions(
    jobs: Sequence[Job], room: FreeCapacity, partitions: Sequence[str]
) -> Bid | None:
    """Place all jobs, each in whichever partition leaves the others a place.

    ``PLACEMENTS`` single placements are tried, so that few jobs and partitions are tried in full.
    """
    order = first_order(jobs)
    found: dict[int, Placed] = {}
    left = PLACEMENTS

    def rest(position: int) -> bool:
        nonlocal left
        if position == len(order):
            return True
        job = jobs[order[position]]
        options = []
        for partition in partitions:
            if left and (not job.partitions or partition in job.partitions):
                left -= 1
                options.append(place_in(job, room, partition))
        placed = [option for option in options if isinstance(option, Placed)]
        for option in sorted(placed, key=lambda option: option.terms):
            room.assign(option.plan)
            found[order[position]] = option
            if rest(position + 1):
                return True
            room.unassign(option.plan)
        return False

    return _bid(jobs, found, room) if rest(0) else None


def _bid(jobs: Sequence[Job], found: Mapping[int, Placed], room: FreeCapacity) -> Bid:
    room.settle()
    with_gpus = any(job.total_gpus for job in jobs)
    score = total((p.score for p in found.values()), with_gpus=with_gpus)
    plans = tuple(found[k].plan for k in range(len(jobs)))
    return Bid(score=score, jobs=plans, cost=sum(p.cost for p in found.values()))


def orders_to_try(jobs: int) -> int:
    """As many as there are jobs, so that each may go first; fewer when they are very many."""
    return max(FEWEST_ORDERS, min(jobs, PLACEMENTS // max(1, jobs)))


def _short_in_total(
    jobs: Sequence[Job], room: FreeCapacity, partitions: Sequence[str]
) -> Reason | None:
    """The amount that all jobs need and all nodes together do not have; None: nothing."""
    nodes = room.nodes_in(tuple(partitions))
    cpus = sum(max(job.cpus, max(1, job.cpus_per_node) * (job.nodes or 1)) for job in jobs)
    for unit, needed, free in (
        ("GPUs", sum(job.total_gpus for job in jobs), sum(max(0, f.gpus) for f in nodes)),
        ("CPUs", cpus, sum(max(0, f.cpus) for f in nodes)),
    ):
        if needed > free:
            return Reason(code=ReasonCode.TOO_FEW_NODES, needed=needed, free=free, unit=unit)
    wanted: Licenses = ()
    for job in jobs:
        wanted = plus(wanted, job.licenses)
    for name, amount in wanted:
        there = room.licenses.get(name, 0)
        if amount > there:
            return Reason(code=ReasonCode.LICENSES, needed=amount, free=there, unit=name)
    return too_few_nodes(jobs, room, partitions)


def _place_in_order(
    jobs: Sequence[Job], order: Sequence[int], room: FreeCapacity, partitions: Sequence[str]
) -> Bid | tuple[int, Reasons]:
    """As ``place_all``, in one order; else the first job without a place, and why."""
    found: dict[int, Placed] = {}
    for k in order:
        result = place_job(jobs[k], room, partitions)
        if not isinstance(result, Placed):
            for placed in found.values():
                room.unassign(placed.plan)
            return k, result
        room.assign(result.plan)
        found[k] = result
    return _bid(jobs, found, room)


def anywhere(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """The jobs, on whatever nodes; in a row only where every row is tried."""
    bare = tuple(map(_anywhere, jobs))
    return jobs if bare == jobs else bare


def _anywhere(job: Job) -> Job:
    not_all_tried = job.contiguous and bool(job.gpus or job.cpus or job.constraint)
    if not (job.avoid or job.within or job.switches or not_all_tried):
        return job
    in_a_row = job.contiguous and not not_all_tried
    return replace(job, avoid=(), within=(), switches=0, contiguous=in_a_row)


def no_such_qos(jobs: Sequence[Job], known: Collection[str] | None) -> Refusal | None:
    """Refuse for good a QOS that the site does not have; None where it does not say which it has.

    Slurm makes no difference between capitals and small letters. Of several in one value
    (26.05) one that is known is enough here: sbatch judges the others.
    """
    if known is None:
        return None
    names = {name.lower() for name in known}
    for job in jobs:
        if job.qos and names.isdisjoint(job.qos.lower().split(",")):
            reason = Reason(code=ReasonCode.NO_QOS, job=job.name, detail=job.qos)
            return Refusal(kind=RefusalKind.REJECT, reasons=(reason,))
    return None


def never_fits(
    jobs: Sequence[Job], empty: FreeCapacity, partitions: Sequence[str]
) -> Refusal | None:
    """Refuse for good what would not fit even an empty site; None when it may.

    Of several jobs that is said only on proof: one of them does not fit alone, or beside the nodes
    that others must have, or all together need more than there is. The search for a place is not
    exhaustive.

    Nodes that it avoids count: it avoids them for a while only.

    Args:
        jobs: of one workload.
        empty: room on all of the site's ``Capacity``; afterwards it is as it was.
        partitions: those the federation may use.
    """
    reasons: Reasons = ()
    jobs = anywhere(tuple(jobs))
    for job in jobs:
        missing = [name for name in job.nodelist if name not in empty.by_name]
        if missing:
            unknown = Reason(code=ReasonCode.NO_NODE, job=job.name, detail=",".join(missing[:8]))
            return Refusal(kind=RefusalKind.REJECT, reasons=(unknown,))
    for job in jobs:
        if not fits_somewhere(job, empty, partitions):
            found = place_job(job, empty, partitions)
            reasons = () if isinstance(found, Placed) else found
            break
    if not reasons and len(jobs) > 1:
        short = _short_in_total(jobs, empty, partitions) or crowded_out(jobs, empty, partitions)
        reasons = () if short is None else (short,)
    return Refusal(kind=RefusalKind.REJECT, reasons=reasons) if reasons else None
