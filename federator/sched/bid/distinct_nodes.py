"""Proves, by a count of nodes, that jobs of a workload cannot all have nodes of their own.

Slurm never gives two components of a het job one node, pinned or not (docs/placement.md), so a node
serves one job of a workload. Which serves which is for the placement to say; here it is proved,
before any placement, that no choice can do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

from federator.model.reason import Reason, ReasonCode
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.bid.node_selection import least_share, nodes_fitting
from federator.sched.bid.placement import suitable_nodes

SEARCHES: Final = 128
"""For a node that another shape could spare, beyond which nothing is proved. The daemon's only
thread waits: among 2,000 nodes, all different, one takes half a millisecond with 128 shapes."""


def too_few_nodes(
    jobs: Sequence[Job], room: FreeCapacity, partitions: Sequence[str]
) -> Reason | None:
    """Find jobs of a workload that together need more nodes than could serve any of them.

    Jobs that ask for the same count as one shape, and so do nodes that could serve the same shapes.

    Returns:
        None: there are enough, or ``SEARCHES`` searches did not show that there are too few.
    """
    shapes = Counter(jobs)
    serves: dict[str, int] = {}  # of each node the shapes that it could serve, as bits
    needed = []
    for k, (job, count) in enumerate(shapes.items()):
        nodes = nodes_of_use(job, room, partitions)
        needed.append(count * _least_nodes(job, nodes))
        for f in nodes:
            serves[f.node.name] = serves.get(f.node.name, 0) | 1 << k
    nodes_of = Counter(serves.values())
    short = _short(needed, nodes_of)
    if not short:
        return None
    bits = sum(1 << k for k in short)
    lacking = {job for k, job in enumerate(shapes) if k in short}
    names = tuple(job.name for job in jobs if job in lacking)
    return Reason(
        code=ReasonCode.TOO_FEW_NODES,
        job=names[0] if len(names) == 1 else "",
        needed=sum(needed[k] for k in short),
        free=sum(count for served, count in nodes_of.items() if served & bits),
        unit="nodes",
        apart=names if len(names) > 1 else (),
    )


def nodes_of_use(job: Job, room: FreeCapacity, partitions: Sequence[str]) -> list[FreeNode]:
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
    """Shapes that together need more nodes than could serve any of them; none: not proved.

    Args:
        needed: nodes, by the number of the shape.
        nodes_of: how many nodes could serve which shapes (bit k: shape k).

    Source:
        Hall's theorem, by the augmenting paths of Ford and Fulkerson.
    """
    division = _Division(len(needed), nodes_of)
    most_picky_first = sorted(range(len(needed)), key=division.choice.__getitem__)
    lacking = {shape: division.take_free(shape, needed[shape]) for shape in most_picky_first}
    searches = SEARCHES
    for shape, wanted in lacking.items():
        left = wanted
        while left:
            if not searches:
                return set()
            searches -= 1
            asked, last = division.search(shape)
            if last is None:
                return set(asked)
            left -= division.pass_on(asked, last, left)
    return set()


class _Division:
    """Nodes divided among shapes, by kind: nodes of one kind could serve the same shapes.

    Sets of kinds are numbers, a bit for each kind: a site may have thousands of kinds.

    Args:
        shapes: how many there are.
        nodes_of: how many nodes could serve which shapes (bit k: shape k).
    """

    def __init__(self, shapes: int, nodes_of: Mapping[int, int]) -> None:
        kinds = sorted(nodes_of, key=lambda served: (served.bit_count(), served))
        self._left = [nodes_of[served] for served in kinds]  # of each kind, that nobody has
        self._free = (1 << len(kinds)) - 1  # kinds of which some are left
        self._could = [0] * shapes  # kinds of use to each shape
        self.choice = [0] * shapes  # among how many nodes each shape may choose
        for kind, served in enumerate(kinds):
            for shape in _each(served):
                self._could[shape] |= 1 << kind
                self.choice[shape] += nodes_of[served]
        self._given: list[dict[int, int]] = [{} for _ in range(shapes)]  # nodes of each kind
        self._held = [0] * shapes  # kinds of which each shape has some

    def take_free(self, shape: int, wanted: int) -> int:
        """Give a shape what nobody has, first what is of use to few; return what is wanting."""
        while wanted and (kinds := self._could[shape] & self._free):
            kind = _lowest(kinds)
            amount = min(wanted, self._left[kind])
            self._take(shape, kind, amount)
            wanted -= amount
        return wanted

    def search(
        self, shape: int
    ) -> tuple[dict[int, tuple[int, int] | None], tuple[int, int] | None]:
        """Find another node for a shape: of those left, or of one who can have another itself.

        Returns:
            Every shape that was asked, with who could take from it, and nodes of what kind; and the
            one that can take from what is left, and of what kind. None: nobody can.
        """
        asked: dict[int, tuple[int, int] | None] = {shape: None}
        queue, others = [shape], [k for k in range(len(self._could)) if k != shape]
        for taker in queue:
            could = self._could[taker]
            if free := could & self._free:
                return asked, (taker, _lowest(free))
            givers = {giver: kinds for giver in others if (kinds := could & self._held[giver])}
            asked |= {giver: (taker, _lowest(kinds)) for giver, kinds in givers.items()}
            queue.extend(givers)
            others = [k for k in others if k not in givers]
        return asked, None

    def pass_on(
        self, asked: Mapping[int, tuple[int, int] | None], last: tuple[int, int], wanted: int
    ) -> int:
        """Give what ``search`` has found, at most so many nodes; return how many."""
        taker, kind = last
        moves = [last]
        while (move := asked[moves[-1][0]]) is not None:
            moves.append(move)
        passed = [(giver, given) for (giver, _), (_, given) in pairwise(moves)]
        amount = min(wanted, self._left[kind], *(self._given[g][k] for g, k in passed))
        for giver, given in passed:
            self._give_up(giver, given, amount)
        self._take(taker, kind, amount)
        for to, given in moves[1:]:
            self._receive(to, given, amount)
        return amount

    def _take(self, shape: int, kind: int, amount: int) -> None:
        """Give a shape some of what nobody has."""
        self._left[kind] -= amount
        if not self._left[kind]:
            self._free &= ~(1 << kind)
        self._receive(shape, kind, amount)

    def _receive(self, shape: int, kind: int, amount: int) -> None:
        self._given[shape][kind] = self._given[shape].get(kind, 0) + amount
        self._held[shape] |= 1 << kind

    def _give_up(self, shape: int, kind: int, amount: int) -> None:
        self._given[shape][kind] -= amount
        if not self._given[shape][kind]:
            self._held[shape] &= ~(1 << kind)


def _each(bits: int) -> Iterator[int]:
    while bits:
        yield _lowest(bits)
        bits &= bits - 1


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
