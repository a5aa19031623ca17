"""``hived``: gives each pool a private cluster of cells, and lends idle cells to jobs it can stop.

A pool owns as many node cells as it has nodes, none in particular. A node cell splits into two
halves while they are whole, then into single GPUs: 8, 4, 2, 1. A job of at most a node's GPUs takes
the first GPUs of the smallest cell that holds it; a larger one takes node cells, and a cell for its
remainder. A pool's node cell is bound to a node when a job first uses it, and let go when the last
one that does so ends.

Guaranteed: each pool serves its jobs strictly in order of submission, within its own node cells. Of
the free cells of its bound nodes a job gets the one whose use leaves the largest free cells whole
(the buddy rule); if there is none, another node is bound. Lent: a job whose turn has not come runs
on cells that nobody uses, bound or not, of the pool that uses least of its own GPUs, by order of
submission, smaller ones passing those that do not fit. It is stopped where a guaranteed job needs
its GPUs, at no cost, and goes on later where it stopped. When its turn comes it becomes guaranteed:
where it is, unless other cells of its pool bind fewer nodes; then it is moved, at no cost as well,
which counts as a preemption. If two cells are as good, a guaranteed job gets the one with fewer
lent GPUs, then the lower node; a lent one gets one on an unbound node first, then the higher node.

Nodes of one size are one chain. Pools share nodes of their own size only.

Source:
    HiveD (OSDI'20), as SIA sec. 5.5 describes its cells and buddy allocation, and as its authors'
    implementation has them (github.com/microsoft/hivedscheduler, ``pkg/algorithm``): a cell that a
    tenant was given is bound as a whole, split inside for that tenant alone, and bound where the
    fewest lent GPUs are. What is chosen here:

    - jobs declare there whether they are guaranteed; here each is, in turn, and lent until then;
    - a request is a number of GPUs; what a job leaves of its cell is free for others;
    - a tenant's own order is left to it there: here that of ``pool-fifo``;
    - traces have no racks, so node cells are the largest;
    - what a stopped job loses is not said; nothing, as with ``tiresias`` and ``themis``.

    SIA's HiveD* (sec. 6.1), which never preempts, is ``HivedReplay(preempts=False)``: who was lent
    GPUs keeps them, and a guaranteed job waits until there is a node, or a cell, without such.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from math import inf
from typing import Final

from federator.sim.fifo_engine import report
from federator.sim.trace import ReplayOptions, Stays, Timetable, Trace

_UNBOUND: Final = -1

Share = tuple[int, int]
"""A node, and a bit for each of its GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HivedReplay:
    """Cells of pools, with idle ones lent.

    ``preempts``: jobs on lent cells are stopped when a guaranteed one needs them.
    """

    preempts: bool = True

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        timetable = Timetable.of(trace, shared=True)
        for row, stays in enumerate(self.stays(trace, options)):
            start_s, end_s = stays[-1]
            timetable.start_s[row], timetable.end_s[row] = int(start_s), int(end_s)
            timetable.preemptions[row] = len(stays) - 1
        return timetable

    def stays(self, trace: Trace, options: ReplayOptions) -> Stays:
        """When each job ran, attempt by attempt."""
        stays: list[list[tuple[float, float]]] = [[] for _ in range(len(trace))]
        chains: dict[int, list[int]] = {}
        for k, pool in enumerate(trace.pools):
            chains.setdefault(pool.gpus_per_node, []).append(k)
        for pools in chains.values():
            _Chain(trace, pools, self.preempts, stays, options).replay()
        return list(stays)


@cache
def _sizes(per_node: int) -> tuple[int, ...]:
    """Of cells, ascending."""
    found = [per_node]
    while found[-1] > 1:
        found.append(found[-1] // 2 if found[-1] % 2 == 0 else 1)
    return tuple(reversed(found))


def _ones(count: int) -> int:
    return (1 << count) - 1


@cache
def _cells(free: int, gpus: int, per_node: int) -> tuple[tuple[int, int], ...]:
    """Cells for so many GPUs of which all are free, as size of the free cell around it and mask."""
    sizes = _sizes(per_node)
    size = next(size for size in sizes if size >= gpus)
    found = []
    for at in range(0, per_node, size):
        around = 0
        for wider in sizes[sizes.index(size) :]:
            cell = _ones(wider) << at // wider * wider
            if free & cell != cell:
                break
            around = wider
        if around:
            found.append((around, _ones(gpus) << at))
    return tuple(found)


class CellSpace:
    """The nodes of a chain: who they are bound to, and which GPUs are in use.

    Args:
        nodes: how many.
        per_node: GPUs of each.
        owned: node cells of each pool; together at most the nodes.
        preempts: cells of lent GPUs count as free for guaranteed jobs.
    """

    def __init__(self, nodes: int, per_node: int, owned: list[int], preempts: bool) -> None:
        self.per_node, self.preempts = per_node, preempts
        self.owner = [_UNBOUND] * nodes
        self.own = [0] * nodes  # GPUs of guaranteed jobs
        self.lent = [0] * nodes
        self.unbound = owned[:]  # node cells of each pool
        self.bound: list[set[int]] = [set() for _ in owned]
        self.all = _ones(per_node)

    def guaranteed(self, pool: int, gpus: int) -> list[Share] | None:
        """What a job of a pool gets of its own cells; None: nothing. ``take`` takes it."""
        count, part = divmod(gpus, self.per_node)
        wide = self._node_cells(count) if count <= self.unbound[pool] else None
        if wide is None or not part:
            return wide
        rest = self._own_cell(self.bound[pool], part)
        if rest is None and self.unbound[pool] > count:
            used = {node for node, _ in wide}
            free = (n for n, owner in enumerate(self.owner) if owner < 0 and n not in used)
            rest = self._own_cell(free, part)
        return None if rest is None else [*wide, rest]

    def _own_cell(self, nodes: Iterator[int] | set[int], gpus: int) -> Share | None:
        best: tuple[int, int, int, int] | None = None
        for node in nodes:
            used = self.own[node] if self.preempts else self.own[node] | self.lent[node]
            for around, mask in _cells(self.all & ~used, gpus, self.per_node):
                key = around, (mask & self.lent[node]).bit_count(), node, mask
                if best is None or key < best:
                    best = key
        return None if best is None else (best[2], best[3])

    def _node_cells(self, count: int) -> list[Share] | None:
        if not count:
            return []
        found = [
            (self.lent[node].bit_count(), node)
            for node, owner in enumerate(self.owner)
            if owner < 0 and (self.preempts or not self.lent[node])
        ]
        chosen = sorted(found)[:count]
        return [(node, self.all) for _, node in chosen] if len(chosen) == count else None

    def idle(self, gpus: int) -> list[Share] | None:
        """What a job may be lent now; None: nothing."""
        count, part = divmod(gpus, self.per_node)
        free = [self.all & ~(a | b) for a, b in zip(self.own, self.lent, strict=True)]
        whole = [n for n in range(len(free) - 1, -1, -1) if free[n] == self.all]
        if len(whole) < count:
            return None
        shares = [(node, self.all) for node in whole[:count]]
        if not part:
            return shares
        best: tuple[bool, int, int, int] | None = None
        for node, mask_free in enumerate(free):
            if mask_free and (not count or node not in whole[:count]):
                for around, mask in _cells(mask_free, part, self.per_node):
                    key = self.owner[node] >= 0, around, -node, mask
                    if best is None or key < best:
                        best = key
        return None if best is None else [*shares, (-best[2], best[3])]

    def binds(self, shares: list[Share], pool: int) -> float:
        """How many more nodes a pool would bind for these cells; infinite if some is another's."""
        owners = [self.owner[node] for node, _ in shares]
        if any(owner not in (pool, _UNBOUND) for owner in owners):
            return inf
        return owners.count(_UNBOUND)

    def take(self, shares: list[Share], pool: int) -> None:
        """For a guaranteed job of a pool, which binds nodes; for a lent one of none (-1)."""
        for node, mask in shares:
            assert not mask & (self.own[node] | self.lent[node]), f"node {node} is used twice"
            if pool < 0:
                self.lent[node] |= mask
                continue
            assert self.owner[node] in (pool, _UNBOUND), f"node {node} is another pool's"
            if self.owner[node] < 0:
                self.owner[node] = pool
                self.unbound[pool] -= 1
                self.bound[pool].add(node)
            self.own[node] |= mask

    def give(self, shares: list[Share], pool: int) -> None:
        """What was taken, by the same pool."""
        for node, mask in shares:
            if pool < 0:
                self.lent[node] ^= mask
                continue
            self.own[node] ^= mask
            if not self.own[node]:
                self.owner[node] = _UNBOUND
                self.unbound[pool] += 1
                self.bound[pool].remove(node)


class _Chain:
    """One replay of the pools whose nodes have one size."""

    def __init__(
        self,
        trace: Trace,
        pools: list[int],
        preempts: bool,
        stays: list[list[tuple[float, float]]],
        options: ReplayOptions,
    ) -> None:
        self.trace, self.stays, self.options = trace, stays, options
        self.preempts = preempts
        self.index = {pool: k for k, pool in enumerate(pools)}
        self.rows = [row for row in trace.in_order() if trace.pool[row] in self.index]
        self.pool = [self.index[trace.pool[row]] for row in self.rows]
        self.gpus = [trace.gpus[row] for row in self.rows]
        self.left_s = [trace.duration_s[row] for row in self.rows]
        owned = [trace.pools[pool].nodes for pool in pools]
        self.quota = [trace.pools[pool].gpus for pool in pools]
        self.used = [0] * len(pools)
        self.space = CellSpace(sum(owned), trace.pools[pools[0]].gpus_per_node, owned, preempts)
        self.queue: list[list[int]] = [[] for _ in pools]  # without guarantee, lent or waiting
        self.waiting: list[dict[int, list[int]]] = [{} for _ in pools]  # by GPUs, in order
        self.held: dict[int, tuple[list[Share], int, int]] = {}  # shares, pool or -1, start
        self.ends: list[tuple[int, int, int]] = []  # a heap: end, job, start

    # A job is its position in the order of submission.

    def replay(self) -> None:
        position, count = 0, len(self.rows)
        while position < count or self.held or any(self.queue):
            arrives_s = self.trace.submit_s[self.rows[position]] if position < count else None
            now_s = self._next(arrives_s)
            self._end(now_s)
            while position < count and self.trace.submit_s[self.rows[position]] <= now_s:
                self._enqueue(position)
                self.queue[self.pool[position]].append(position)
                position += 1
                report(position, self.options)
            self._serve(now_s)
            self._lend(now_s)

    def _next(self, arrives_s: int | None) -> int:
        while self.ends and self._stale(self.ends[0]):
            heappop(self.ends)
        times_s = [ends_s for ends_s, _, _ in self.ends[:1]]
        return min(times_s if arrives_s is None else [*times_s, arrives_s])

    def _stale(self, end: tuple[int, int, int]) -> bool:
        _, job, start_s = end
        return job not in self.held or self.held[job][2] != start_s

    def _end(self, now_s: int) -> None:
        while self.ends and self.ends[0][0] <= now_s:
            end = heappop(self.ends)
            if not self._stale(end):
                job = end[1]
                guaranteed = self._release(job, end[0])
                if not guaranteed:
                    self.queue[self.pool[job]].remove(job)

    def _release(self, job: int, now_s: int) -> bool:
        """Free what it holds; says whether it was guaranteed."""
        shares, pool, start_s = self.held.pop(job)
        if now_s > start_s:
            self.stays[self.rows[job]].append((start_s, now_s))
        self.space.give(shares, pool)
        self.used[self.pool[job]] -= self.gpus[job]
        return pool >= 0

    def _enqueue(self, job: int) -> None:
        insort(self.waiting[self.pool[job]].setdefault(self.gpus[job], []), job)

    def _serve(self, now_s: int) -> None:
        """Each pool's jobs in strict order, on its own cells."""
        for pool, queue in enumerate(self.queue):
            started = 0
            for job in queue:
                if not self.preempts and job in self.held:
                    started += 1  # keeps what it was lent until it ends
                    continue
                shares = self.space.guaranteed(pool, self.gpus[job])
                if shares is None:
                    break
                if not self._stays(job, shares, pool):
                    self._start(job, shares, pool, now_s)
                started += 1
            if self.preempts:
                del queue[:started]
            elif started:
                queue[:] = [j for j in queue if j not in self.held or self.held[j][1] < 0]

    def _stays(self, job: int, shares: list[Share], pool: int) -> bool:
        """A lent job becomes guaranteed where it is, unless the other cells bind fewer nodes."""
        if job not in self.held:
            return False
        here, _, start_s = self.held[job]
        if self.space.binds(here, pool) > self.space.binds(shares, pool):
            return False
        self.space.give(here, _UNBOUND)
        self.space.take(here, pool)
        self.held[job] = here, pool, start_s
        return True

    def _start(self, job: int, shares: list[Share], pool: int, now_s: int) -> None:
        """Guaranteed, or lent (-1); whoever is in the way is stopped."""
        if job in self.held:
            self._stop(job, now_s)
        if pool >= 0:
            for other in self._in_the_way(shares):
                self._stop(other, now_s)
        own = self.waiting[self.pool[job]]
        own[self.gpus[job]].remove(job)
        self.space.take(shares, pool)
        self.used[self.pool[job]] += self.gpus[job]
        self.held[job] = shares, pool, now_s
        heappush(self.ends, (now_s + self.left_s[job], job, now_s))

    def _in_the_way(self, shares: list[Share]) -> list[int]:
        wanted = {node: mask & self.space.lent[node] for node, mask in shares}
        if not any(wanted.values()):
            return []
        return [
            job
            for job, (held, pool, _) in self.held.items()
            if pool < 0 and any(mask & wanted.get(node, 0) for node, mask in held)
        ]

    def _stop(self, job: int, now_s: int) -> None:
        _, _, start_s = self.held[job]
        self._release(job, now_s)
        self.left_s[job] -= now_s - start_s
        self._enqueue(job)

    def _lend(self, now_s: int) -> None:
        """Idle cells to the pool that uses least of its own, until none of them fits a job."""
        none_fits = 1 << 62
        while (job := self._neediest(none_fits)) is not None:
            shares = self.space.idle(self.gpus[job])
            if shares is None:
                none_fits = min(none_fits, self.gpus[job])
            else:
                self._start(job, shares, _UNBOUND, now_s)

    def _neediest(self, fewer_than: int) -> int | None:
        """The first job, of so few GPUs, of the pool with the least in use."""
        found: list[tuple[float, int]] = []
        for pool, by_gpus in enumerate(self.waiting):
            first = [jobs[0] for gpus, jobs in by_gpus.items() if jobs and gpus < fewer_than]
            if first:
                found.append((self.used[pool] / self.quota[pool], min(first)))
        return min(found)[1] if found else None
