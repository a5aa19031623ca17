"""Reserves room for a blocked gang, and decides who may use it until then.

What runs ends by its time limit; so the earliest moment at which enough has ended is one by which
the gang can surely start, if nobody else takes the room. Whoever ends before may use it; whoever
runs longer gets only what the gang leaves over. That is EASY backfill: one reservation for each
site.

Source:
    Design, "A scheduling pass": blocked gangs get a reservation so that smaller ones may backfill
    only if they end before, by their time limit. MAST has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from federator.model.mappings import NOTHING
from federator.model.plan import Bid, BidRequest, JobPlan
from federator.model.site import LocalJob, Node, NodeShare, RunningJob
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.bid.placement import suitable_nodes
from federator.sched.bid.running_jobs import UNKNOWN_SHARE, Occupants
from federator.sched.bid.workload_plan import place_all

Held = list[tuple[FreeNode, NodeShare]]


@dataclass(frozen=True, slots=True)
class Ending:
    """By this time these shares are free."""

    at_s: float
    shares: tuple[tuple[FreeNode, NodeShare], ...]

    def release(self) -> None:
        for f, share in self.shares:
            f.give_back(share)

    def restore(self) -> None:
        for f, share in self.shares:
            f.take(share)


def endings_of(
    room: FreeCapacity,
    occupants: Occupants,
    local: Iterable[LocalJob],
    planned: Iterable[tuple[float, Iterable[JobPlan]]] = (),
    predicted: Mapping[WorkloadId, float] = NOTHING,
) -> list[Ending]:
    """The endings that free capacity, in order of time; jobs without a time limit have none.

    ``planned`` is taken from the room and not yet in the nodes: until when, and the plans.
    ``predicted``: when some of the occupants are over by prediction, if their limits are later.

    Shares of local jobs are not known one by one: what a node holds beyond the federation's jobs
    counts as free when the last of the others there has ended.
    """
    if predicted:
        endings = [
            Ending(at_s, each.shares)
            for each in occupants
            if isfinite(at_s := _end_of(each.job, predicted))
        ]
    else:
        endings = [Ending(each.job.ends_by_s, each.shares) for each in occupants.bounded]
    last_end = _last_ends(occupants, local, predicted)
    known: dict[str, NodeShare] = {}  # of each of these nodes, held by those whose share is known
    for occupant in occupants if last_end else ():
        for f, share in occupant.shares:
            if f.node.name in last_end:
                known[f.node.name] = known.get(f.node.name, NodeShare()) + share
    for name, at_s in last_end.items():
        free = room.by_name.get(name)
        if free is not None and isfinite(at_s):
            rest = _allocated(free.node).less(known.get(name, NodeShare()))
            endings.append(Ending(at_s, ((free, rest),)))
    endings += (ending_of(room, at_s, plans) for at_s, plans in planned if isfinite(at_s))
    endings.sort(key=lambda e: e.at_s)
    return endings


class KnownEndings:
    """When what is in use at a site comes free: by time limits, and by predictions.

    Args:
        count: makes the list, given predicted ends of some; it is asked only when it is needed.
    """

    def __init__(self, count: Callable[[Mapping[WorkloadId, float]], list[Ending]]) -> None:
        self._count = count
        self._by_limits: list[Ending] | None = None  # None: not counted yet
        self._predicted: list[Ending] | None = None
        self._ends: Mapping[WorkloadId, float] = NOTHING

    def forget(self) -> None:
        """Something has started or ended."""
        self._by_limits = self._predicted = None

    def expect(self, ends: Mapping[WorkloadId, float]) -> None:
        """Take predicted ends, Unix times, until the next call."""
        if ends is not self._ends and ends != self._ends:
            self._ends, self._predicted = ends, None

    @property
    def predicts(self) -> bool:
        """Whether any end is predicted: then a start depends on how long each request is to run."""
        return bool(self._ends)

    def by_limits(self) -> list[Ending]:
        if self._by_limits is None:
            self._by_limits = self._count(NOTHING)
        return self._by_limits

    def by_prediction(self) -> list[Ending]:
        """Whichever comes first for each; none where nothing is predicted."""
        if not self._ends:
            return []
        if self._predicted is None:
            self._predicted = self._count(self._ends)
        return self._predicted


def _end_of(job: RunningJob, predicted: Mapping[WorkloadId, float]) -> float:
    return min(job.ends_by_s, predicted.get(WorkloadId(job.id), inf))


def _last_ends(
    occupants: Occupants, local: Iterable[LocalJob], predicted: Mapping[WorkloadId, float]
) -> dict[str, float]:
    """By node, when the last of those has ended whose share of it is not known."""
    found: dict[str, float] = {}
    for occupant in occupants.of_unknown_share:
        for f, share in occupant.shares:
            if share == UNKNOWN_SHARE:
                end_s = _end_of(occupant.job, predicted)
                found[f.node.name] = max(found.get(f.node.name, 0.0), end_s)
    for job in local:
        for name in job.nodes:
            found[name] = max(found.get(name, 0.0), job.ends_by_s)
    return found


def ending_of(room: FreeCapacity, at_s: float, plans: Iterable[JobPlan]) -> Ending:
    """The ending of plans that were taken from the room."""
    nodes = room.by_name
    return Ending(
        at_s,
        tuple((nodes[n], share) for p in plans for n, share in p.nodes.items() if n in nodes),
    )


def _allocated(node: Node) -> NodeShare:
    return NodeShare(
        gpus=node.gpus_alloc, cpus=node.cpus_alloc, mem_mib=node.mem_mib_alloc, gres=node.gres_alloc
    )


def all_of(node: Node) -> NodeShare:
    """All that a node has, used or not."""
    return NodeShare(gpus=node.gpus, cpus=node.cpus, mem_mib=node.mem_mib, gres=node.gres)


class Reservation:
    """Room that a blocked workload will have.

    Args:
        id_: whose it is.
        starts_at_s: when it can start at the latest, by time limits.
        spare: what is left over then on each node that it will use.

    Attributes:
        predicted: time limits promise no start; it is by predictions of how long others run.
    """

    def __init__(
        self,
        id_: WorkloadId,
        starts_at_s: float,
        spare: Mapping[str, NodeShare],
    ) -> None:
        self.id = id_
        self.starts_at_s = starts_at_s
        self.predicted = False
        self._spare = dict(spare)

    def concerns(self, now_s: float, asked: BidRequest) -> bool:
        """Tell whether a workload that starts now could still run then.

        Where time limits promise the start, only a limit tells that it could not.
        """
        runs_s = asked.time_limit_s
        if self.predicted:
            runs_s = min(runs_s, asked.predicted_run_s)
        return now_s + runs_s > self.starts_at_s

    def fence(self, room: FreeCapacity) -> Held:
        """Take away what must be free in time; undo it with ``lift``."""
        return self._take(room, evicting=False)

    def fence_evicted(self, room: FreeCapacity) -> Held:
        """As ``fence``, for a plan that may evict: what it frees is not its own either."""
        return self._take(room, evicting=True)

    def _take(self, room: FreeCapacity, *, evicting: bool) -> Held:
        held: Held = []
        for name, spare in self._spare.items():
            f = room.by_name[name]
            share = (all_of(f.node) if evicting else f.left).less(spare)
            f.take(share)
            held.append((f, share))
        return held

    def use(self, plans: Iterable[JobPlan]) -> None:
        """Count what a job that runs longer takes of what is left over."""
        for plan in plans:
            for name, share in plan.nodes.items():
                spare = self._spare.get(name)
                if spare is not None:
                    self._spare[name] = spare.less(share)


def lift(held: Held) -> None:
    """Undo a fence."""
    for f, share in held:
        f.give_back(share)


def reserve(
    id_: WorkloadId,
    jobs: Sequence[Job],
    room: FreeCapacity,
    partitions: Sequence[str],
    endings: Sequence[Ending],
    now_s: float,
) -> Reservation | None:
    """Find the earliest time by which all jobs of a workload surely fit; None if there is none.

    The room is left as it was.
    """
    ended = _first_enough(jobs, room, partitions, endings)
    if ended is None:
        return None
    for ending in endings[:ended]:
        ending.release()
    found = place_all(jobs, room, partitions)
    plans = found.jobs if isinstance(found, Bid) else ()
    nodes = [room.by_name[name] for plan in plans for name in plan.nodes]
    spare = {f.node.name: f.left for f in nodes}
    for plan in plans:
        room.release(plan)
    for ending in endings[:ended]:
        ending.restore()
    starts_at_s = endings[ended - 1].at_s if ended else now_s
    return Reservation(id_, max(now_s, starts_at_s), spare)


def _first_enough(
    jobs: Sequence[Job], room: FreeCapacity, partitions: Sequence[str], endings: Sequence[Ending]
) -> int | None:
    """The number of endings until the jobs fit: found by halving, since more is never worse."""
    released = 0

    def fit(count: int) -> bool:
        nonlocal released
        for ending in endings[released:count]:
            ending.release()
        for ending in endings[count:released]:
            ending.restore()
        released = count
        found = place_all(jobs, room, partitions)
        if isinstance(found, Bid):
            for plan in found.jobs:
                room.release(plan)
        return isinstance(found, Bid)

    low, high = 0, len(endings)
    enough = high > 0 and fit(high)
    while enough and low < high:
        middle = (low + high) // 2
        if fit(middle):
            high = middle
        else:
            low = middle + 1
    for ending in endings[:released]:
        ending.restore()
    return low if enough else None


def next_gpus(
    job: Job, room: FreeCapacity, partitions: Sequence[str], endings: Sequence[Ending]
) -> tuple[int, float]:
    """The GPUs of use to a job that come free next, and by when; (0, inf) if none ever do."""
    if not endings:
        return 0, inf
    of_use = {
        id(f)
        for partition in partitions
        if not job.partitions or partition in job.partitions
        for f in suitable_nodes(job, room, partition)
    }
    at_s, gpus = inf, 0
    for ending in endings:
        if ending.at_s > at_s:
            break
        freed = sum(share.gpus for f, share in ending.shares if id(f) in of_use)
        if freed:
            at_s, gpus = ending.at_s, gpus + freed
    return gpus, at_s
