"""Goes on where hill climbing stops: kicks the placement, repairs it, and keeps what is better.

A kick gathers the tables of a job in some region, exchanges two tables, or sends one back. Where
there are few tables it gathers those of up to three jobs; if that is more than the quota allows,
others are sent back, drawn by lot. Then each table near it looks for its best region, until none
finds a better one. If the whole costs less than before it stays; a little more it may cost by
chance, less and less often; else all of it is undone. The best placement seen is the plan. The
quota counts what is elsewhere than at the begin, so a table that goes back costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.random import Generator

from federator.planner.tetris_climb import Climb, ClimbRules, TableMove, climb, make_move
from federator.planner.tetris_cost import HomePlacement
from federator.planner.warehouse import NONE, Index

_NEAR = 24  # tables that look again after a kick
_STEPS = 60  # of a repair
_FEW = 200  # tables: with many more, kicks of several jobs take three times as long, for little
_LEAST_FRAC = 1e-9
_HEAT = 0.05  # of the cost, over the root of the number of tables: a loss that is often taken


class _Search:
    def __init__(self, at: HomePlacement, base: Index, quota_gib: float, rng: Generator) -> None:
        self._at, self._base, self._rng = at, base, rng
        self._few = len(base) <= _FEW
        self._quota_gib = quota_gib * (1 + 1e-12)
        self._cost = at.cost().total
        self._best = self._cost, at.home.copy()
        self._least = _LEAST_FRAC * max(self._cost, 1.0)
        self._journal: list[tuple[int, int]] = []
        self._change = 0.0
        jobs = at.warehouse.jobs
        self._trains = np.flatnonzero(jobs.training)
        self.moved_gib = float(at.gib[at.home != base].sum())

    def _tables_of(self, job: int) -> list[int]:
        jobs = self._at.warehouse.jobs
        own: list[int] = jobs.tables[jobs.first[job] : jobs.first[job + 1]].tolist()
        return own

    def _quota_change(self, table: int, to: int) -> float:
        away = float(to != self._base[table]) - float(self._at.home[table] != self._base[table])
        return away * float(self._at.gib[table])

    def _push(self, table: int, to: int) -> None:
        """Move it there, whatever the constraints say now."""
        if to != self._at.home[table]:
            self._go(table, to, float(self._at.changes(table, freely=True)[to]))

    def _go(self, table: int, to: int, change: float) -> None:
        self._journal.append((table, int(self._at.home[table])))
        self.moved_gib += self._quota_change(table, to)
        self._change += change
        self._at.move(table, to)

    def _undo(self) -> None:
        for table, origin in reversed(self._journal):
            self.moved_gib += self._quota_change(table, origin)
            self._at.move(table, origin)

    def kick(self, heat: float) -> None:
        """Try one change; it stays if it is better, or by chance if it is little worse."""
        self._journal, self._change = [], 0.0
        kicked = self._kicked()
        if self._few and self.moved_gib > self._quota_gib:
            self._send_back(set(kicked))
        self._repair(self._near(kicked), set(kicked))
        self._repair(kicked, set())
        gain = -self._change
        taken = gain > self._least or (
            heat > 0 and self._journal and self._rng.random() < np.exp(gain / heat)
        )
        if not taken or self.moved_gib > self._quota_gib or not self._at.holds():
            self._undo()
            return
        self._cost += self._change
        if self._cost < self._best[0] - self._least:
            self._best = self._cost, self._at.home.copy()

    def _kicked(self) -> list[int]:
        """The tables of the kick."""
        kind = self._rng.random()
        if kind < 0.7 and len(self._trains):
            job = int(self._rng.choice(self._trains))
            to = self._region_for(job)
            more = int(self._rng.integers(0, 3)) if self._few else 0
            jobs = [job, *(self._rng.choice(self._trains, more).tolist() if more else ())]
            read = dict.fromkeys(t for each in jobs for t in self._tables_of(each))
            tables = [t for t in read if self._at.home[t] != to]
            for table in tables:
                self._push(table, to)
            return tables
        one, other = self._rng.integers(0, len(self._base), 2).tolist()
        if kind < 0.85:
            self._push(one, int(self._base[one]))
            return [one]
        here, there = int(self._at.home[one]), int(self._at.home[other])
        self._push(one, there)
        self._push(other, here)
        return [one, other]

    def _send_back(self, kept: set[int]) -> None:
        """Send others back, drawn by lot, until the quota holds again."""
        away = np.flatnonzero(self._at.home != self._base)
        for table in self._rng.permutation(away).tolist():
            if self.moved_gib <= self._quota_gib:
                return
            if table not in kept:
                self._push(table, int(self._base[table]))

    def settle(self) -> None:
        """Go to the best placement that was seen."""
        self._at.home = self._best[1].copy()
        self._at.refresh()
        self.moved_gib = float(self._at.gib[self._at.home != self._base].sum())

    def _region_for(self, job: int) -> int:
        kind = int(self._at.warehouse.jobs.gpu_type[job])
        supply = self._at.warehouse.regions.gpu_h
        fit = np.arange(len(supply)) if kind == NONE else np.flatnonzero(supply[:, kind] > 0)
        return int(self._rng.choice(fit)) if len(fit) else 0

    def _near(self, tables: Iterable[int]) -> list[int]:
        found: set[int] = set()
        for table in tables:
            for job in self._at.readers(table).tolist():
                found.update(self._tables_of(job))
        near = sorted(found.difference(tables))
        if len(near) > _NEAR:
            return [int(t) for t in self._rng.choice(near, _NEAR, replace=False)]
        return near

    def _repair(self, tables: list[int], fixed: set[int]) -> None:
        queue, steps = list(tables), 0
        while queue and steps < _STEPS:
            table = queue.pop()
            steps += 1
            if table in fixed:
                continue
            changes = self._at.changes(table)
            gib = float(self._at.gib[table])
            away = np.arange(len(changes)) != self._base[table]
            left = self._quota_gib - self.moved_gib
            left += gib * float(self._at.home[table] != self._base[table])
            changes[away & (gib > left)] = np.inf
            changes[self._at.home[table]] = min(0.0, changes[self._at.home[table]])
            to = int(changes.argmin())
            if changes[to] < -self._least:
                self._go(table, to, float(changes[to]))
                queue.extend(t for t in self._near([table])[:6] if t not in queue)


def plan_homes(placement: HomePlacement, quota_gib: float, kicks: int, seed: int) -> Climb:
    """Climb by our rules, then kick; the moves from the homes before to those found.

    The placement ends at the homes found. The same arguments give the same plan.
    """
    base = placement.home.copy()
    first = climb(placement, ClimbRules.ours(quota_gib))
    search = _Search(placement, base, quota_gib, np.random.default_rng(seed))
    heat = _HEAT * first.after.total / np.sqrt(len(base))
    for number in range(kicks):
        search.kick(heat * (1 - number / kicks))
        if number % 1000 == 999:
            placement.refresh()
    search.settle()
    found = explained(placement, base)
    found.waiting = first.waiting
    found.left_gib = quota_gib - search.moved_gib
    return found


def explained(placement: HomePlacement, base: Index) -> Climb:
    """The moves that lead from ``base`` to this placement, in the order of their gain per GiB.

    Tables that the same training job reads, and that go to the same region, are one move.
    """
    target = placement.home.copy()
    placement.home = base.copy()
    placement.refresh()
    cost = placement.cost()
    found = Climb(before=cost, after=cost)
    moves = [
        make_move(placement, tuple(group), int(target[group[0]]))
        for group in _groups(placement, base, target)
    ]
    placement.refresh()
    found.moves = sorted(moves, key=_worth)
    found.after = placement.cost()
    return found


def _worth(move: TableMove) -> tuple[float, tuple[int, ...]]:
    return -move.gain.total / max(move.gib, 1e-6), move.tables


def _groups(placement: HomePlacement, base: Index, target: Index) -> list[list[int]]:
    """Tables that move, joined by the training jobs that need them in one region."""
    jobs = placement.warehouse.jobs
    leader = {int(t): int(t) for t in np.flatnonzero(base != target)}

    def root(table: int) -> int:
        while leader[table] != table:
            table = leader[table]
        return table

    for job in np.flatnonzero(jobs.training).tolist():
        own = jobs.tables[jobs.first[job] : jobs.first[job + 1]].tolist()
        first: dict[int, int] = {}
        for table in (t for t in own if t in leader):
            to = int(target[table])
            if to in first:
                one, other = sorted((root(first[to]), root(table)))
                leader[other] = one
            first[to] = table
    groups: dict[int, list[int]] = {}
    for table in leader:
        groups.setdefault(root(table), []).append(table)
    return list(groups.values())
