"""Certifies a plan: no placement within the day's quota costs less than this.

A lower bound by prices. A job pays each of its tables to be where the job is; a region is paid for
its storage, and a GiB moved for the quota. Under any prices, tables and jobs decide separately, and
the sum of their least costs is a bound (Lagrangian relaxation). Prices are improved step by step;
for the last ones a linear program (HiGHS) solves the tables' side exactly. Its duals are the prices
of storage and of copies that a day's plan knows.

What is relaxed, and makes the bound lower than the best plan: homes may be fractions; squares are
replaced by tangents; overload (8) by its convex hull; expression 5 is left out; an analytics job
may choose its region.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from federator.planner.highs import solve_lp
from federator.planner.tetris_cost import HomePlacement, sigmoid
from federator.planner.warehouse import F64, NONE, Index

_FADE = 0.02  # of the point at which squares are linearised, at each step
_PATIENCE = 25  # steps without a better bound, until steps are halved


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A bound, and the prices that prove it.

    Attributes:
        base: the cost before the plan.
        plan: after it.
        bound: of every placement that the quota and the constraints allow.
        move_price: cost that one more GiB of quota would save.
        storage_price: (R,) cost that one more GiB of storage in a region would save.
        by_lp: the linear program took part; else the prices alone are the proof.
    """

    base: float
    plan: float
    bound: float
    move_price: float
    storage_price: tuple[float, ...]
    by_lp: bool

    @property
    def above_frac(self) -> float:
        """How far the plan is above the bound; 0.03 is 3 %."""
        return (self.plan - self.bound) / self.bound if self.bound > 0 else np.inf

    @property
    def of_best_frac(self) -> float:
        """The gain of the plan, of the most that may be possible; 1 where nothing is to gain."""
        possible = self.base - self.bound
        return 1.0 if possible <= 1e-9 * self.base else (self.base - self.plan) / possible


class _Squares:
    """The balance terms, linearised at a point that may be moved: always from below."""

    def __init__(self, start: HomePlacement) -> None:
        self._gpus, self._storage_weight = start.gpus, start.weights.storage
        self._capacity = start.warehouse.regions.storage_gib
        self._even = start.gib.sum() / self._capacity.sum()
        self._demand_of = start.demand_rows
        self._most = start.demand_rows.sum(axis=0)
        self.demand, self.stored = start.demand.copy(), start.stored_gib.copy()

    def gpu_prices(self) -> tuple[F64, float]:
        """(R, C) the slope at the point, and the constant of the tangent."""
        gpus, demand = self._gpus, self.demand
        total = np.where(gpus.total > 0, gpus.total, np.inf)
        apart = demand / gpus.floor - np.where(gpus.has, demand.sum(axis=0) / total, 0.0)
        slope = 2 * apart / gpus.floor - 2 / total * (apart * gpus.has).sum(axis=0)
        value = float((gpus.weights * apart**2).sum()) - float(
            (gpus.weights * slope * demand).sum()
        )
        if gpus.counts_overload:
            room = np.maximum(self._most - gpus.supply, 1e-9)
            steep = (sigmoid(room / gpus.unit_gpu_h) - 0.5) / room
            steep = np.where((demand > gpus.supply) & (self._most > gpus.supply), steep, 0.0)
            value += float((gpus.weights * (0.5 - steep * gpus.supply)).sum())
            slope = np.add(slope, steep)
        return slope * gpus.weights, value

    def storage_prices(self) -> tuple[F64, float]:
        apart = self.stored / self._capacity - self._even
        slope = self._storage_weight * 2 * apart / self._capacity
        return slope, float(self._storage_weight * (apart**2).sum() - slope @ self.stored)

    def drift(self, demand: F64, stored: F64) -> None:
        self.demand = self.demand + _FADE * (demand - self.demand)
        self.stored = self.stored + _FADE * (stored - self.stored)


class PriceAscent:
    """Improves the prices of a bound.

    Args:
        base: the placement before the plan; the quota counts from it.
        near: a good placement, at which squares are first linearised.
        quota_gib: to move; ``inf`` is as all there is.
    """

    def __init__(self, base: HomePlacement, near: HomePlacement, quota_gib: float) -> None:
        self._at, jobs = base, base.warehouse.jobs
        self.gib, self.home = base.gib, base.home
        self.storage_cap = base.storage_cap
        self.quota_gib = min(quota_gib, float(self.gib.sum()))
        self._edge_job, self._edge_table = base.warehouse.edge_jobs(), jobs.tables
        self._cost_of_edge = base.read_cost[self._edge_job] * self.gib[self._edge_table]
        self._training = jobs.training
        self._trains = jobs.training[self._edge_job]
        self._alone = np.where(jobs.training, base.read_cost * base.job_gib, np.inf)
        self.squares = _Squares(near)
        shape = (len(self._edge_job), len(base.stored_gib))
        self.edge = self._first_prices(shape)  # (E, R)
        self.storage = np.zeros(shape[1])
        self.move = self._first_move_price()
        self.homes = 0.0  # price of a GPU hour of expression 6
        self.sums()

    def _first_prices(self, shape: tuple[int, int]) -> F64:
        """A job without a region pays, for each region, the tables that it lacks there."""
        at, (jobs, tables) = self._at, (self._edge_job, self._edge_table)
        lacks = at.job_gib[:, None] - at.held_gib
        away = self.home[tables][:, None] != np.arange(shape[1])
        share = away * self.gib[tables][:, None] / np.maximum(lacks[jobs], 1e-12)
        lone = self._trains & (at.region[jobs] == NONE)
        prices: F64 = share * np.where(lone, self._alone[jobs], 0.0)[:, None]
        return prices

    def _first_move_price(self) -> float:
        """That of the last GiB if what pays best per GiB is moved first."""
        pays = np.zeros((len(self.gib), self.edge.shape[1]))
        np.add.at(pays, self._edge_table, self.edge)
        density = pays.max(axis=1) / np.maximum(self.gib, 1e-12)
        order = np.argsort(-density)
        last = np.searchsorted(np.cumsum(self.gib[order]), self.quota_gib)
        return float(density[order[min(int(last), len(order) - 1)]])

    def sums(self) -> None:
        """What tables are paid and jobs pay, computed anew from the prices of the pairs."""
        n_regions = self.edge.shape[1]
        self.paid = np.zeros((len(self.gib), n_regions))
        np.add.at(self.paid, self._edge_table, self.edge)
        self.pays = np.zeros((len(self._alone), n_regions))
        np.add.at(self.pays, self._edge_job, self._felt(self.edge, slice(None)))

    def _felt(self, prices: F64, edges: slice | Index) -> F64:
        """What a job pays for a pair: an analytics job may read it remotely instead."""
        cap = np.where(self._trains[edges], np.inf, self._cost_of_edge[edges])
        felt: F64 = np.minimum(prices, cap if prices.ndim == 1 else cap[:, None])
        return felt

    def table_costs(self) -> F64:
        """(T, R) without the price of storage and of copies."""
        return -self.paid

    def bound(self) -> tuple[float, Index, Index]:
        """The bound under these prices, with the regions that tables and jobs choose."""
        slope, constant = self.squares.storage_prices()
        costs = self.table_costs() + self.gib[:, None] * (slope + self.storage + self.move)
        rows = np.arange(len(self.gib))
        costs[rows, self.home] -= self.gib * self.move
        tables = costs.argmin(axis=1)
        cap = float(self.storage @ self._at.storage_cap) + self.move * self.quota_gib
        jobs_least, jobs = self._jobs_side()
        return float(costs[rows, tables].sum()) + constant - cap + jobs_least, tables, jobs

    def _jobs_side(self) -> tuple[float, Index]:
        slope, constant = self.squares.gpu_prices()
        costs = self.pays + self._at.demand_rows @ slope.T - self.homes * self._at.home_rows
        costs = np.where(self._at.can_run, costs, np.inf)
        jobs = costs.argmin(axis=1)
        least = costs[np.arange(len(jobs)), jobs]
        jobs[least > self._alone] = NONE
        fixed = constant + self.homes * self._at.home_least
        return float(np.minimum(least, self._alone).sum()) + fixed, jobs

    def jobs_bound(self) -> float:
        """The jobs' part of the bound."""
        return self._jobs_side()[0]

    def step(self, length: float, tables: Index, jobs: Index) -> None:
        """Raise the price of what is wanted and not there, and lower that of the reverse."""
        at, wanted = self._at, jobs[self._edge_job]
        edges = np.flatnonzero(wanted != NONE)
        remote = ~self._trains[edges] & (
            self.edge[edges, wanted[edges]] >= self._cost_of_edge[edges]
        )
        edges = edges[~remote]
        there = tables[self._edge_table]
        edges = edges[wanted[edges] != there[edges]]
        apart = np.flatnonzero(wanted != there)
        stored = np.bincount(tables, self.gib, minlength=len(self.storage)).astype(float)
        over = stored - at.storage_cap
        moved = float(self.gib[tables != self.home].sum()) - self.quota_gib
        placed = np.flatnonzero(jobs != NONE)
        short = at.home_least - float(at.home_rows[placed, jobs[placed]].sum())
        scale = self._scales()
        size = len(edges) + len(apart) + (over**2).sum() * scale[0] + moved**2 * scale[1]
        by = length / max(size + short**2 * scale[2], 1e-12)
        self._change(edges, wanted[edges], by)
        self._change(apart, there[apart], -by)
        self.storage = np.maximum(self.storage + by * scale[0] * over, 0.0)
        self.move = max(self.move + by * scale[1] * moved, 0.0)
        self.homes = max(self.homes + by * scale[2] * short, 0.0)
        demand = np.zeros_like(self.squares.demand)
        np.add.at(demand, jobs[placed], at.demand_rows[placed])
        self.squares.drift(demand, stored)

    def _scales(self) -> tuple[float, float, float]:
        """So that a price per GiB, and one per GPU hour, move as those per pair do."""
        gib = len(self._edge_job) / max(float(self.gib.sum()) ** 2, 1e-12)
        hours = len(self._edge_job) / max(float(self._at.home_rows.max(axis=1).sum()) ** 2, 1e-12)
        return gib, gib, hours

    def _change(self, edges: Index, regions: Index, by: float) -> None:
        old = self.edge[edges, regions]
        new = np.maximum(old + by, 0.0)
        self.edge[edges, regions] = new
        np.add.at(self.paid, (self._edge_table[edges], regions), new - old)
        felt = self._felt(new, edges) - self._felt(old, edges)
        np.add.at(self.pays, (self._edge_job[edges], regions), felt)


def ascend(prices: PriceAscent, target: float, steps: int) -> float:
    """Improve the prices in so many steps towards a cost that is known to be possible."""
    best, eager, since = -np.inf, 1.0, 0
    kept = (prices.edge.copy(), prices.storage, prices.move, prices.homes)
    points = (prices.squares.demand.copy(), prices.squares.stored.copy())
    for number in range(steps):
        if number % 500 == 499:
            prices.sums()
        found, tables, jobs = prices.bound()
        if found > best:
            if found > best + 1e-5 * abs(target):
                since = 0
            best = found
            kept = (prices.edge.copy(), prices.storage, prices.move, prices.homes)
            points = (prices.squares.demand.copy(), prices.squares.stored.copy())
        else:
            since += 1
        if since > _PATIENCE:
            eager, since = eager / 2, 0
            _go_back(prices, kept, points)
            found, tables, jobs = prices.bound()
        if target - best <= 1e-4 * abs(target):
            break
        prices.step(eager * (target - found), tables, jobs)
    _go_back(prices, kept, points)
    return prices.bound()[0]


def _go_back(
    prices: PriceAscent, kept: tuple[F64, F64, float, float], points: tuple[F64, F64]
) -> None:
    """To the best prices that were seen."""
    prices.edge, prices.storage, prices.move, prices.homes = kept[0].copy(), *kept[1:]
    prices.squares.demand, prices.squares.stored = points
    prices.sums()


def certificate(
    base: HomePlacement,
    plan: HomePlacement,
    quota_gib: float,
    *,
    steps: int = 1500,
    lp: bool = True,
) -> Certificate:
    """A bound for the plan, from ``base`` under the quota.

    Args:
        base: the placement before.
        plan: the one after.
        quota_gib: that the plan kept to.
        steps: of the prices.
        lp: solve the tables' side by HiGHS at the end.

    Raises:
        InvalidRequest: ``lp``, and HiGHS is not installed.
    """
    before, after = base.cost().total, plan.cost().total
    prices = PriceAscent(base, plan, quota_gib)
    bound = ascend(prices, after, steps)
    move, storage = prices.move, prices.storage
    bound = max(bound, base.gpus.least)
    if lp:
        solved = _tables_side(prices)
        if solved is not None:
            value, move, storage = solved
            bound = max(bound, value + prices.jobs_bound())
    return Certificate(
        base=before,
        plan=after,
        bound=bound,
        move_price=move,
        storage_price=tuple(storage.tolist()),
        by_lp=lp,
    )


def _tables_side(prices: PriceAscent) -> tuple[float, float, F64] | None:
    """The tables' part of the bound by HiGHS, and its duals: of a GiB moved, and of one stored."""
    n_tables, n_regions = prices.paid.shape
    slope, constant = prices.squares.storage_prices()
    gib, rows = prices.gib, np.arange(n_tables)
    away = np.ones((n_tables, n_regions), dtype=bool)
    away[rows, prices.home] = False
    index = np.empty((n_tables, n_regions, 3), dtype=np.int32)
    index[:, :, 0], index[:, :, 1] = rows[:, None], n_tables + np.arange(n_regions)
    index[:, :, 2] = n_tables + n_regions
    value = np.ones((n_tables, n_regions, 3))
    value[:, :, 1:] = gib[:, None, None]
    kept = np.ones(value.shape, dtype=bool)
    kept[:, :, 2] = away
    starts = np.concatenate([[0], np.cumsum(kept.sum(axis=2).ravel())])
    upper = np.concatenate([np.ones(n_tables), prices.storage_cap, [prices.quota_gib]])
    lower = np.concatenate([np.ones(n_tables), np.full(n_regions + 1, -np.inf)])
    solved = solve_lp(
        (prices.table_costs() + gib[:, None] * slope).ravel(),
        (lower, upper),
        (starts.astype(np.int32), index[kept], value[kept]),
    )
    if solved is None:
        return None
    found, duals = solved
    return found + constant, max(-float(duals[-1]), 0.0), np.maximum(-duals[n_tables:-1], 0.0)
