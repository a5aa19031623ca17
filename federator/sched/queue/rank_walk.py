"""Goes through a ranking from the front, and leaves out whole lanes on the way.

A pass takes a few workloads from the front, leaves out all of a lane that cannot start, sets a lane
aside of which it has asked enough for now, and puts back whom it has to ask again. What it takes is
in rank order whatever was put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple, Protocol

from federator.model.workload import WorkloadId
from federator.sched.queue.ranked import Ranked
from federator.sched.state.backlog import Lane, Run

Key = tuple[int, float, float, int]
"""Priority, -credit, place in the lane: the order of the ranking. The last is the id."""


class Cursor(Protocol):
    """The workloads of one run of a lane, up to the place to which a pass has come."""

    lane: Lane
    run: Run

    def ranked(self, key: Key) -> Ranked:
        """The standing of the one that is next."""
        ...

    def advance(self) -> Key | None:
        """Go to the next; None when there is none."""
        ...


class Front(NamedTuple):
    """The workload that is next, and its lane; None of one that was put back."""

    id: WorkloadId
    lane: Lane | None
    priority: int
    within_quota: bool


Source = Cursor | Ranked | int
"""Where an item of the heap comes from: a run, one workload, or a tenant (its row) not looked into.
"""

Item = tuple[Key, Source]
Skips = Callable[[Lane, Run, Key], bool]


class RankWalk:
    """One way through a ranking.

    Args:
        items: the first of each source, in any order; no two keys are equal.
        runs_of: the items of a tenant's runs, by row.
    """

    def __init__(
        self, items: Iterable[Item], runs_of: Callable[[int], Iterable[Item]] = lambda _row: ()
    ) -> None:
        self._heap = list(items)
        heapify(self._heap)
        self._runs_of = runs_of
        self._aside: list[Item] = []
        self._taken: dict[WorkloadId, Key] = {}

    def front(self, skips: Skips) -> Front | None:
        """The workload that is next; None when there is none.

        Args:
            skips: whether a run is to be left out, for good; with the key of its next.
        """
        heap = self._heap
        while heap:
            key, source = heap[0]
            if isinstance(source, Ranked):
                return Front(source.id, None, source.priority, source.within_quota)
            if isinstance(source, int):
                heappop(heap)
                for item in self._runs_of(source):
                    run = item[1]
                    assert not isinstance(run, int | Ranked)
                    if not skips(run.lane, run.run, item[0]):
                        heappush(heap, item)
            elif skips(source.lane, source.run, key):
                heappop(heap)
            else:
                run_ = source.run
                return Front(WorkloadId(key[3]), source.lane, run_.priority, run_.within_quota)
        return None

    def put(self, key: Key, ranked: Ranked) -> None:
        """Have one at another place; whoever walks is to ``pass_over`` it at its own."""
        heappush(self._heap, (key, ranked))

    def take(self) -> Ranked:
        """Take the one that is next."""
        key, source = self._heap[0]
        assert not isinstance(source, int)
        ranked = source if isinstance(source, Ranked) else source.ranked(key)
        self.pass_over()
        self._taken[ranked.id] = key
        return ranked

    def pass_over(self) -> None:
        """Leave out the one that is next."""
        _, source = self._heap[0]
        assert not isinstance(source, int)
        following = None if isinstance(source, Ranked) else source.advance()
        if following is None or isinstance(source, Ranked):
            heappop(self._heap)
        else:
            heapreplace(self._heap, (following, source))

    def set_aside(self) -> None:
        """Leave out the one that is next, and its lane, until ``put_back``."""
        self._aside.append(heappop(self._heap))

    def put_back(self, again: Mapping[WorkloadId, Ranked]) -> None:
        """Have these once more of those that were taken, and whatever was set aside.

        The others that were taken are done with.
        """
        for item in self._aside:
            heappush(self._heap, item)
        for id_, ranked in again.items():
            heappush(self._heap, (self._taken[id_], ranked))
        self._aside, self._taken = [], {}


def walk_of(ranked: Iterable[Ranked]) -> RankWalk:
    """The way through a ranking that was sorted at once."""
    return RankWalk(((0, 0.0, float(k), int(each.id)), each) for k, each in enumerate(ranked))
