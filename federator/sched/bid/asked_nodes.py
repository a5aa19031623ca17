"""Selects nodes for a job that names some (``--nodelist``), or counts features of some.

Which of them are right depends on the others: the nodes asked for are in every plan, and each
feature that is counted has so many nodes of its own, where one that was asked for counts as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from federator.model.constraint import Counted, Way, holds
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import Job
from federator.sched.bid.fabric import Fabric
from federator.sched.bid.free_capacity import FreeNode, tightness
from federator.sched.bid.racks import Racks, levels

MOST_NAMED: Final = 8  # nodes that a reason names

Enough = Callable[[Sequence[FreeNode]], bool]
"""Tells whether nodes hold the totals of a job; with more nodes always as well."""


def not_to_be_had(
    job: Job, suitable: Sequence[FreeNode], fitting: Sequence[FreeNode]
) -> Reason | None:
    """The nodes asked for that do not suit, or have too little free; None: all are to be had."""
    for code, nodes in (
        (ReasonCode.NODES_ASKED, suitable),
        (ReasonCode.TOO_FEW_NODES, fitting),
    ):
        there = {f.node.name for f in nodes}
        missing = [name for name in job.nodelist if name not in there]
        if missing:
            named = ",".join(missing[:MOST_NAMED]) + (",…" if len(missing) > MOST_NAMED else "")
            return Reason(
                code=code,
                job=job.name,
                needed=len(job.nodelist),
                free=len(job.nodelist) - len(missing),
                unit="nodes",
                detail=named,
            )
    return None


def choose_asked(
    job: Job,
    way: Way,
    fitting: Sequence[FreeNode],
    fabric: Fabric,
    freest_first: Callable[[Sequence[FreeNode]], list[FreeNode]] | None,
    enough: Enough,
) -> list[FreeNode]:
    """The nodes for a job, beginning with those that it asks for; none where nothing will do.

    Args:
        job: with all its ``nodelist`` among ``fitting``.
        way: how its constraint is to be satisfied; ``every`` holds on all of ``fitting``.
        fitting: nodes with room for its least share.
        fabric: how they are connected; a rack that will do is preferred, then the nearest.
        freest_first: their order where totals are to be held; None: the tightest come first.
        enough: whether nodes hold the totals.
    """
    wanted = frozenset(job.nodelist)
    asked = [f for f in fitting if f.node.name in wanted]
    for group in _groups([f for f in fitting if f.node.name not in wanted], asked, fabric):
        order = sorted(group, key=tightness) if freest_first is None else freest_first(group)
        found = _complete(job, way, asked, order, enough)
        if found:
            return found
    return []


def _groups(
    others: Sequence[FreeNode], asked: Sequence[FreeNode], fabric: Fabric
) -> Iterator[list[FreeNode]]:
    """None, each rack (with most of those asked for first), wider and wider parts, and all."""
    yield []
    racks: Racks = {}
    for f in others:
        racks.setdefault(f.node.switch, []).append(f)
    near = [f.node.switch for f in asked]
    yield from sorted(
        racks.values(), key=lambda rack: (-near.count(rack[0].node.switch), len(rack))
    )
    for level in levels(racks, fabric) if racks else ():
        groups = ([f for rack in d.racks.values() for f in rack] for d in level)
        yield from sorted(groups, key=len)
    yield list(others)


def _complete(
    job: Job, way: Way, asked: Sequence[FreeNode], order: Sequence[FreeNode], enough: Enough
) -> list[FreeNode]:
    """Those asked for, those that are counted, and as many more as it takes."""
    counts = _Counts(way.counted)
    for f in asked:
        counts.add(f)
    chosen: list[FreeNode] = list(asked)
    left: list[FreeNode] = []
    for f in order:
        (chosen if counts.add(f) else left).append(f)
    if not counts.full or not (chosen or left):
        return []
    if job.nodes is not None:
        more = job.nodes - len(chosen)
        if not 0 <= more <= len(left):
            return []
        chosen += left[:more]
        return chosen if enough(chosen) else []
    low, high = 0 if chosen else 1, len(left)
    if not enough(chosen + left):
        return []
    while low < high:
        middle = (low + high) // 2
        if enough(chosen + left[:middle]):
            high = middle
        else:
            low = middle + 1
    return chosen + left[:low]


@dataclass(slots=True)
class _Counts:
    """Gives every counted feature nodes of its own, as they come.

    A node that was given to one stays in use, though it may pass to another. So those that come
    first are used as far as they can be.

    Source:
        Augmenting paths; the nodes that can be in use together are a transversal matroid, for which
        taking them greedily, best first, is best.
    """

    counted: tuple[Counted, ...]
    given: list[list[frozenset[int]]] = field(init=False)
    """For each feature the nodes that it has: the features that each could serve."""
    useless: set[frozenset[int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.given = [[] for _ in self.counted]

    @property
    def full(self) -> bool:
        return all(
            len(has) == part.nodes for part, has in zip(self.counted, self.given, strict=True)
        )

    def add(self, f: FreeNode) -> bool:
        """Use a node, if it is of any use beside those before it."""
        serves = frozenset(
            k for k, part in enumerate(self.counted) if holds(part.of, f.node.features)
        )
        if not serves or serves in self.useless:
            return False
        came_from: dict[int, int | None] = dict.fromkeys(serves)
        queue = list(serves)
        for k in queue:
            if len(self.given[k]) < self.counted[k].nodes:
                self._pass_on(k, came_from, serves)
                return True
            for other in frozenset().union(*self.given[k]) - came_from.keys():
                came_from[other] = k
                queue.append(other)
        self.useless.add(serves)
        return False

    def _pass_on(self, k: int, came_from: dict[int, int | None], serves: frozenset[int]) -> None:
        """Let each feature on the way give one node to the next, and the first take the new one."""
        giver = came_from[k]
        while giver is not None:
            moved = next(node for node in self.given[giver] if k in node)
            self.given[giver].remove(moved)
            self.given[k].append(moved)
            k, giver = giver, came_from[giver]
        self.given[k].append(serves)
