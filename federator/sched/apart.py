"""Are there enough nodes for jobs that must be on different ones? A count, before any placement.

Slurm never gives two components of a het job one node, pinned or not (docs/architecture.md,
"Placement"), so a node serves one job of a workload. Which serves which is for the placement to
say; here it is proved that no choice can do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from federator.model.reason import Reason, ReasonCode
from federator.model.workload import Job
from federator.sched.choice import least_share, nodes_fitting
from federator.sched.placement import suitable_nodes
from federator.sched.room import FreeNode, Room


def too_few_nodes(jobs: Sequence[Job], room: Room, partitions: Sequence[str]) -> Reason | None:
    """Which jobs of a workload together need more nodes than could serve any of them; None: none.

    Jobs that ask for the same count as one, and so do nodes that could serve the same jobs.
    """
    shapes = Counter(jobs)
    serves: dict[str, int] = {}  # of each node the shapes that it could serve, as bits
    needed = []
    for k, (job, count) in enumerate(shapes.items()):
        nodes = _of_use(job, room, partitions)
        needed.append(count * _least_nodes(job, nodes))
        for f in nodes:
            serves[f.node.name] = serves.get(f.node.name, 0) | 1 << k
    nodes_of = Counter(serves.values())
    short = _short(needed, nodes_of)
    if not short:
        return None
    bits = sum(1 << k for k in short)
    which = [str(n) for n, job in enumerate(jobs) if list(shapes).index(job) in short]
    return Reason(
        code=ReasonCode.TOO_FEW_NODES,
        needed=sum(needed[k] for k in short),
        free=sum(count for served, count in nodes_of.items() if served & bits),
        unit="nodes",
        detail="one component each" + (f" of {','.join(which)}" if len(which) < len(jobs) else ""),
    )


def _of_use(job: Job, room: Room, partitions: Sequence[str]) -> list[FreeNode]:
    """The nodes that any plan of the job may have, in any partition."""
    need, found = least_share(job), dict[str, FreeNode]()
    for partition in partitions:
        if not job.partitions or partition in job.partitions:
            nodes = nodes_fitting(job, need, suitable_nodes(job, room, partition))
            found |= {f.node.name: f for f in nodes}
    return list(found.values())


def _least_nodes(job: Job, nodes: Sequence[FreeNode]) -> int:
    """On fewer of these nodes no plan of the job fits; one more than there are: on none."""
    if job.nodes is not None:
        return job.nodes
    gpus = _fewest([f.gpus for f in nodes], job.gpus)
    return max(1, gpus, _fewest([f.cpus for f in nodes], job.cpus))


def _fewest(amounts: Sequence[int], total: int) -> int:
    sums = accumulate(sorted(amounts, reverse=True), initial=0)
    return next((count for count, had in enumerate(sums) if had >= total), len(amounts) + 1)


def _short(needed: Sequence[int], nodes_of: Mapping[int, int]) -> set[int]:
    """Shapes that together need more nodes than could serve any of them; none: all have enough.

    Args:
        needed: nodes, by the number of the shape.
        nodes_of: how many nodes could serve which shapes (bit k: shape k).

    Source:
        Hall's theorem, by the augmenting paths of Ford and Fulkerson.
    """
    left, given = dict(nodes_of), Counter[tuple[int, int]]()  # to a shape, of nodes of a kind
    for shape, wanted in enumerate(needed):
        missing = wanted
        while missing:
            reached, last = _search(shape, left, given)
            if last is None:
                return set(reached)
            taker, kind = last
            moves = [(taker, kind)]
            while (passed_on := reached[moves[-1][0]]) is not None:
                moves.append(passed_on)
            spared = [given[giver, kind] for (giver, _), (_, kind) in pairwise(moves)]
            amount = min(missing, left[kind], *spared)
            left[kind] -= amount
            for taker, kind in moves:
                given[taker, kind] += amount
            for (giver, _), (_, kind) in pairwise(moves):
                given[giver, kind] -= amount
            missing -= amount
    return set()


def _search(
    shape: int, left: Mapping[int, int], given: Mapping[tuple[int, int], int]
) -> tuple[dict[int, tuple[int, int] | None], tuple[int, int] | None]:
    """How a shape can have another node: of those left, or of one who can have another itself.

    Returns:
        Every shape that was asked, with who could take from it, and nodes of what kind; and the
        one that can take from what is left, and of what kind. None: nobody can.
    """
    reached: dict[int, tuple[int, int] | None] = {shape: None}
    asked = [shape]
    for taker in asked:
        for kind in left:
            if not kind >> taker & 1:
                continue
            if left[kind]:
                return reached, (taker, kind)
            for giver in [g for g, k in given if k == kind and given[g, k] and g not in reached]:
                reached[giver] = (taker, kind)
                asked.append(giver)
    return reached, None
