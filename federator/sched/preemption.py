"""Whom would a site have to evict to start this now? The fewest, lowest and none that just began.

Nothing is evicted here: a plan names its victims, and only the plan that wins the auction touches
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from federator.model.plan import Bid, Score
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import Job
from federator.sched.placement import (
    FreeNode,
    Placed,
    Room,
    fits_least,
    least_share,
    place_in,
    place_job,
    suitable_nodes,
)
from federator.sched.running import Occupant, Occupants


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right of a workload to evict others."""

    priority: int  # only strictly lower ones (larger numbers) may go
    budget_gpus: float  # held by all victims together, at most
    now_s: float


def plan_with_victims(
    jobs: Sequence[Job], room: Room, partitions: Sequence[str], occupants: Occupants, claim: Claim
) -> Bid | None:
    """Place all jobs of a workload, evicting where it must be; None when even that is no use.

    On success the plan is taken from the room, and its victims are marked as evicted. What they
    hold beyond the plan is not offered to anybody: the plan may yet lose the auction, and bids
    made after it must hold then too. ``undo`` takes it all back. On failure all is as it was.

    Each job is placed without victims if it can be. The largest goes first.

    Source:
        MAST (OSDI'24) sec. 4.3. For several jobs the paper sums their scores; it is silent on
        victims that two jobs share, which count for the first here.
    """
    order = sorted(range(len(jobs)), key=lambda k: (-jobs[k].total_gpus, -(jobs[k].nodes or 1), k))
    placed: dict[int, Placed] = {}
    victims: list[Occupant] = []
    for k in order:
        left = replace(claim, budget_gpus=claim.budget_gpus - sum(v.gpus for v in victims))
        found = place_job(jobs[k], room, partitions)
        if not isinstance(found, Placed):
            evicting = _best_of(jobs[k], room, partitions, occupants, left)
            if evicting is None:
                break
            found, new = evicting
            for victim in new:
                victim.release()
                victim.evicted = True
            victims += new
        room.take(found.plan)
        placed[k] = found
    for victim in victims:
        victim.restore()
    if len(placed) < len(jobs):
        for each in placed.values():
            room.give_back(each.plan)
        for victim in victims:
            victim.evicted = False
        return None
    score = Score(*(sum(terms) for terms in zip(*(p.score for p in placed.values()), strict=True)))
    plans = tuple(placed[k].plan for k in range(len(jobs)))
    return Bid(score=score, jobs=plans, victims=tuple(v.job.id for v in victims))


def undo(bid: Bid, room: Room, occupants: Occupants) -> None:
    """Take back what a bid did to the room."""
    for plan in bid.jobs:
        room.give_back(plan)
    for id_ in bid.victims:
        victim = occupants.get(id_)
        if victim is not None:
            victim.evicted = False


Evicting = tuple[Placed, list[Occupant]]


def _best_of(
    job: Job, room: Room, partitions: Sequence[str], occupants: Occupants, claim: Claim
) -> Evicting | None:
    """The best of all partitions; the room is left as it was."""
    best: Evicting | None = None
    for partition in partitions:
        if job.partitions and partition not in job.partitions:
            continue
        found = _evict_in(job, room, partition, occupants, claim)
        if found is not None and (best is None or found[0].score < best[0].score):
            best = found
    return best


class _Gauge:
    """Tells at any moment whether enough nodes are free for a job, as victims come and go."""

    def __init__(self, job: Job, nodes: Sequence[FreeNode]) -> None:
        self._job = job
        self._least = least_share(job)
        self._among = {id(f) for f in nodes}
        self._nodes = 0
        self._gpus = 0
        self._cpus = 0
        for f in nodes:
            self._count(f, 1)

    @property
    def enough(self) -> bool:
        job = self._job
        return self._nodes >= (job.nodes or 1) and self._gpus >= job.gpus and self._cpus >= job.cpus

    def release(self, victim: Occupant) -> None:
        nodes = self._touched(victim)
        for f in nodes:
            self._count(f, -1)
        victim.release()
        for f in nodes:
            self._count(f, 1)

    def restore(self, victim: Occupant) -> None:
        nodes = self._touched(victim)
        for f in nodes:
            self._count(f, -1)
        victim.restore()
        for f in nodes:
            self._count(f, 1)

    def size(self, victim: Occupant) -> tuple[int, int]:
        """What a victim frees that is of use here: GPUs, then CPUs."""
        of_use = [share for f, share in victim.shares if id(f) in self._among]
        return sum(s.gpus for s in of_use), sum(s.cpus for s in of_use)

    def touches(self, victim: Occupant) -> bool:
        """Tell whether a victim holds anything here at all."""
        return any(id(f) in self._among for f, _ in victim.shares)

    def _touched(self, victim: Occupant) -> list[FreeNode]:
        return [f for f, _ in victim.shares if id(f) in self._among]

    def _count(self, f: FreeNode, sign: int) -> None:
        if fits_least(self._job, self._least, f):
            self._nodes += sign
            self._gpus += sign * f.gpus
            self._cpus += sign * f.cpus


def _evict_in(
    job: Job, room: Room, partition: str, occupants: Occupants, claim: Claim
) -> Evicting | None:
    """Victims in one partition, by the paper's rules; the room is left as it was.

    1. Release in the order of eviction until the job fits. 2. Of those released take the largest
    first, until it fits again. 3. Give back whoever turns out not to be needed.
    """
    nodes = suitable_nodes(job, room, partition)
    if len(nodes) < (job.nodes or 1):
        return None
    gauge = _Gauge(job, nodes)
    released: list[Occupant] = []
    gpus = 0
    found: Placed | None = None
    for victim in occupants.below(claim.priority, partition, claim.now_s):
        if gpus + victim.gpus > claim.budget_gpus or not gauge.touches(victim):
            continue
        gauge.release(victim)
        released.append(victim)
        gpus += victim.gpus
        if gauge.enough and (found := _placed(job, room, partition)) is not None:
            break
    if found is None:
        _restore(gauge, released)
        return None
    by_size = sorted(released, key=gauge.size, reverse=True)  # stable: in order among equals
    _restore(gauge, released)
    chosen: list[Occupant] = []
    for victim in by_size:
        gauge.release(victim)
        chosen.append(victim)
        if gauge.enough and (found := _placed(job, room, partition)) is not None:
            break
    chosen, found = _needed(job, room, partition, gauge, chosen)
    _restore(gauge, chosen)
    return (replace(found, score=_score(found.score, chosen, claim.now_s)), chosen)


def _placed(job: Job, room: Room, partition: str) -> Placed | None:
    found = place_in(job, room, partition)
    return found if isinstance(found, Placed) else None


def _restore(gauge: _Gauge, victims: Sequence[Occupant]) -> None:
    for victim in victims:
        gauge.restore(victim)


def _needed(
    job: Job, room: Room, partition: str, gauge: _Gauge, chosen: list[Occupant]
) -> tuple[list[Occupant], Placed]:
    """Spare the victims without whom the job still fits, the smallest first."""
    found = _placed(job, room, partition)
    assert found is not None
    kept = list(chosen)
    for victim in reversed(chosen):
        if len(kept) == 1:
            break
        gauge.restore(victim)
        without = _placed(job, room, partition) if gauge.enough else None
        if without is None:
            gauge.release(victim)
        else:
            kept.remove(victim)
            found = without
    return kept, found


def _score(placement: Score, victims: Sequence[Occupant], now_s: float) -> Score:
    """Put the victims before the placement: whose priority, how many, how much work they lose.

    Lost is the work since the start, the worst case: what a checkpoint saves is not known here.
    """
    importance = max(LOWEST_PRIORITY - v.job.priority for v in victims)
    lost = sum(v.gpus * max(0.0, now_s - v.job.started_at_s) for v in victims)
    return placement._replace(
        preempts=1, victims_priority=importance, victims=len(victims), lost_work_gpu_s=lost
    )
