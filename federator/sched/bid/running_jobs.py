"""The federation's running jobs at a site, in the order in which they would be evicted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from federator.model.plan import Shrink
from federator.model.site import NodeShare, RunningJob
from federator.model.tenant import LOWEST_PRIORITY
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.state.preemption_cost import expected_loss_s
from federator.sched.state.rules import LEAST_GPUS

_LEVELS = 2 * LOWEST_PRIORITY  # of priority: what is optional, and what is not
_TOO_SLOW = _LEVELS
MOST_IMPORTANT = 2 * _LEVELS
UNKNOWN_SHARE = NodeShare()  # of one who is known to be on a node
_LAST = 2**31  # a workload, behind those of its optional jobs that are its equals


@dataclass(slots=True, eq=False)
class Occupant:
    """A part that is evicted at once, and its nodes; a gang goes or stays as a whole.

    That is a running workload, less what of it is optional; or one of its optional jobs, which may
    go alone. ``whole`` is the occupant of the workload that an optional job is of, ``parts`` are
    those of a workload; when it goes, so do they.
    """

    job: RunningJob
    shares: tuple[tuple[FreeNode, NodeShare], ...]
    node_count: int
    gpus: int
    cpus: int
    component: int = 0  # the number of an optional job; 0: of the workload
    whole: Occupant | None = None
    parts: list[Occupant] = field(default_factory=list)
    evicted: bool = False  # by a bid made before, as if that had won

    @property
    def cost_gpus(self) -> int:
        """The GPUs that its eviction counts in the budget."""
        return max(LEAST_GPUS, self.gpus)

    @property
    def importance(self) -> int:
        """Two for each level of priority, 0 for the lowest; all who save too slowly come above.

        What is optional comes below the rest of its level. An optional job is not waited for.
        """
        if self.component:
            return 2 * (LOWEST_PRIORITY - self.job.priority)
        level = 2 * (LOWEST_PRIORITY - self.job.priority) + (not self.job.optional)
        return level + (0 if self.job.saves_in_time else _TOO_SLOW)

    @property
    def key(self) -> tuple[int, float, int, int]:
        """Least important first, then the longest running, then the smaller id.

        This is the order of eviction where nothing is known of saves; see ``Occupants.below``.

        Source:
            MAST (OSDI'24) sec. 4.3. That whoever cannot save in time goes last, and what is
            optional first, is added here.
        """
        return (self.importance, self.job.started_at_s, self.job.id, self.component or _LAST)

    def loss_s(self, now_s: float) -> float:
        """Seconds of each GPU that its eviction now is expected to destroy."""
        return expected_loss_s(self.job, now_s, grace=not self.component)

    def release(self) -> None:
        """Give its nodes back, as if it had gone."""
        for f, share in self.shares:
            f.give_back(share)

    def restore(self) -> None:
        """Undo ``release``."""
        for f, share in self.shares:
            f.take(share)


def _key(occupant: Occupant) -> tuple[int, float, int, int]:
    return occupant.key


def _importance(occupant: Occupant) -> int:
    return occupant.importance


def _holds_as_much(job: RunningJob, before: RunningJob) -> bool:
    """Whether a job holds what it held, for as long."""
    return (job.nodes, job.components, job.ends_by_s) == (
        before.nodes,
        before.components,
        before.ends_by_s,
    )


class Occupants:
    """All occupants of a room, sorted for eviction in each partition.

    Args:
        room: its nodes; jobs on other nodes are counted without those.
        running: the federation's jobs there.
        leaving: those that go for a bid that has won; nobody else may evict them.
    """

    def __init__(
        self,
        room: FreeCapacity,
        running: Iterable[RunningJob] = (),
        leaving: frozenset[Shrink] = frozenset(),
    ) -> None:
        self.leaving = leaving  # of a whole workload as component 0
        self._room = room
        self._by_id: dict[int, Occupant] = {}
        self._bounded: dict[int, None] = {}  # those with a time limit
        self._unknown: dict[int, None] = {}  # those whose share of a node is not known
        self._too_slow: set[int] = set()
        self._in: dict[str, list[Occupant]] = {}
        self._by_loss: dict[tuple[str, int], list[Occupant]] = {}  # as of ``_by_loss_at_s``
        self._by_loss_at_s = 0.0
        for job in running:
            self.add(job)

    def __iter__(self) -> Iterator[Occupant]:
        """Every workload, and every job that may be taken from one."""
        for occupant in self._by_id.values():
            yield occupant
            yield from occupant.parts

    @property
    def bounded(self) -> Iterator[Occupant]:
        """Every workload that has a time limit, and every job that may be taken from one."""
        for id_ in self._bounded:
            yield self._by_id[id_]
            yield from self._by_id[id_].parts

    @property
    def of_unknown_share(self) -> Iterator[Occupant]:
        """The same of those whose share of a node is not known."""
        for id_ in self._unknown:
            yield self._by_id[id_]
            yield from self._by_id[id_].parts

    @property
    def jobs(self) -> list[RunningJob]:
        """Every workload once."""
        return [occupant.job for occupant in self._by_id.values()]

    def replace(self, jobs: dict[int, RunningJob]) -> tuple[bool, bool]:
        """These run now, by id, and nobody else; what is as it was stays.

        Returns:
            Whether anything has come free, and whether anything has changed.
        """
        freed = False
        for known in self.jobs:
            job = jobs.get(known.id)
            if job == known:
                del jobs[known.id]
                continue
            freed = freed or job is None or not _holds_as_much(job, known)
            if job is None:
                self.remove(known.id)
        for job in jobs.values():
            self.add(job)
        return freed, freed or bool(jobs)

    def get(self, id_: int, component: int = 0) -> Occupant | None:
        """A workload, less what may be taken from it; or one of the jobs that may."""
        occupant = self._by_id.get(id_)
        if occupant is None or not component:
            return occupant
        return next((part for part in occupant.parts if part.component == component), None)

    def going(self, victims: Iterable[int], shrinks: Iterable[Shrink] = ()) -> list[Occupant]:
        """All that go with these workloads, and these jobs of others; who is not known does not."""
        wholes = [o for id_ in victims if (o := self.get(id_)) is not None]
        taken = [o for id_, k in shrinks if k and (o := self.get(id_, k)) is not None]
        return list(dict.fromkeys([*taken, *wholes, *(p for o in wholes for p in o.parts)]))

    def add(self, job: RunningJob) -> None:
        """A job runs from now on; one that is known already is replaced."""
        self.remove(job.id)
        optional = [k for k in job.optional_jobs if k and job.components.get(k)]
        whole = self._occupant(job, _rest(job, optional))
        whole.parts = [self._occupant(job, job.components[k], k) for k in optional]
        self._by_id[job.id] = whole
        self._by_loss.clear()
        if isfinite(job.ends_by_s):
            self._bounded[job.id] = None
        if not job.saves_in_time:
            self._too_slow.add(job.id)
        for occupant in (whole, *whole.parts):
            if any(share == UNKNOWN_SHARE for _, share in occupant.shares):
                self._unknown[job.id] = None
            if occupant is not whole:
                occupant.whole = whole
            for partition in _partitions(occupant):
                insort(self._in.setdefault(partition, []), occupant, key=_key)

    def _occupant(
        self, job: RunningJob, held: Mapping[str, NodeShare], component: int = 0
    ) -> Occupant:
        nodes = self._room.by_name
        return Occupant(
            job=job,
            shares=tuple((nodes[name], s) for name, s in held.items() if name in nodes),
            node_count=len(held),
            gpus=sum(s.gpus for s in held.values()),
            cpus=sum(s.cpus for s in held.values()),
            component=component,
        )

    def remove(self, id_: int) -> None:
        """A job has ended; harmless when it is not known."""
        whole = self._by_id.pop(id_, None)
        if whole is None:
            return
        self._too_slow.discard(id_)
        self._bounded.pop(id_, None)
        self._unknown.pop(id_, None)
        self._by_loss.clear()
        for occupant in (whole, *whole.parts):
            for partition in _partitions(occupant):
                jobs = self._in[partition]
                del jobs[bisect_left(jobs, occupant.key, key=_key)]

    def below(
        self,
        priority: int,
        partition: str,
        now_s: float,
        own: Collection[Occupant] = (),
        *,
        in_time: bool = False,
    ) -> Iterator[Occupant]:
        """Jobs that may be evicted for this priority in a partition, in the order of eviction.

        That is the least important first, and of equals those who lose the least of each GPU: the
        longest running, where their last saves are not known.

        ``own``: what the plan in question evicts already. ``in_time``: those too who are spared for
        a while yet.

        Source:
            MAST (OSDI'24) sec. 4.3 has the running time alone; see ``expected_loss_s``.
        """
        for occupant in self._in_order(partition, now_s):
            job = occupant.job
            if job.priority <= priority:
                if not self._too_slow:
                    return
                continue  # behind them are those who save too slowly, of whatever priority
            free_to_go = job.preemptible and (in_time or job.cooldown_until_s <= now_s)
            if not free_to_go or occupant.evicted:
                continue
            if not (self.leaving or occupant.parts) or not self._spoken_for(occupant, own):
                yield occupant

    def movable(self, partition: str, priority: int, now_s: float) -> Iterator[Occupant]:
        """Jobs on one node of a partition that may move to another one now, for this priority."""
        for occupant in self._in.get(partition, ()):
            job = occupant.job
            free_to_go = job.preemptible and job.movable and job.cooldown_until_s <= now_s
            free_to_go = free_to_go and job.priority >= priority
            if not free_to_go or occupant.evicted or not job.saves_in_time:
                continue
            on_one = len(occupant.shares) == occupant.node_count == 1 and not occupant.parts
            if not on_one or occupant.shares[0][1] == UNKNOWN_SHARE:
                continue
            if not self.leaving or not self._spoken_for(occupant, ()):
                yield occupant

    def _in_order(self, partition: str, now_s: float) -> Iterator[Occupant]:
        """All in a partition, in the order of eviction.

        What each loses changes with time in its own way, so no order lasts. That of a level of
        importance is worked out when it is come to, once for all bids of a moment.
        """
        if now_s != self._by_loss_at_s:
            self._by_loss, self._by_loss_at_s = {}, now_s
        by_key = self._in.get(partition, [])
        begin = 0
        while begin < len(by_key):
            level = by_key[begin].importance
            end = bisect_right(by_key, level, begin, key=_importance)
            found = self._by_loss.get((partition, level))
            if found is None:
                found = sorted(by_key[begin:end], key=lambda each: each.loss_s(now_s))
                self._by_loss[partition, level] = found
            yield from found
            begin = end

    def _spoken_for(self, occupant: Occupant, own: Collection[Occupant]) -> bool:
        """It leaves for another, or what would go with it does."""
        id_ = occupant.job.id
        if self.leaving and (
            Shrink(id_, 0) in self.leaving
            or Shrink(id_, occupant.component) in self.leaving
            or any(Shrink(id_, part.component) in self.leaving for part in occupant.parts)
        ):
            return True
        return any(part.evicted and part not in own for part in occupant.parts)


def _rest(job: RunningJob, optional: Sequence[int]) -> Mapping[str, NodeShare]:
    """The shares that a job holds on each node without its optional components."""
    if not optional:
        return job.nodes
    rest: dict[str, NodeShare] = {}
    kept = (held for k, held in job.components.items() if k not in optional)
    for name, share in (item for held in kept for item in held.items()):
        rest[name] = rest.get(name, NodeShare()) + share
    return rest


def _partitions(occupant: Occupant) -> set[str]:
    return {p for f, _ in occupant.shares for p in f.node.partitions}
