"""Plays a queue forward once: who starts when, if runs take as long as they were drawn to.

A proxy of the daemon's passes that knows GPUs on nodes, and the fleet's licences, which a run
gives back when it ends. The first by rank that fits starts,
others pass it by; nobody is evicted, nothing is reserved, and what a workload asks for beside GPUs
counts in which pools it may use. Nothing starts before something has ended or come: the pass before
the play has just tried all.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import ceil, inf, log
from typing import Final, NamedTuple

from federator.model.license import Licenses
from federator.model.mappings import NOTHING

Hold = tuple[tuple[int, int], ...]
"""Node and GPUs of it, each."""


class PlayShape(NamedTuple):
    """What a workload needs of a pool.

    Attributes:
        gpus: in all, at least 1.
        nodes: on so many nodes, ``per_node`` on each; 0: on any.
        per_node: GPUs.
        pools: the indices of those that it may use, in order.
        limit_s: it may run so long, and must be over before a pool closes; 0: none closes to it.
        licenses: of the fleet's, that it takes wherever it runs.
        off_slow: those of ``pools`` on whose slow nodes it does not start.
    """

    gpus: int
    nodes: int
    per_node: int
    pools: tuple[int, ...]
    limit_s: float = 0.0
    licenses: Licenses = ()
    off_slow: tuple[int, ...] = ()


class Closure(NamedTuple):
    """A time in which all nodes of a pool are kept for others, in seconds from now."""

    from_s: float
    to_s: float


class PlayedRun(NamedTuple):
    """What runs: where, for how long yet in seconds, and the fleet's licences that it holds."""

    pool: int
    hold: Hold
    left_s: float
    licenses: Licenses = ()


class Coming(NamedTuple):
    """What waits, or will come: after how many seconds, and how long it will run."""

    at_s: float
    shape: PlayShape
    runs_s: float


_LIMITS: Final = 4.0  # lanes for twice the time limit: else there would be one for each
_NOTHING: Final = Coming(inf, PlayShape(1, 0, 0, ()), 0.0)


class Pool:
    """The free GPUs of alike nodes of a site.

    Args:
        free: of each node.
        slow: the indices of those on which jobs of several nodes do not start.
    """

    __slots__ = ("_at", "free", "slow", "total")

    def __init__(self, free: Sequence[int], slow: Collection[int] = ()) -> None:
        self.free = list(free)
        self.slow = frozenset(slow)
        self.total = sum(free)
        self._at = [0] * (max(free, default=0) + 1)  # nodes by how many of their GPUs are free
        for gpus in free:
            self._at[gpus] += 1

    def copy(self) -> Pool:
        other = Pool.__new__(Pool)
        other.free, other.total, other._at = self.free[:], self.total, self._at[:]
        other.slow = self.slow
        return other

    def fits(self, shape: PlayShape, *, off_slow: bool = False) -> bool:
        """Tell whether a shape could start now; ``off_slow``: without the slow nodes."""
        if self.total < shape.gpus:
            return False
        if off_slow and self.slow:
            slow = [self.free[node] for node in self.slow]
            if self.total - sum(slow) < shape.gpus:
                return False
            unfit = sum(gpus >= shape.per_node for gpus in slow)
            return not shape.nodes or sum(self._at[shape.per_node :]) - unfit >= shape.nodes
        return not shape.nodes or sum(self._at[shape.per_node :]) >= shape.nodes

    def take(self, shape: PlayShape, *, off_slow: bool = False) -> Hold:
        """Start it; it fits. The fullest nodes that do are taken, or as few as there can be."""
        if off_slow and self.slow:
            return self._take_others(shape)
        if shape.nodes:
            return tuple(
                (self._move_fullest(shape.per_node), shape.per_node) for _ in range(shape.nodes)
            )
        left, found = shape.gpus, []
        while left:
            gpus = min(left, next(k for k in range(len(self._at) - 1, 0, -1) if self._at[k]))
            found.append((self._move_fullest(gpus), gpus))
            left -= gpus
        return tuple(found)

    def _take_others(self, shape: PlayShape) -> Hold:
        """The same without the slow nodes."""
        free = [(gpus, node) for node, gpus in enumerate(self.free) if node not in self.slow]
        if shape.nodes:
            fitting = sorted(each for each in free if each[0] >= shape.per_node)
            found = [(node, shape.per_node) for _, node in fitting[: shape.nodes]]
        else:
            found, left = [], shape.gpus
            for gpus, node in sorted(free, key=lambda each: -each[0]):
                if left > 0:
                    found.append((node, min(gpus, left)))
                    left -= min(gpus, left)
        for node, gpus in found:
            self._move(node, -gpus)
        return tuple(found)

    def give(self, hold: Hold) -> None:
        """What was held is free again."""
        for node, gpus in hold:
            self._move(node, gpus)

    def _move_fullest(self, gpus: int) -> int:
        """Take so many GPUs of the fullest node that has them free."""
        level = next(k for k in range(gpus, len(self._at)) if self._at[k])
        node = self.free.index(level)
        self._move(node, -gpus)
        return node

    def _move(self, node: int, gpus: int) -> None:
        was = self.free[node]
        now = was + gpus
        if now >= len(self._at):
            self._at += [0] * (now + 1 - len(self._at))
        self._at[was] -= 1
        self._at[now] += 1
        self.free[node] = now
        self.total += gpus


class Play:
    """One play of a queue.

    Args:
        pools: as they are now; they are changed.
        running: what runs.
        waiting: in rank order; their ``at_s`` counts nothing.
        coming: what will come meanwhile, in the order of time; after its end nothing comes. None:
            nothing is known of that.
        unwanted: indices of those that wait whose starts are not wanted: it ends without them.
        closures: of each pool; none: no pool closes.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        running: Sequence[PlayedRun],
        waiting: Sequence[Coming],
        coming: Iterator[Coming] | None = None,
        unwanted: Collection[int] = (),
        closures: Sequence[Sequence[Closure]] = (),
    ) -> None:
        self._pools = pools
        self._licenses: Counter[str] = Counter()
        self._ends = [(e.left_s, k, e.pool, e.hold, e.licenses) for k, e in enumerate(running)]
        opens = [(each.to_s, p) for p, some in enumerate(closures) for each in some]
        self._ends += [(at_s, len(running) + k, p, (), ()) for k, (at_s, p) in enumerate(opens)]
        heapify(self._ends)
        self._closures = closures
        self._jobs = list(waiting)
        self._coming = coming
        self._seq = len(self._ends)
        self._lane_of: dict[PlayShape, PlayShape] = {}  # with a class of limits in their place
        self._lanes: dict[PlayShape, deque[int]] = {}  # who waits, by these and then by rank
        self._by_pool: list[list[PlayShape]] = [[] for _ in pools]
        self.starts_s = [inf] * len(waiting)
        self._unwanted = unwanted
        self._left = len(waiting) - len(unwanted)
        for k, job in enumerate(waiting):
            self._wait(k, job.shape)

    def run(self, until_s: float, licenses: Mapping[str, int] = NOTHING) -> list[float]:
        """When each that waits starts, in seconds from now; inf: not before ``until_s``.

        Args:
            until_s: seconds from now.
            licenses: of the fleet's, that are free now, by name.
        """
        ends, coming = self._ends, self._coming
        self._licenses.update(licenses)
        comes = next(coming, _NOTHING) if coming is not None else _NOTHING
        while self._left:
            ends_s = ends[0][0] if ends else inf
            now_s = min(comes.at_s, ends_s)
            if now_s > until_s or now_s == inf:
                break
            if ends_s <= comes.at_s:
                self._end(now_s)
            else:
                self._arrive(comes, now_s)
                comes = next(coming, _NOTHING) if coming is not None else _NOTHING
        return self.starts_s

    def _end(self, now_s: float) -> None:
        """End what is over, and start who fits now.

        Where only licences came free, only those that want some start.
        """
        ends, touched, licensed = self._ends, [], False
        while ends and ends[0][0] <= now_s:
            _, _, pool, hold, licenses = heappop(ends)
            self._pools[pool].give(hold)
            if pool not in touched:
                touched.append(pool)
            for name, amount in licenses:
                self._licenses[name] += amount
                licensed = True
        for pool in touched:
            self._serve(pool, self._by_pool[pool], now_s)
        for pool in range(len(self._pools)) if licensed else ():
            self._serve(pool, [shape for shape in self._by_pool[pool] if shape.licenses], now_s)

    def _serve(self, pool: int, shapes: Sequence[PlayShape], now_s: float) -> None:
        """Start all of these shapes that fit a pool, the first by rank first."""
        room = self._pools[pool]
        while True:
            first, chosen = inf, None
            for shape in shapes:
                lane = self._lanes[shape]
                if not lane or lane[0] >= first or shape.gpus > room.total:
                    continue
                fits = room.fits(shape, off_slow=pool in shape.off_slow)
                if not fits or not self._has_licenses(shape):
                    continue
                if self._is_open(pool, self._jobs[lane[0]].shape, now_s):
                    first, chosen = lane[0], shape
            if chosen is None:
                return
            self._start(self._lanes[chosen].popleft(), pool, now_s)

    def _has_licenses(self, shape: PlayShape) -> bool:
        return all(self._licenses[name] >= amount for name, amount in shape.licenses)

    def _is_open(self, pool: int, shape: PlayShape, now_s: float) -> bool:
        if not shape.limit_s or not self._closures:
            return True
        until_s = now_s + shape.limit_s
        return all(now_s >= c.to_s or until_s <= c.from_s for c in self._closures[pool])

    def _arrive(self, job: Coming, now_s: float) -> None:
        """It starts where it fits tightest, or waits behind those that do already."""
        k, shape = len(self._jobs), job.shape
        self._jobs.append(job)
        fitting = [
            p
            for p in shape.pools
            if self._pools[p].fits(shape, off_slow=p in shape.off_slow)
            and self._is_open(p, shape, now_s)
        ]
        waits = self._lanes.get(self._lane(shape)) or not self._has_licenses(shape)
        if fitting and not waits:
            self._start(k, min(fitting, key=lambda p: self._pools[p].total), now_s)
        else:
            self._wait(k, shape)

    def _lane(self, shape: PlayShape) -> PlayShape:
        """Whose head is asked for all of them: limits that are nearly alike share it."""
        if not 0.0 < shape.limit_s < inf:
            return shape
        if shape not in self._lane_of:
            limit_s = 2.0 ** (ceil(_LIMITS * log(shape.limit_s, 2.0)) / _LIMITS)
            self._lane_of[shape] = shape._replace(limit_s=limit_s)
        return self._lane_of[shape]

    def _wait(self, k: int, shape: PlayShape) -> None:
        shape = self._lane(shape)
        if shape not in self._lanes:
            self._lanes[shape] = deque()
            for pool in shape.pools:
                self._by_pool[pool].append(shape)
        self._lanes[shape].append(k)

    def _start(self, k: int, pool: int, now_s: float) -> None:
        job = self._jobs[k]
        self._seq += 1
        hold = self._pools[pool].take(job.shape, off_slow=pool in job.shape.off_slow)
        for name, amount in job.shape.licenses:
            self._licenses[name] -= amount
        heappush(self._ends, (now_s + job.runs_s, self._seq, pool, hold, job.shape.licenses))
        if k < len(self.starts_s):
            self.starts_s[k] = now_s
            self._left -= k not in self._unwanted
