"""Where do all jobs of a workload go together? All of them are placed at one site, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from federator.model.plan import Bid, Score
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import Job
from federator.sched.placement import Placed, fits_somewhere, place_job
from federator.sched.room import Room

FEWEST_ORDERS: Final = 4  # in which the jobs of one workload are tried, when one finds no place
PLACEMENTS: Final = 256  # of the jobs of one workload, beyond which no more orders are tried
Reasons = tuple[Reason, ...]


def place_all(jobs: Sequence[Job], room: Room, partitions: Sequence[str]) -> Bid | Reasons:
    """Place all jobs of a workload or none; on success ``room`` has lost what the bid holds."""
    # The largest first: a small component must not take the node that a gang needs. Whoever then
    # finds no place is tried before all others, unless that comes to an order tried before.
    order = sorted(range(len(jobs)), key=lambda k: (-jobs[k].total_gpus, -(jobs[k].nodes or 1), k))
    if len(jobs) > 1 and (short := _short_in_total(jobs, room, partitions)) is not None:
        alone = place_job(jobs[order[0]], room, partitions)
        return (short,) if isinstance(alone, Placed) else alone
    shapes = [replace(job, name="") for job in jobs]
    tried: set[tuple[Job, ...]] = set()
    reasons: Reasons = ()
    for _ in range(orders_to_try(len(jobs))):
        result = _place_in_order(jobs, order, room, partitions)
        if isinstance(result, Bid):
            return result
        unplaced, reasons = result
        tried.add(tuple(shapes[k] for k in order))
        order = [unplaced, *(k for k in order if k != unplaced)]
        if tuple(shapes[k] for k in order) in tried:
            break
    return reasons


def orders_to_try(jobs: int) -> int:
    """As many as there are jobs, so that each may go first; fewer when they are very many."""
    return max(FEWEST_ORDERS, min(jobs, PLACEMENTS // max(1, jobs)))


def _short_in_total(jobs: Sequence[Job], room: Room, partitions: Sequence[str]) -> Reason | None:
    """What all jobs together need at the least and all nodes together have not; None: nothing."""
    nodes = room.nodes_in(tuple(partitions))
    cpus = sum(max(job.cpus, max(1, job.cpus_per_node) * (job.nodes or 1)) for job in jobs)
    for unit, needed, free in (
        ("nodes", sum(job.nodes or 1 for job in jobs if job.exclusive), len(nodes)),
        ("GPUs", sum(job.total_gpus for job in jobs), sum(f.gpus for f in nodes)),
        ("CPUs", cpus, sum(f.cpus for f in nodes)),
    ):
        if needed > free:
            return Reason(code=ReasonCode.TOO_FEW_NODES, needed=needed, free=free, unit=unit)
    return None


def _place_in_order(
    jobs: Sequence[Job], order: Sequence[int], room: Room, partitions: Sequence[str]
) -> Bid | tuple[int, Reasons]:
    """As ``place_all``, in one order; else the first job without a place, and why."""
    found: dict[int, Placed] = {}
    for k in order:
        result = place_job(jobs[k], room, partitions)
        if not isinstance(result, Placed):
            for placed in found.values():
                room.give_back(placed.plan)
            return k, result
        room.take(result.plan)
        found[k] = result
    score = Score(*(sum(terms) for terms in zip(*(p.score for p in found.values()), strict=True)))
    return Bid(score=score, jobs=tuple(found[k].plan for k in range(len(jobs))))


def never_fits(jobs: Sequence[Job], empty: Room, partitions: Sequence[str]) -> Refusal | None:
    """Refuse for good what would not fit even an empty site; None when it would.

    Args:
        jobs: of one workload.
        empty: room on all of the site's ``Capacity``; afterwards it is as it was.
        partitions: those the federation may use.
    """
    if len(jobs) == 1 and fits_somewhere(jobs[0], empty, partitions):
        return None
    result = place_all(jobs, empty, partitions)
    if isinstance(result, Bid):
        for plan in result.jobs:
            empty.give_back(plan)
        return None
    return Refusal(kind=RefusalKind.REJECT, reasons=result)
