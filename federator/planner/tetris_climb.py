"""Finds better homes for tables: the paper's hill climbing, and moves of several tables together.

Pass A looks for the best region of each table. Pass B takes the moves in the order of their gain,
looks again, and moves while it is a gain and the day's quota lasts.

Source:
    MAST (OSDI'24) sec. 3.4. A move that is larger than what is left of the quota waits for another
    day, and smaller ones behind it are still tried. Beyond the paper (``ClimbRules.ours``): moves
    are ordered by gain per GiB, since the quota counts bytes; one whose gain has shrunk goes back
    into the queue; and since a training job gains nothing before *all* its tables are in one
    region, the tables it lacks there are tried as one move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf

import numpy as np

from federator.planner.tetris_cost import CostTerms, HomePlacement
from federator.planner.warehouse import F64, LEVELS, NONE, Index

_LEAST_FRAC = 1e-9  # of the cost; a smaller gain is rounding
_TARGETS = 2  # regions in which the tables of a job are gathered, on trial


@dataclass(frozen=True, slots=True, kw_only=True)
class ClimbRules:
    """How moves are found and ordered.

    Attributes:
        quota_gib: to move in a day.
        per_gib: order by gain per GiB; else by gain.
        lazily: a move whose gain has shrunk waits for its turn again.
        together: also move all tables that a job lacks in a region.
        rounds: of passes A and B; more are made while moves are found and quota is left.
    """

    quota_gib: float = inf
    per_gib: bool = False
    lazily: bool = False
    together: bool = False
    rounds: int = 1

    @classmethod
    def ours(cls, quota_gib: float) -> ClimbRules:
        return cls(quota_gib=quota_gib, per_gib=True, lazily=True, together=True, rounds=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChange:
    """Demand of all levels over supply, of a GPU type in a region; ``inf``: none is there."""

    region: int
    gpu_type: int
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMove:
    """Tables that get another home, and why.

    Attributes:
        tables: numbers; several where only all of them together gain.
        origins: their homes before.
        to: their home then.
        gib: to copy.
        gain: cost before less cost after.
        saved: tenants with the GiB a day that they no longer read from another region; negative
            where they read more. The largest first.
        loads: what changes of the load of GPUs, the largest change first.
    """

    tables: tuple[int, ...]
    origins: tuple[int, ...]
    to: int
    gib: float
    gain: CostTerms
    saved: tuple[tuple[str, float], ...]
    loads: tuple[LoadChange, ...]


@dataclass(slots=True, kw_only=True)
class Climb:
    """What a day's climbing came to.

    Attributes:
        before: the cost at its begin.
        after: at its end.
        moves: in their order.
        left_gib: of the quota.
        waiting: moves that would gain, and were larger than what was left of the quota.
    """

    before: CostTerms
    after: CostTerms
    moves: list[TableMove] = field(default_factory=list)
    left_gib: float = inf
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class _Trial:
    """What pass B tries: a table, or a job whose tables are gathered in a region."""

    table: int
    job: int = NONE
    to: int = NONE


def climb(placement: HomePlacement, rules: ClimbRules) -> Climb:
    """Move tables of this placement to better homes.

    The same placement and rules give the same moves: ties go to the smaller number.
    """
    placement.refresh()
    cost = placement.cost()
    found = Climb(before=cost, after=cost, left_gib=rules.quota_gib)
    climber = _Climber(placement, rules, found)
    for _ in range(rules.rounds):
        moves = len(found.moves)
        climber.round()
        placement.refresh()
        if len(found.moves) == moves or found.left_gib <= 0:
            break
    found.after = placement.cost()
    return found


class _Climber:
    def __init__(self, placement: HomePlacement, rules: ClimbRules, found: Climb) -> None:
        self._at, self._rules, self._found = placement, rules, found
        self._least = _LEAST_FRAC * max(found.before.total, 1.0)

    def round(self) -> None:
        """Passes A and B."""
        queue = self._pass_a()
        if self._rules.together:
            queue += self._gatherings(len(queue))
        heapify(queue)
        self._pass_b(queue)

    def _pass_a(self) -> list[tuple[float, int, _Trial]]:
        queue: list[tuple[float, int, _Trial]] = []
        for table in range(len(self._at.home)):
            gain, to = self._best(table)
            if to != self._at.home[table] and gain > self._least:
                queue.append((-self._key(gain, self._at.gib[table]), len(queue), _Trial(table)))
        return queue

    def _best(self, table: int) -> tuple[float, int]:
        changes = self._at.changes(table)
        to = int(changes.argmin())
        return -float(changes[to]), to

    def _key(self, gain: float, gib: float) -> float:
        return gain / max(gib, 1e-6) if self._rules.per_gib else gain

    def _gatherings(self, number: int) -> list[tuple[float, int, _Trial]]:
        """Jobs without a region, by what they alone would gain: the most promising ones first."""
        at, jobs = self._at, self._at.warehouse.jobs
        queue: list[tuple[float, int, _Trial]] = []
        rows = np.flatnonzero(jobs.training & (at.region == NONE))
        for job in rows.tolist():
            for to in self._targets(job):
                lacks = at.job_gib[job] - at.held_gib[job, to]
                gain = at.read_cost[job] * at.job_gib[job]
                if lacks <= self._found.left_gib and gain > self._least:
                    key = self._key(float(gain), float(lacks))
                    queue.append((-key, number + len(queue), _Trial(NONE, job, to)))
        return queue

    def _targets(self, job: int) -> list[int]:
        """The regions that hold most of a job's tables and have its type of GPU."""
        at = self._at
        order = np.argsort(-at.held_gib[job], kind="stable")
        kind = at.warehouse.jobs.gpu_type[job]
        if kind != NONE:
            order = order[at.warehouse.regions.gpu_h[order, kind] > 0]
        return [int(region) for region in order[:_TARGETS]]

    def _pass_b(self, queue: list[tuple[float, int, _Trial]]) -> None:
        while queue and self._found.left_gib > 0:
            key, number, trial = heappop(queue)
            tables, to, gain = self._looked_at(trial)
            if not tables or gain <= self._least:
                continue
            gib = float(self._at.gib[list(tables)].sum())
            now = -self._key(gain, gib)
            if self._rules.lazily and now > key and queue and now > queue[0][0]:
                heappush(queue, (now, number, trial))
            elif gib > self._found.left_gib:
                self._found.waiting += 1
            else:
                self._move(tables, to, gib)

    def _looked_at(self, trial: _Trial) -> tuple[tuple[int, ...], int, float]:
        """The tables to move, where to, and the gain, as it is now."""
        if trial.job == NONE:
            gain, to = self._best(trial.table)
            tables = () if to == self._at.home[trial.table] else (trial.table,)
            return tables, to, gain
        jobs = self._at.warehouse.jobs
        own = jobs.tables[jobs.first[trial.job] : jobs.first[trial.job + 1]]
        lacking = tuple(own[self._at.home[own] != trial.to].tolist())
        return lacking, trial.to, self._together(lacking, trial.to)

    def _together(self, tables: Sequence[int], to: int) -> float:
        """The gain of moving all of them; minus infinity if a constraint forbids it."""
        at, gain = self._at, 0.0
        origins = at.home[list(tables)].tolist()
        moved = 0
        for table in tables:
            change = float(at.changes(table)[to])
            gain -= change
            if change == inf:
                break
            at.move(table, to)
            moved += 1
        for table, origin in zip(tables[:moved], origins, strict=False):
            at.move(table, origin)
        return gain

    def _move(self, tables: tuple[int, ...], to: int, gib: float) -> None:
        self._found.moves.append(make_move(self._at, tables, to))
        self._found.left_gib -= gib


def make_move(at: HomePlacement, tables: tuple[int, ...], to: int) -> TableMove:
    """Move these tables there, and say what it changes."""
    rows = np.unique(np.concatenate([at.readers(table) for table in tables]))
    cost, remote, demand = at.cost(), remote_gib(at, rows), at.demand.copy()
    origins = tuple(at.home[list(tables)].tolist())
    for table in tables:
        at.move(table, to)
    return TableMove(
        tables=tables,
        origins=origins,
        to=to,
        gib=float(at.gib[list(tables)].sum()),
        gain=cost.less(at.cost()),
        saved=by_tenant(at.warehouse.jobs.tenants, rows, remote - remote_gib(at, rows)),
        loads=_loads(at, demand),
    )


def remote_gib(at: HomePlacement, rows: Index) -> F64:
    """GiB a day that these jobs read from other regions than their own."""
    region = at.region[rows]
    local = np.where(region == NONE, 0.0, at.held_gib[rows, np.maximum(region, 0)])
    found: F64 = at.warehouse.jobs.runs[rows] * (at.job_gib[rows] - local)
    return found


def by_tenant(
    tenants: Sequence[str], rows: Iterable[int], amounts: F64
) -> tuple[tuple[str, float], ...]:
    """Sums of each tenant that are not nothing, the largest first; ties by name."""
    sums: dict[str, float] = {}
    for row, amount in zip(rows, amounts.tolist(), strict=True):
        sums[tenants[row]] = sums.get(tenants[row], 0.0) + amount
    kept = [(name, gib) for name, gib in sums.items() if abs(gib) > 1e-6]
    return tuple(sorted(kept, key=lambda one: (-one[1], one[0])))


def _loads(at: HomePlacement, before: F64) -> tuple[LoadChange, ...]:
    """Changes of load, by the demand of all levels."""
    lowest = slice(LEVELS - 1, None, LEVELS)
    was, now, supply = before[:, lowest], at.demand[:, lowest], at.warehouse.regions.gpu_h
    found = []
    for region, kind in zip(*np.nonzero(np.abs(now - was) > 1e-6), strict=True):
        hours = float(supply[region, kind]) or 1e-300
        pair = (float(was[region, kind]) / hours, float(now[region, kind]) / hours)
        low, high = (inf if ratio > 1e12 else max(ratio, 0.0) for ratio in pair)
        found.append(LoadChange(region=int(region), gpu_type=int(kind), before=low, after=high))
    return tuple(sorted(found, key=lambda load: (-_size(load), load.region, load.gpu_type)))


def _size(load: LoadChange) -> float:
    finite = load.before < inf and load.after < inf
    return abs(load.before - load.after) if finite else inf
