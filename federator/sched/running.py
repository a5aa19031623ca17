"""What of the federation runs at a site, in the order in which it would be evicted?"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from federator.model.site import NodeShare, RunningJob
from federator.model.tenant import LOWEST_PRIORITY
from federator.sched.room import FreeNode, Room

_TOO_SLOW = LOWEST_PRIORITY
MOST_IMPORTANT = 2 * LOWEST_PRIORITY


@dataclass(slots=True, eq=False)
class Occupant:
    """A running workload and the nodes it is on; a gang goes or stays as a whole."""

    job: RunningJob
    shares: tuple[tuple[FreeNode, NodeShare], ...]
    gpus: int
    cpus: int
    evicted: bool = False  # by a bid made before, as if that had won

    @property
    def importance(self) -> int:
        """0 for the lowest priority, 6 for the highest; all who save too slowly come above."""
        return LOWEST_PRIORITY - self.job.priority + (0 if self.job.saves_in_time else _TOO_SLOW)

    @property
    def key(self) -> tuple[int, float, int]:
        """Least important first, then the longest running, then the smaller id.

        Source:
            MAST (OSDI'24) sec. 4.3. That whoever cannot save in time goes last is added here.
        """
        return (self.importance, self.job.started_at_s, self.job.id)

    def release(self) -> None:
        """Give its nodes back, as if it had gone."""
        for f, share in self.shares:
            f.give_back(share)

    def restore(self) -> None:
        """Undo ``release``."""
        for f, share in self.shares:
            f.take(share)


def _key(occupant: Occupant) -> tuple[int, float, int]:
    return occupant.key


class Occupants:
    """All occupants of a room, sorted for eviction in each partition.

    Args:
        room: its nodes; jobs on other nodes are counted without those.
        running: the federation's jobs there.
        leaving: those that go for a bid that has won; nobody else may evict them.
    """

    def __init__(
        self, room: Room, running: Iterable[RunningJob] = (), leaving: frozenset[int] = frozenset()
    ) -> None:
        self.leaving = leaving
        self._room = room
        self._by_id: dict[int, Occupant] = {}
        self._too_slow: set[int] = set()
        self._in: dict[str, list[Occupant]] = {}
        for job in running:
            self.add(job)

    def __iter__(self) -> Iterator[Occupant]:
        return iter(self._by_id.values())

    def get(self, id_: int) -> Occupant | None:
        return self._by_id.get(id_)

    def add(self, job: RunningJob) -> None:
        """A job runs from now on; one that is known already is replaced."""
        self.remove(job.id)
        nodes = self._room.by_name
        shares = tuple((nodes[name], s) for name, s in job.nodes.items() if name in nodes)
        gpus = sum(s.gpus for s in job.nodes.values())
        cpus = sum(s.cpus for s in job.nodes.values())
        occupant = Occupant(job=job, shares=shares, gpus=gpus, cpus=cpus)
        self._by_id[job.id] = occupant
        if not job.saves_in_time:
            self._too_slow.add(job.id)
        for partition in {p for f, _ in shares for p in f.node.partitions}:
            insort(self._in.setdefault(partition, []), occupant, key=_key)

    def remove(self, id_: int) -> None:
        """A job has ended; harmless when it is not known."""
        occupant = self._by_id.pop(id_, None)
        if occupant is None:
            return
        self._too_slow.discard(id_)
        for partition in {p for f, _ in occupant.shares for p in f.node.partitions}:
            jobs = self._in[partition]
            del jobs[bisect_left(jobs, occupant.key, key=_key)]

    def below(self, priority: int, partition: str, now_s: float) -> Iterator[Occupant]:
        """Who may be evicted for this priority in a partition, in the order of eviction."""
        for occupant in self._in.get(partition, ()):
            job = occupant.job
            if job.priority <= priority:
                if not self._too_slow:
                    return
                continue  # behind them are those who save too slowly, of whatever priority
            free_to_go = job.preemptible and job.id not in self.leaving
            if free_to_go and not occupant.evicted and job.cooldown_until_s <= now_s:
                yield occupant
