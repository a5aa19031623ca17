"""Finds small jobs whose move to other nodes of the site makes room for a gang.

A gang finds no room though enough GPUs are free, because small jobs keep nodes half used. Those on
the nodes that cost least to empty go on at other nodes of the same kind. Nobody is left without a
place: the gang's and theirs are found in one step, or there is no plan.

Source:
    The rule, benefit above lost work, is the specification's (``Backfill``, ``defragmentation``);
    what it leaves open is chosen here: one-node jobs only, the cheapest nodes, the tightest places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from federator.model.gres import covers
from federator.model.plan import Bid, NodeMove
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.bid.node_selection import bounds, least_share
from federator.sched.bid.placement import Placed, place_in, short_of_licenses, suitable_nodes
from federator.sched.bid.reservation import Held, lift
from federator.sched.bid.running_jobs import Occupant, Occupants
from federator.sched.bid.score import harm_of_victims, total, with_harm


class MoveLimits(NamedTuple):
    """Who may move for a request."""

    most: int  # so many
    priority: int  # nobody who is more important
    now_s: float  # Unix time; nobody who is spared then


class _Emptied(NamedTuple):
    """A node that has room once some have left it."""

    cost_gpu_s: float
    name: str
    movers: tuple[Occupant, ...]


def plan_with_moves(
    jobs: Sequence[Job],
    room: FreeCapacity,
    partitions: Sequence[str],
    occupants: Occupants,
    limits: MoveLimits,
) -> Bid | None:
    """Place a workload of one job on nodes that others leave for other nodes; None: it is no use.

    On success its plan is taken from the room, and the movers, its victims, are marked as evicted,
    as of ``preemption.plan_with_victims``. Their places are not taken: a request that may have
    others move is the only one of its message. On failure all is as it was.

    Args:
        jobs: of the workload. Of several, or of GPUs over any number of nodes, there is no plan.
        room: of the site.
        partitions: those the federation may use, in order of preference.
        occupants: who runs there.
        limits: on who may move.
    """
    if len(jobs) != 1 or jobs[0].nodes is None or not jobs[0].total_gpus:
        return None
    (job,) = jobs
    if short_of_licenses(job, room) is not None:
        return None
    for partition in partitions:
        if not job.partitions or partition in job.partitions:
            found = _plan_in(job, room, partition, occupants, limits)
            if found is not None:
                return found
    return None


def _plan_in(
    job: Job, room: FreeCapacity, partition: str, occupants: Occupants, limits: MoveLimits
) -> Bid | None:
    nodes = suitable_nodes(job, room, partition)
    if sum(max(0, f.gpus) for f in nodes) < job.total_gpus:
        return None  # they are not scattered, they are in use
    missing = (job.nodes or 1) - sum(_has_room(f, job) for f in nodes)
    now_s = limits.now_s
    movable = occupants.movable(partition, limits.priority, now_s)
    movers = _movers(_emptied_nodes(job, nodes, movable, now_s), missing, limits.most)
    if not movers:
        return None
    for mover in movers:
        mover.release()
    placed = place_in(job, room, partition)
    moves: tuple[NodeMove, ...] | None = None
    if isinstance(placed, Placed):
        room.take(placed.plan)
        moves = _places(movers, room, set(placed.plan.nodes))
    for mover in movers:
        mover.restore()
    if not isinstance(placed, Placed) or moves is None:
        if isinstance(placed, Placed):
            room.release(placed.plan)
        return None
    for mover in movers:
        mover.evicted = True
    score = total((placed.score,), with_gpus=True)
    victims = tuple(mover.job.id for mover in movers)
    score = with_harm(score, harm_of_victims(movers, now_s))
    return Bid(score=score, jobs=(placed.plan,), victims=victims, moves=moves)


def _has_room(f: FreeNode, job: Job) -> bool:
    """Tell whether the job's part of one node is free on it."""
    need = least_share(job)
    gpus, cpus, mem_mib = bounds(need)
    return (
        f.gpus >= gpus
        and f.cpus >= cpus
        and f.mem_mib >= mem_mib
        and (not job.exclusive or f.untouched)
        and (not need.gres or covers(f.gres, need.gres))
    )


def _emptied_nodes(
    job: Job, nodes: Iterable[FreeNode], movable: Iterable[Occupant], now_s: float
) -> list[_Emptied]:
    """Nodes without room that have it once some have left; those that lose the least work first."""
    on: dict[int, list[Occupant]] = {}
    for occupant in movable:
        on.setdefault(id(occupant.shares[0][0]), []).append(occupant)
    return sorted(
        emptied
        for f in nodes
        if id(f) in on and not _has_room(f, job)
        if (emptied := _emptied(f, job, on[id(f)], now_s)) is not None
    )


def _movers(emptied: Sequence[_Emptied], missing: int, most: int) -> list[Occupant]:
    """Whoever leaves so many nodes, the cheapest; if they are too many, the fewest; or nobody."""
    if not 0 < missing <= len(emptied):
        return []
    for order in (emptied, sorted(emptied, key=lambda each: len(each.movers))):
        movers = [mover for each in order[:missing] for mover in each.movers]
        if len(movers) <= most:
            return movers
    return []


def _emptied(f: FreeNode, job: Job, there: Sequence[Occupant], now_s: float) -> _Emptied | None:
    """The node without those of its jobs that must move; the room is left as it was."""
    released: list[Occupant] = []
    for mover in sorted(there, key=lambda each: (_cost_gpu_s(each, now_s), each.job.id)):
        mover.release()
        released.append(mover)
        if _has_room(f, job):
            break
    enough = _has_room(f, job)
    kept = []
    for mover in reversed(released):  # the most expensive first: is it needed?
        mover.restore()
        if enough and not _has_room(f, job):
            kept.append(mover)
            mover.release()
    for mover in kept:
        mover.restore()
    if not kept:
        return None
    cost_gpu_s = sum(_cost_gpu_s(each, now_s) for each in kept)
    return _Emptied(cost_gpu_s, f.node.name, tuple(kept))


def _cost_gpu_s(mover: Occupant, now_s: float) -> float:
    return mover.cost_gpus * mover.loss_s(now_s)


def _places(
    movers: Iterable[Occupant], room: FreeCapacity, gang: set[str]
) -> tuple[NodeMove, ...] | None:
    """Where each goes on, largest first; None when one finds no place. The room is as it was."""
    moves: list[NodeMove] = []
    held: Held = []
    for mover in sorted(movers, key=lambda each: (-each.gpus, each.job.id)):
        left, share = mover.shares[0]
        alike = (f for f in _alike(left, room) if f.node.name not in gang and f.has(share))
        place = min(alike, key=lambda f: (f.gpus, f.cpus, f.node.name), default=None)
        if place is None:
            lift(held)
            return None
        place.take(share)
        held.append((place, share))
        moves.append(NodeMove(mover.job.id, place.node.name))
    lift(held)
    return tuple(moves)


def _alike(left: FreeNode, room: FreeCapacity) -> Iterator[FreeNode]:
    """Other nodes on which a job may be that is on this one, whatever it has asked for."""
    built = _built(left)
    for f in room.nodes_in(left.node.partitions[:1]):
        if f is not left and _built(f) == built:
            yield f


def _built(f: FreeNode) -> tuple[object, ...]:
    node = f.node
    return node.partitions, node.gpu_type, node.features, node.shape, node.gpu_mem_gib, node.nvlink
