"""Finds victims so that a workload can start now: the fewest, the lowest, none just begun.

Nothing is evicted here: a plan names its victims, and only the plan that wins the auction touches
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from federator.model.gres import covers
from federator.model.plan import Bid, Shrink
from federator.model.reason import Reason
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.bid.node_selection import bounds, least_share
from federator.sched.bid.placement import (
    Placed,
    place_in,
    place_job,
    short_of_licenses,
    suitable_nodes,
)
from federator.sched.bid.running_jobs import MOST_IMPORTANT, Occupant, Occupants
from federator.sched.bid.score import harm_of, harm_of_victims, total, with_harm
from federator.sched.bid.victim_bound import can_be_bounded, least_victims
from federator.sched.bid.workload_plan import first_order, orders_to_try


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRight:
    """The right of a workload to evict others."""

    priority: int  # only strictly lower ones (larger numbers) may go
    budget_gpus: float  # held by all victims together, at most
    now_s: float
    own: tuple[Occupant, ...] = ()  # evicted for other jobs of the workload already
    in_time: bool = False  # also who is spared for a while yet


def plan_with_victims(
    jobs: Sequence[Job],
    room: FreeCapacity,
    partitions: Sequence[str],
    occupants: Occupants,
    right: EvictionRight,
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
    order, tried = first_order(jobs), set[tuple[Job, ...]]()
    for _ in range(orders_to_try(len(jobs))):
        result = _plan_in_order(jobs, order, room, partitions, occupants, right)
        if isinstance(result, Bid):
            return result
        tried.add(tuple(jobs[k] for k in order))
        order = [result, *(k for k in order if k != result)]
        if tuple(jobs[k] for k in order) in tried:
            break
    return None


def _plan_in_order(
    jobs: Sequence[Job],
    order: Sequence[int],
    room: FreeCapacity,
    partitions: Sequence[str],
    occupants: Occupants,
    right: EvictionRight,
) -> Bid | int:
    """As ``plan_with_victims``; else which job found no place."""
    placed: dict[int, Placed] = {}
    victims: list[Occupant] = []
    unplaced = -1
    for k in order:
        spent_gpus = sum(v.cost_gpus for v in victims)
        left = replace(right, budget_gpus=right.budget_gpus - spent_gpus, own=tuple(victims))
        found = place_job(jobs[k], room, partitions)
        if not isinstance(found, Placed):
            evicting = _best_of(jobs[k], room, partitions, occupants, left)
            if evicting is None:
                unplaced = k
                break
            found, new = evicting
            for victim in new:
                victim.release()
                victim.evicted = True
            victims += new
        room.assign(found.plan)
        placed[k] = found
    room.settle()
    for victim in victims:
        victim.restore()
    if unplaced >= 0:
        for each in placed.values():
            room.release(each.plan)
        for victim in victims:
            victim.evicted = False
        return unplaced
    return _bid_of(jobs, placed, victims)


def _bid_of(jobs: Sequence[Job], placed: Mapping[int, Placed], victims: Sequence[Occupant]) -> Bid:
    """All places of a workload as one bid, with what leaves for them."""
    with_gpus = any(job.total_gpus for job in jobs)
    score = total((p.score for p in placed.values()), with_gpus=with_gpus)
    plans = tuple(placed[k].plan for k in range(len(jobs)))
    wholes = tuple(v.job.id for v in victims if not v.component)
    parts = (v for v in victims if v.component and v.whole not in victims)
    shrinks = tuple(Shrink(v.job.id, v.component) for v in parts)
    cost = sum(p.cost for p in placed.values())
    return Bid(score=score, jobs=plans, victims=wholes, shrinks=shrinks, cost=cost)


def undo(bid: Bid, room: FreeCapacity, occupants: Occupants) -> None:
    """Take back what a bid did to the room."""
    for plan in bid.jobs:
        room.release(plan)
    for victim in occupants.going(bid.victims, bid.shrinks):
        victim.evicted = False


def redo(bid: Bid, room: FreeCapacity, occupants: Occupants) -> None:
    """Do again what ``undo`` took back."""
    for plan in bid.jobs:
        room.take(plan)
    for victim in occupants.going(bid.victims, bid.shrinks):
        victim.evicted = True


Evicting = tuple[Placed, list[Occupant]]


def _best_of(
    job: Job,
    room: FreeCapacity,
    partitions: Sequence[str],
    occupants: Occupants,
    right: EvictionRight,
) -> Evicting | None:
    """The best of all partitions, ties to the first; the room is left as it was.

    No licence comes free for it: what victims have of them is not known.
    """
    if short_of_licenses(job, room) is not None:
        return None
    best: Evicting | None = None
    best_at = 0
    allowed = [p for p in partitions if not job.partitions or p in job.partitions]
    for least, at in sorted(_bounds_of(job, room, allowed, occupants, right)):
        if best is not None and least > harm_of(best[0].score)[1:3]:
            break
        gauge = _Gauge(job, room, allowed[at])
        most = int(best[0].score.victims_priority) if best is not None else MOST_IMPORTANT
        chosen = _choose_victims(gauge, occupants, right, most)
        harm = harm_of_victims(chosen, right.now_s)
        if chosen and (best is None or harm <= harm_of(best[0].score)):
            found = _place_without(gauge, chosen)
            found = replace(found, score=with_harm(found.score, harm))
            if best is None or (found.terms, at) < (best[0].terms, best_at):
                best, best_at = (found, chosen), at
    return best


def _bounds_of(
    job: Job,
    room: FreeCapacity,
    partitions: Sequence[str],
    occupants: Occupants,
    right: EvictionRight,
) -> Iterator[tuple[tuple[int, int], int]]:
    """From below, the importance and number of victims in each partition, with its position.

    (0, 0) where no bound is known; none where nothing can be had by evicting.
    """
    for at, partition in enumerate(partitions):
        nodes = suitable_nodes(job, room, partition)
        if len(nodes) < (job.nodes or 1):
            continue
        if not can_be_bounded(job):
            yield (0, 0), at
            continue
        candidates = _below(occupants, right, partition)
        found = least_victims(job, nodes, candidates)
        if found is not None:
            (importance, victims), looked_at_gpus = found
            # With a budget that may not do for them, others are chosen.
            known = looked_at_gpus <= right.budget_gpus
            yield (importance, victims) if known else (0, 0), at


def _below(occupants: Occupants, right: EvictionRight, partition: str) -> Iterator[Occupant]:
    """Those who may go, in the order of eviction."""
    return occupants.below(right.priority, partition, right.now_s, right.own, in_time=right.in_time)


class _Gauge:
    """Tells at any moment whether enough nodes are free for a job, as victims come and go."""

    def __init__(self, job: Job, room: FreeCapacity, partition: str) -> None:
        nodes = suitable_nodes(job, room, partition)
        self.partition = partition
        self._room = room
        self._job = job
        least = least_share(job)
        self._bounds = bounds(least)
        self._gres = least.gres
        self._exclusive = job.exclusive
        self._group = job.tensor_parallel if job.gpus else 1
        self._among = {id(f) for f in nodes}
        self._is_whole = len(nodes) == len(room.nodes_in((partition,)))  # every node is of use
        self._nodes = 0
        self._gpus = 0
        self._cpus = 0
        for f in nodes:
            self._count(f)

    @property
    def hopeless(self) -> bool:
        """There are not even enough nodes of the kind."""
        return len(self._among) < (self._job.nodes or 1)

    @property
    def counts_suffice(self) -> bool:
        job = self._job
        return self._nodes >= (job.nodes or 1) and self._gpus >= job.gpus and self._cpus >= job.cpus

    @property
    def counting_settles_it(self) -> bool:
        """All but totals over so many nodes or with memory for each, CPUs that come task by task,
        and picky jobs.
        """
        job = self._job
        if job.cpus or job.is_picky:
            return False
        return not job.gpus or (job.nodes is None and not job.mem_mib_per_gpu)

    @property
    def enough(self) -> bool:
        if not self.counts_suffice:
            return False
        return self.counting_settles_it or isinstance(self.place(), Placed)

    def place(self) -> Placed | tuple[Reason, ...]:
        return place_in(self._job, self._room, self.partition)

    def release(self, victim: Occupant) -> None:
        self._move(victim, 1)

    def restore(self, victim: Occupant) -> None:
        self._move(victim, -1)

    def size(self, victim: Occupant) -> tuple[int, int]:
        """The amounts of use here that a victim frees: GPUs, then CPUs."""
        of_use = [share for f, share in victim.shares if id(f) in self._among]
        if len(of_use) == victim.node_count:
            return victim.gpus, victim.cpus
        return sum(s.gpus for s in of_use), sum(s.cpus for s in of_use)

    def touches(self, victim: Occupant) -> bool:
        """Tell whether a victim holds anything here at all."""
        return self._is_whole or any(id(f) in self._among for f, _ in victim.shares)

    def spare(self, victim: Occupant) -> bool:
        """Restore a released victim if the job fits nevertheless; tell whether it does."""
        if not self.counting_settles_it:
            self.restore(victim)
            if self.enough:
                return True
            self.release(victim)
            return False
        nodes, gpus, cpus = self._without(victim)
        job = self._job
        if nodes < (job.nodes or 1) or gpus < job.gpus or cpus < job.cpus:
            return False
        self.restore(victim)
        return True

    def _without(self, victim: Occupant) -> tuple[int, int, int]:
        """The count if a released victim were restored."""
        nodes, gpus, cpus = self._nodes, self._gpus, self._cpus
        group = self._group
        least_gpus, least_cpus, least_mem = self._bounds
        for f, share in victim.shares:
            if (
                id(f) not in self._among
                or f.gpus < least_gpus
                or f.cpus < least_cpus
                or f.mem_mib < least_mem
                or (self._exclusive and not f.untouched)
                or (self._gres and not covers(f.gres, self._gres))
            ):
                continue
            left_gpus, left_cpus = f.gpus - share.gpus, f.cpus - share.cpus
            fits = (
                left_gpus >= least_gpus
                and left_cpus >= least_cpus
                and f.mem_mib - share.mem_mib >= least_mem
                and not self._exclusive
                and (not self._gres or f.would_cover(self._gres, share.gres))
            )
            nodes -= not fits
            gpus -= f.gpus - f.gpus % group - (left_gpus - left_gpus % group if fits else 0)
            cpus -= f.cpus - (left_cpus if fits else 0)
        return nodes, gpus, cpus

    def _move(self, victim: Occupant, sign: int) -> None:
        """Give back what a victim holds, or take it again, and count: thousands of times a bid."""
        among, exclusive, group, gres = self._among, self._exclusive, self._group, self._gres
        least_gpus, least_cpus, least_mem = self._bounds
        for f, share in victim.shares:
            counts = id(f) in among
            if (
                counts
                and f.gpus >= least_gpus
                and f.cpus >= least_cpus
                and f.mem_mib >= least_mem
                and (not exclusive or f.untouched)
                and (not gres or covers(f.gres, gres))
            ):
                self._nodes -= 1
                self._gpus -= f.gpus - f.gpus % group
                self._cpus -= f.cpus
            f.rack.version += 1
            f.gpus += sign * share.gpus
            f.cpus += sign * share.cpus
            f.mem_mib += sign * share.mem_mib
            if share.gres:
                f.move_gres(share.gres, sign)
            if (
                counts
                and f.gpus >= least_gpus
                and f.cpus >= least_cpus
                and f.mem_mib >= least_mem
                and (not exclusive or f.untouched)
                and (not gres or covers(f.gres, gres))
            ):
                self._nodes += 1
                self._gpus += f.gpus - f.gpus % group
                self._cpus += f.cpus

    def _count(self, f: FreeNode) -> None:
        """Count a node in, if it is of any use now."""
        least_gpus, least_cpus, least_mem = self._bounds
        if f.gpus >= least_gpus and f.cpus >= least_cpus and f.mem_mib >= least_mem:
            if self._exclusive and not f.untouched:
                return
            if self._gres and not covers(f.gres, self._gres):
                return
            self._nodes += 1
            self._gpus += f.gpus - f.gpus % self._group
            self._cpus += f.cpus


def _choose_victims(
    gauge: _Gauge, occupants: Occupants, right: EvictionRight, most_important: int
) -> list[Occupant]:
    """Victims in one partition, by the paper's rules; none when no use. The room stays as it is.

    1. Release in the order of eviction until the job fits. 2. Spare whoever is not needed, the
    smallest first: the largest that suffice are left, and of those none too many.
    """
    candidates = _candidates(gauge, occupants, right, most_important)
    kept = _with_parts(_spare(gauge, _release_until_enough(gauge, candidates)), right)
    if sum(victim.cost_gpus for victim in kept) > right.budget_gpus:
        candidates = _candidates(gauge, occupants, right, most_important)
        released = _release_until_enough(gauge, _affordable(candidates, right))
        kept = _with_parts(_spare(gauge, released), right)
    return kept


def _candidates(
    gauge: _Gauge, occupants: Occupants, right: EvictionRight, most_important: int
) -> Iterator[Occupant]:
    """The candidates that hold something of use, in the order of eviction.

    Whoever is more important than that (see ``Occupant.importance``) is left in peace: another
    partition does without.
    """
    if gauge.hopeless:
        return
    for victim in _below(occupants, right, gauge.partition):
        if victim.importance > most_important:
            return
        if gauge.touches(victim):
            yield victim


def _affordable(candidates: Iterable[Occupant], right: EvictionRight) -> list[Occupant]:
    """Those whom the budget allows together, from the first on; whoever is too large is left."""
    chosen: list[Occupant] = []
    paid_for = set(right.own)
    gpus = 0
    for victim in candidates:
        new = {victim, *victim.parts} - paid_for
        more_gpus = sum(each.cost_gpus for each in new)
        if gpus + more_gpus <= right.budget_gpus:
            chosen.append(victim)
            paid_for |= new
            gpus += more_gpus
    return chosen


def _spare(gauge: _Gauge, released: Sequence[Occupant]) -> list[Occupant]:
    """Those of the released who must really go; the room is as before their release."""
    kept = list(released) if gauge.counting_settles_it else _touched_by_plan(gauge, released)
    by_size = sorted(kept, key=gauge.size, reverse=True)  # stable: in order among equals
    by_size.reverse()
    for victim in _parts_behind_their_wholes(by_size):
        goes_anyway = victim.whole is not None and victim.whole in kept
        if not goes_anyway and gauge.spare(victim):
            kept.remove(victim)
    _restore(gauge, kept)
    return kept


def _parts_behind_their_wholes(by_size: Sequence[Occupant]) -> Iterator[Occupant]:
    """The smallest first, but what is optional of a workload when the rest of it is settled."""
    among = {victim: list[Occupant]() for victim in by_size if not victim.component}
    alone = [v for v in by_size if v.whole is None or v.whole not in among]
    for victim in by_size:
        if victim.whole in among:
            among[victim.whole].append(victim)
    for victim in alone:
        yield victim
        yield from among.get(victim, ())


def _with_parts(kept: Sequence[Occupant], right: EvictionRight) -> list[Occupant]:
    """These, and what goes with them."""
    going = dict.fromkeys(each for victim in kept for each in (victim, *victim.parts))
    return [each for each in going if each not in right.own]


def _touched_by_plan(gauge: _Gauge, released: Sequence[Occupant]) -> list[Occupant]:
    """Those of the released on whose nodes the job would be placed; the others are restored.

    Where a placement must be tried for each who may be spared, only these are. What is optional of
    one of them would go with it.
    """
    found = gauge.place()
    nodes = set(found.plan.nodes) if isinstance(found, Placed) else set()
    touched = {v for v in released if any(f.node.name in nodes for f, _ in v.shares)}
    kept = []
    for victim in released:
        if victim in touched or victim.whole in touched:
            kept.append(victim)
        else:
            gauge.restore(victim)
    return kept


def _release_until_enough(gauge: _Gauge, candidates: Iterable[Occupant]) -> list[Occupant]:
    """The shortest beginning of the candidates that suffices, released; or nobody.

    Where counting does not settle it, a placement would have to be tried for each of them; more
    is never worse, so the beginning is found by halving.
    """
    settled = gauge.counting_settles_it
    seen: list[Occupant] = []
    for victim in candidates:
        gauge.release(victim)
        seen.append(victim)
        if settled and gauge.counts_suffice:
            return seen
    released = len(seen)

    def release(count: int) -> None:
        nonlocal released
        for victim in seen[count:released]:
            gauge.restore(victim)
        for victim in seen[released:count]:
            gauge.release(victim)
        released = count

    low, high = 1, released
    found = bool(seen) and gauge.enough
    while found and low < high:
        middle = (low + high) // 2
        release(middle)
        if gauge.enough:
            high = middle
        else:
            low = middle + 1
    release(high if found else 0)
    return seen[:released]


def _restore(gauge: _Gauge, victims: Sequence[Occupant]) -> None:
    for victim in victims:
        gauge.restore(victim)


def _place_without(gauge: _Gauge, victims: Sequence[Occupant]) -> Placed:
    """The placement when these have gone."""
    for victim in victims:
        gauge.release(victim)
    found = gauge.place()
    _restore(gauge, victims)
    assert isinstance(found, Placed)
    return found
