"""The whole problem as a mixed-integer program, for HiGHS: small warehouses only.

It judges the hill climbing and the bound; it plans nothing itself. Squares are approached from
below by tangents, added at each solution until nothing is left of them. Overload (8) is a step with
a yes-or-no variable, and above it the line below the sigmoid: so an optimum found is never above
the true one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from federator.planner.highs import new_highs, whole
from federator.planner.tetris_cost import HomePlacement, sigmoid
from federator.planner.warehouse import F64, Index

_CLOSE = 1e-4
_ROUNDS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPlan:
    """Attributes: homes of the best placement found, its cost, and a bound of every cost."""

    home: tuple[int, ...]
    cost: float
    bound: float


class _Program:
    """Rows and columns, collected; numbers of columns are what is handed out."""

    def __init__(self, *, whole_homes: bool) -> None:
        self.model = new_highs()
        self.whole = whole_homes
        self.columns = 0

    def column(self, cost: float, upper: float, *, is_whole: bool = False) -> int:
        self.model.addCol(cost, 0.0, upper, 0, [], [])
        if is_whole and self.whole:
            self.model.changeColIntegrality(self.columns, whole())
        self.columns += 1
        return self.columns - 1

    def row(self, low: float, high: float, terms: dict[int, float]) -> None:
        index = np.fromiter(terms, dtype=np.int32, count=len(terms))
        value = np.fromiter(terms.values(), dtype=np.float64, count=len(terms))
        self.model.addRow(low, high, len(terms), index, value)


class ExactProblem:
    """Builds and solves the program of a placement and a quota.

    Args:
        base: where the quota counts from.
        quota_gib: to move.
        whole_homes: else homes may be fractions, which gives the relaxation's bound.

    Attributes:
        judged_by_homes: the cost of a solution is that of its homes; near the bound, it is the end.
    """

    judged_by_homes = True

    def __init__(self, base: HomePlacement, quota_gib: float, *, whole_homes: bool = True) -> None:
        self._at, self._info = base, base.warehouse.jobs
        self._program = _Program(whole_homes=whole_homes)
        n_tables, self._n_regions, self._n_jobs = base.warehouse.shape
        self._home = np.array(
            [
                [self._program.column(0.0, 1.0, is_whole=True) for _ in range(self._n_regions)]
                for _ in range(n_tables)
            ]
        )
        self._place = np.array(
            [
                [self._program.column(0.0, 1.0, is_whole=True) for _ in range(self._n_regions)]
                for _ in range(self._n_jobs)
            ]
        )
        self._constant = 0.0
        self._tables(quota_gib)
        for job in range(self._n_jobs):
            self._job(job)
        self._quotas()
        self._squares: list[tuple[int, dict[int, float], float, float]] = []
        self._storage()
        self._gpus()

    def _tables(self, quota_gib: float) -> None:
        at = self._at
        moved: dict[int, float] = {}
        for table, columns in enumerate(self._home.tolist()):
            self._program.row(1.0, 1.0, dict.fromkeys(columns, 1.0))
            moved[columns[at.home[table]]] = -float(at.gib[table])
        total = float(at.gib.sum())
        self._program.row(-total, min(quota_gib, total) - total, moved)

    def _job(self, job: int) -> None:
        own = self._info.tables[self._info.first[job] : self._info.first[job + 1]].tolist()
        places = self._place[job].tolist()
        cost = float(self._at.read_cost[job])
        if self._info.training[job]:
            self._program.row(0.0, 1.0, dict.fromkeys(places, 1.0))
            self._constant += cost * float(self._at.job_gib[job])
            for region, place in enumerate(places):
                if not self._at.can_run[job, region]:
                    self._program.row(0.0, 0.0, {place: 1.0})
                    continue
                self._program.model.changeColCost(place, -cost * float(self._at.job_gib[job]))
                for table in own:
                    self._program.row(-np.inf, 0.0, {place: 1.0, self._of(table, region): -1})
                # A whole job has a region: it may not be without one.
                need = {self._of(table, region): 1.0 for table in own}
                self._program.row(-np.inf, len(own) - 1.0, {**need, place: -1.0})
            return
        self._program.row(1.0, 1.0, dict.fromkeys(places, 1.0))
        self._majority(own, places)
        for table in own:
            for region, place in enumerate(places):
                gib = float(self._at.gib[table])
                local = self._program.column(-cost * gib, 1.0)
                self._program.row(-np.inf, 0.0, {local: 1.0, place: -1.0})
                self._program.row(-np.inf, 0.0, {local: 1.0, self._of(table, region): -1.0})
            self._constant += cost * float(self._at.gib[table])

    def _of(self, table: int, region: int) -> int:
        return int(self._home[table, region])

    def _majority(self, own: list[int], places: list[int]) -> None:
        """Its region has most of its tables; the first one if several have."""
        count = float(len(own))
        for region, place in enumerate(places):
            for other in range(self._n_regions):
                if other == region:
                    continue
                tie = 1.0 if other < region else 0.0
                terms = {place: -(count + tie)}
                for table in own:
                    terms[self._of(table, region)] = 1.0
                    terms[self._of(table, other)] = -1.0
                self._program.row(-count, np.inf, terms)

    def _quotas(self) -> None:
        at, info = self._at, self._info
        for region in range(self._n_regions):
            stored = {int(c): float(g) for c, g in zip(self._home[:, region], at.gib, strict=True)}
            self._program.row(0.0, float(at.storage_cap[region]), stored)
            for app in range(len(at.cpu_cap)):
                rows = np.flatnonzero(info.app == app)
                used = {int(self._place[j, region]): float(info.cpu_h[j]) for j in rows}
                if used and np.isfinite(at.cpu_cap[app, region]):
                    self._program.row(0.0, float(at.cpu_cap[app, region]), used)
        hours = {
            int(self._place[job, region]): float(at.home_rows[job, region])
            for job, region in zip(*np.nonzero(at.home_rows), strict=True)
        }
        if hours:
            self._program.row(float(at.home_least), np.inf, hours)

    def _square(self, weight: float, terms: dict[int, float], constant: float) -> None:
        """Adds ``weight * (terms + constant)**2`` to the cost."""
        if weight > 0:
            column = self._program.column(1.0, np.inf)
            self._squares.append((column, terms, constant, weight))

    def _storage(self) -> None:
        at = self._at
        capacity = at.warehouse.regions.storage_gib
        even = float(at.gib.sum() / capacity.sum())
        for region in range(self._n_regions):
            share = at.gib / capacity[region]
            terms = {int(c): float(x) for c, x in zip(self._home[:, region], share, strict=True)}
            self._square(at.weights.storage, terms, -even)

    def _gpus(self) -> None:
        at, gpus = self._at, self._at.gpus
        for column in range(len(gpus.weights)):
            rows = np.flatnonzero(at.demand_rows[:, column])
            demands = at.demand_rows[rows, column]
            weight = float(gpus.weights[column])
            for region in range(self._n_regions):
                terms: dict[int, float] = {}
                for job, hours in zip(rows, demands, strict=True):
                    own = int(self._place[job, region])
                    terms[own] = terms.get(own, 0.0) + hours / float(gpus.floor[region, column])
                    if gpus.has[region, column]:
                        for other in self._place[job].tolist():
                            share = hours / float(gpus.total[column])
                            terms[other] = terms.get(other, 0.0) - share
                self._square(weight, terms, 0.0)
                self._overload(region, column, rows, demands)

    def _overload(self, region: int, column: int, rows: Index, demands: F64) -> None:
        gpus = self._at.gpus
        weight, supply = float(gpus.weights[column]), float(gpus.supply[region, column])
        if not gpus.counts_overload or weight <= 0:
            return
        self._constant += 0.5 * weight
        room = float(demands.sum()) - supply
        if room <= 1e-9:
            return
        # From 0.5 at no excess the line goes to the sigmoid's end, below it in between.
        steep = float(sigmoid(np.array(room / gpus.unit_gpu_h))) - 0.5
        beyond = self._program.column(weight * steep / room, room)
        terms = {int(self._place[j, region]): float(h) for j, h in zip(rows, demands, strict=True)}
        self._program.row(-np.inf, supply, {**terms, beyond: -1.0})

    def solve(self, limit_s: float = 60.0) -> ExactPlan:
        """The optimum; of fractions, the bound with the homes of the base."""
        model, best = self._program.model, (np.inf, self._at.home)
        bound = -np.inf
        model.setOptionValue("time_limit", limit_s)
        model.setOptionValue("mip_rel_gap", _CLOSE / 2)
        for _ in range(_ROUNDS):
            model.run()
            values = np.array(model.getSolution().col_value)
            if not len(values):
                break
            info = model.getInfo()
            found = info.mip_dual_bound if self._program.whole else info.objective_function_value
            bound = max(bound, float(found) + self._constant)
            if self._program.whole:
                home = values[self._home].argmax(axis=1)
                best = min(best, (self._true_cost(home), home), key=lambda pair: pair[0])
                if self.judged_by_homes and best[0] - bound <= _CLOSE * abs(best[0]):
                    break
            if not self._add_tangents(values):
                break
        return ExactPlan(home=tuple(map(int, best[1])), cost=best[0], bound=bound)

    def _true_cost(self, home: Index) -> float:
        placement = HomePlacement(self._at.warehouse, self._at.weights)
        placement.home = home.astype(np.intp)
        placement.refresh()
        return placement.cost().total

    def _add_tangents(self, values: F64) -> bool:
        added = False
        for column, terms, constant, weight in self._squares:
            at = constant + sum(values[c] * x for c, x in terms.items())
            if weight * at * at - values[column] <= 1e-7 * (1 + weight * at * at):
                continue
            slope = 2 * weight * at
            row = {c: -slope * x for c, x in terms.items() if slope * x}
            row[column] = row.get(column, 0.0) + 1.0
            self._program.row(slope * constant - weight * at * at, np.inf, row)
            added = True
        return added
