"""Selects nodes that follow each other in the order of their site (``--contiguous``).

As in Slurm a node that the job cannot have interrupts them, be it of another partition, or down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from federator.model.constraint import Way
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import Job
from federator.sched.bid.free_capacity import SINGLE_NODE, FreeCapacity, FreeNode
from federator.sched.bid.node_selection import (
    choose,
    least_share,
    nodes_fitting,
    whole_cpus,
    whole_groups,
)

MOST_TRIED: Final = 256  # stretches of nodes, where not each of the right length will do


class _Stretch(NamedTuple):
    """Some of the nodes of a run. The first five decide which is best: the smallest."""

    nodes: int
    switches: int  # leaf switches above them
    of: int  # nodes of the run: long ones are kept whole
    at: int  # the number of the run
    first: int  # its place in it
    run: list[FreeNode]

    @property
    def chosen(self) -> list[FreeNode]:
        return self.run[self.first : self.first + self.nodes]


def contiguous(
    job: Job, suitable: Sequence[FreeNode], chosen: list[FreeNode], room: FreeCapacity, way: Way
) -> list[FreeNode] | Reason:
    """The nodes as chosen, if they follow each other; else others that do, or what is lacking.

    The fewest nodes are best, then those under the fewest leaf switches, then those where the
    fewest follow each other. A job of so many nodes alike gets nodes whenever there are some; one
    with totals over so many, or that counts features, may wait in vain beyond ``MOST_TRIED``.

    Args:
        job: with ``contiguous``.
        suitable: as of ``choose``.
        chosen: by it, under no more switches than the job wants.
        room: that of the site; its ``order`` counts.
        way: as of ``choose``.
    """
    if _follow(chosen, room):
        return chosen
    fitting = nodes_fitting(job, least_share(job), suitable)
    several = [f for f in fitting if SINGLE_NODE not in f.node.features]
    runs = _runs(several, room)
    named = frozenset(job.nodelist)
    if named:
        runs = [run for run in runs if named <= {f.node.name for f in run}]
    parts = (s for k, run in enumerate(runs) for s in _stretches(job, run, k, named))
    found = sorted(parts, key=lambda stretch: stretch[:-1])
    under_few = [s for s in found if not job.switches or s.switches <= job.switches]
    for stretch in under_few[:MOST_TRIED]:
        right = _right_part(job, stretch.chosen, room, way)
        if right:
            return right
    if found and not under_few:
        return Reason(
            code=ReasonCode.SWITCHES,
            job=job.name,
            needed=job.switches,
            free=min(stretch.switches for stretch in found),
            unit="leaf switches",
        )
    return Reason(
        code=ReasonCode.TOO_FEW_NODES,
        job=job.name,
        needed=job.nodes or len(chosen),
        unit="nodes",
        free=max(map(len, runs), default=0),
        detail="none other between them",
    )


def _follow(nodes: Sequence[FreeNode], room: FreeCapacity) -> bool:
    places = sorted(room.order[f.node.name] for f in nodes)
    return places[-1] - places[0] == len(places) - 1


def _runs(nodes: Sequence[FreeNode], room: FreeCapacity) -> list[list[FreeNode]]:
    """The nodes in the site's order; those that follow each other together."""
    runs: list[list[FreeNode]] = []
    before = -2
    for f in sorted(nodes, key=lambda f: room.order[f.node.name]):
        place = room.order[f.node.name]
        if place != before + 1:
            runs.append([])
        runs[-1].append(f)
        before = place
    return runs


def _right_part(
    job: Job, nodes: list[FreeNode], room: FreeCapacity, way: Way
) -> list[FreeNode] | None:
    """The nodes, or those of them that the job needs; None: they will not do."""
    if not (way.counted or (job.nodes and (job.gpus or job.cpus))):
        return nodes
    found = choose(job, nodes, room.fabric, way)
    return None if isinstance(found, Reason) or not _follow(found, room) else found


def _stretches(job: Job, run: list[FreeNode], at: int, named: frozenset[str]) -> Iterator[_Stretch]:
    """The parts of a run that may do: of so many nodes, or the shortest that hold the totals."""
    changes = [0, *accumulate(a.node.switch != b.node.switch for a, b in pairwise(run))]
    asked = [k for k, f in enumerate(run) if f.node.name in named]
    from_, to = (asked[0], asked[-1]) if asked else (len(run) - 1, 0)
    for first, last in _bounds(job, run, to):
        nodes, switches = last + 1 - first, 1 + changes[last] - changes[first]
        enough_for_each = not job.gpus or nodes * job.tensor_parallel <= job.gpus
        if first <= from_ and to <= last and enough_for_each:
            yield _Stretch(nodes, switches, len(run), at, first, run)


def _bounds(job: Job, run: list[FreeNode], to: int) -> Iterator[tuple[int, int]]:
    """The first and the last node of each part; of totals none ends before the place ``to``."""
    if job.nodes is not None:
        yield from ((k, k + job.nodes - 1) for k in range(len(run) - job.nodes + 1))
        return
    gpus = [0, *accumulate(whole_groups(job, f) for f in run)]
    cpus = [0, *accumulate(whole_cpus(job, f) for f in run)]
    last = to
    for first in range(len(run)):
        last = max(last, first)
        while last < len(run) and (
            gpus[last + 1] - gpus[first] < job.gpus or cpus[last + 1] - cpus[first] < job.cpus
        ):
            last += 1
        if last == len(run):
            return
        yield first, last
