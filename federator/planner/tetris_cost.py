"""The cost of a placement of tables, and what it would be with one table elsewhere.

Source:
    MAST (OSDI'24) sec. 3.3, expressions 1-9. ``R(table)`` is the only decision; ``R(job)`` follows
    from it. Chosen where the paper is silent:

    - GPU demand counts jobs that have a region; the fleet-wide ratio does, too.
    - A region without a type of GPU has no ratio. Demand there is set against a small supply
      (``SCARCE`` of the mean of the regions that have it), and any of it is a deviation.
    - Overload (8) is counted in units of ``overload_unit_gpu_h``; 1 is the paper's expression.
    - Of an analytics job with equally many tables in two regions the first region counts.
    - A constraint that does not hold today may not get worse; else no move at all were allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from federator.planner.warehouse import F64, LEVELS, NONE, Bools, Index, Warehouse

SCARCE = 0.5
_SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class TetrisWeights:
    """The administrator's weights.

    Attributes:
        remote: ``w1``, of a GiB a day read from another region.
        gpus: ``w2``, of expressions 7 and 8.
        storage: ``w3``, of expression 9.
        levels: ``w_prio`` of each priority level, the highest first. The demand of a level counts
            what is as important or more.
        overload: expression 8 counts; the paper's first version had it not.
        overload_unit_gpu_h: see above.
        needs_gpus: a training job has a region only where its type of GPU is. In the paper's it has
            one wherever all its tables are, and the demand counts there.
        high_priority: jobs of this level or higher count in expression 6.
        home_gpu_h: the threshold of expression 6.
    """

    remote: float = 1.0
    gpus: float = 1.0
    storage: float = 1.0
    levels: tuple[float, ...] = (1.0,) * LEVELS
    overload: bool = True
    overload_unit_gpu_h: float = 1.0
    needs_gpus: bool = False
    high_priority: int = 2
    home_gpu_h: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerms:
    """A cost and its parts, each with its weight."""

    remote: float
    balance: float
    overload: float
    storage: float

    @property
    def total(self) -> float:
        return self.remote + self.balance + self.overload + self.storage

    def less(self, other: CostTerms) -> CostTerms:
        """This cost without the other, part by part."""
        return CostTerms(
            remote=self.remote - other.remote,
            balance=self.balance - other.balance,
            overload=self.overload - other.overload,
            storage=self.storage - other.storage,
        )


def sigmoid(x: F64) -> F64:
    """1 / (1 + exp(-x)) for x >= 0."""
    found: F64 = 1.0 / (1.0 + np.exp(-x))
    return found


class GpuBalance:
    """Expressions 7 and 8 as a function of demand.

    Columns are pairs of a GPU type and a priority level, by type, then level.
    """

    def __init__(self, warehouse: Warehouse, weights: TetrisWeights) -> None:
        supply = np.repeat(warehouse.regions.gpu_h, LEVELS, axis=1)  # (R, G * levels)
        self.supply = supply
        self.has = supply > 0
        self.total = supply.sum(axis=0)
        having = np.maximum(self.has.sum(axis=0), 1)
        scarce = np.where(self.total > 0, SCARCE * self.total / having, 1.0)
        self.floor = np.where(self.has, supply, scarce)
        levels = np.tile(np.asarray(weights.levels), len(warehouse.regions.gpu_types))
        self.weights = weights.gpus * levels
        self.unit_gpu_h = weights.overload_unit_gpu_h
        self.counts_overload = weights.overload

    @property
    def least(self) -> float:
        """What expressions 7 and 8 cost at least: all else in a cost is 0 or more, too."""
        return 0.5 * float(self.weights.sum()) * len(self.supply) * self.counts_overload

    def deviation(self, demand: F64) -> F64:
        """(..., R, C): expression 7 of each region, without its weight."""
        fleet = demand.sum(axis=-2, keepdims=True) / np.where(self.total > 0, self.total, np.inf)
        apart: F64 = (demand / self.floor - np.where(self.has, fleet, 0.0)) ** 2
        return apart

    def overload(self, excess: F64) -> F64:
        """Expression 8 of demand less supply, or 0 if it does not count."""
        if not self.counts_overload:
            return np.zeros_like(excess)
        return sigmoid(np.maximum(excess, 0.0) / self.unit_gpu_h)


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The jobs that read one table, for quick answers."""

    rows: Index
    demand: F64  # (m, C) what each adds to the demand of its region
    home: F64  # (m, R) GPU hours that count for expression 6 if it is in that region
    cpu: Index  # those of them with an application


class HomePlacement:
    """Homes of all tables, and everything that follows from them, kept up to date.

    Args:
        warehouse: the problem; its homes are where this begins.
        weights: of the terms.
    """

    def __init__(self, warehouse: Warehouse, weights: TetrisWeights) -> None:
        self.warehouse, self.weights = warehouse, weights
        jobs = warehouse.jobs
        n_tables, _, n_jobs = warehouse.shape
        self.home = warehouse.tables.home.copy()
        self.gib = warehouse.tables.gib
        self.gpus = GpuBalance(warehouse, weights)
        self._edge_job = warehouse.edge_jobs()
        self.job_gib = np.zeros(n_jobs)
        np.add.at(self.job_gib, self._edge_job, self.gib[jobs.tables])
        self.n_tables = np.diff(jobs.first)
        self.read_cost = weights.remote * warehouse.job_weights()  # of a GiB
        self.demand_rows = _demand_rows(warehouse)
        self.home_rows = _home_rows(warehouse, weights)
        self.can_run = _can_run(warehouse, weights)
        order = np.argsort(jobs.tables, kind="stable")
        first = np.searchsorted(jobs.tables[order], np.arange(n_tables + 1))
        self._readers = [self._edge_job[order[a:b]] for a, b in pairwise(first.tolist())]
        self._known: dict[int, _Jobs] = {}
        self._share = warehouse.regions.storage_gib.sum()
        self.refresh()
        # What does not hold today may stay as it is.
        self.storage_cap = np.maximum(warehouse.regions.storage_gib, self.stored_gib)
        quota = warehouse.regions.cpu_h.reshape(self.cpu_h.shape)
        self.cpu_cap = np.maximum(quota, self.cpu_h)
        self.home_least = min(weights.home_gpu_h, self.home_gpu_h)

    def refresh(self) -> None:
        """Compute everything anew from the homes; this also ends what rounding has added up."""
        warehouse, jobs = self.warehouse, self.warehouse.jobs
        _, n_regions, n_jobs = warehouse.shape
        where = self.home[jobs.tables]
        self.counts = np.zeros((n_jobs, n_regions), dtype=np.intp)
        np.add.at(self.counts, (self._edge_job, where), 1)
        self.held_gib = np.zeros((n_jobs, n_regions))
        np.add.at(self.held_gib, (self._edge_job, where), self.gib[jobs.tables])
        self.stored_gib: F64 = np.bincount(self.home, weights=self.gib, minlength=n_regions).astype(
            float
        )
        self.region = self._regions(np.arange(n_jobs), self.counts)
        placed = self.region != NONE
        rows = np.flatnonzero(placed)
        self.demand = np.zeros((n_regions, self.demand_rows.shape[1]))
        np.add.at(self.demand, self.region[rows], self.demand_rows[rows])
        self.cpu_h = np.zeros((len(warehouse.regions.apps), n_regions))
        with_app = rows[jobs.app[rows] != NONE]
        np.add.at(self.cpu_h, (jobs.app[with_app], self.region[with_app]), jobs.cpu_h[with_app])
        self.home_gpu_h = float(self.home_rows[rows, self.region[rows]].sum())

    def _regions(self, rows: Index, counts: NDArray[np.intp]) -> Index:
        """``R(job)`` of these jobs by how many of their tables are in each region."""
        most = counts.argmax(axis=-1)
        whole = np.take_along_axis(counts, most[..., None], axis=-1)[..., 0]
        apart = self.warehouse.jobs.training[rows] & (whole < self.n_tables[rows])
        found: Index = np.where(apart | ~self.can_run[rows, most], NONE, most)
        return found

    def cost(self) -> CostTerms:
        """Of this placement, computed anew."""
        gib = np.where(
            self.region == NONE,
            self.job_gib,
            self.job_gib - self.held_gib[np.arange(len(self.region)), self.region],
        )
        weights = self.gpus.weights
        return CostTerms(
            remote=float((self.read_cost * gib).sum()),
            balance=float((self.gpus.deviation(self.demand) * weights).sum()),
            overload=float((self.gpus.overload(self.demand - self.gpus.supply) * weights).sum()),
            storage=float(self.weights.storage * self._storage(self.stored_gib).sum()),
        )

    def _storage(self, stored_gib: F64) -> F64:
        capacity = self.warehouse.regions.storage_gib
        apart: F64 = (stored_gib / capacity - self.gib.sum() / self._share) ** 2
        return apart

    def readers(self, table: int) -> Index:
        """The jobs that read a table."""
        return self._readers[table]

    def _jobs_of(self, table: int) -> _Jobs:
        known = self._known.get(table)
        if known is None:
            rows = self._readers[table]
            known = _Jobs(
                rows,
                self.demand_rows[rows],
                self.home_rows[rows],
                np.flatnonzero(self.warehouse.jobs.app[rows] != NONE),
            )
            self._known[table] = known
        return known

    def holds(self) -> bool:
        """Whether expressions 4 to 6 hold, or are as they were at the begin."""
        stored = (self.stored_gib <= self.storage_cap * (1 + _SLACK)).all()
        used = (self.cpu_h <= self.cpu_cap * (1 + _SLACK) + _SLACK).all()
        least = self.home_least - _SLACK * (1 + self.home_least)
        return bool(stored and used) and self.home_gpu_h >= least

    def changes(self, table: int, *, freely: bool = False) -> F64:
        """(R,) how the cost changes with the table's home in each region; ``inf``: not allowed.

        ``freely``: as if there were no constraints.
        """
        jobs, at = self._jobs_of(table), int(self.home[table])
        before = self.region[jobs.rows]
        after = self._after(jobs.rows, at)  # (m, R)
        found = self._remote_change(jobs, table, before, after)
        found += self._storage_change(table, at)
        changed = after != before[:, None]
        if changed.any():
            found += self._gpu_change(jobs, at, before, after)
        if not freely:
            most = self.storage_cap * (1 + _SLACK)
            allowed: Bools = np.less_equal(self.stored_gib + self.gib[table], most)
            if changed.any():
                allowed = allowed & self._home_holds(jobs, before, after)
                if len(jobs.cpu):
                    allowed = allowed & self._cpu_holds(jobs, before, after, changed)
            found[~allowed] = np.inf
        found[at] = 0.0
        return found

    def _after(self, rows: Index, at: int) -> Index:
        """(m, R): regions of the jobs with the table moved from ``at`` to each region."""
        counts = self.counts[rows]
        n_regions = counts.shape[1]
        training = self.warehouse.jobs.training[rows]
        whole = (counts == (self.n_tables[rows] - 1)[:, None]) & self.can_run[rows]
        after: Index = np.where(whole, np.arange(n_regions), NONE)
        after[:, at] = self.region[rows]
        others = np.flatnonzero(~training)
        if len(others):
            moved = np.repeat(counts[others][:, None, :], n_regions, axis=1)
            moved[:, :, at] -= 1
            each = np.arange(n_regions)
            moved[:, each, each] += 1
            after[others] = moved.argmax(axis=2)
        return after

    def _remote_change(self, jobs: _Jobs, table: int, before: Index, after: Index) -> F64:
        rows, at, gib = jobs.rows, int(self.home[table]), self.gib[table]
        held = self.held_gib[rows]
        each = np.arange(held.shape[1])
        local = np.take_along_axis(held, np.maximum(after, 0), axis=1)
        local = local + gib * (after == each) - gib * (after == at)
        local = np.where(after == NONE, 0.0, local)
        now = np.where(before == NONE, 0.0, held[np.arange(len(rows)), np.maximum(before, 0)])
        found: F64 = self.read_cost[rows] @ (now[:, None] - local)
        return found

    def _storage_change(self, table: int, at: int) -> F64:
        gib, now = self.gib[table], self._storage(self.stored_gib)
        less, more = self._storage(self.stored_gib - gib), self._storage(self.stored_gib + gib)
        found: F64 = self.weights.storage * (more - now + less[at] - now[at])
        return found

    def _gpu_change(self, jobs: _Jobs, at: int, before: Index, after: Index) -> F64:
        """(R,) of expressions 7 and 8.

        Only training jobs have GPUs. So two regions change at most: the table's home, which jobs
        leave, and the one that they come to.
        """
        changed = after != before[:, None]
        gpus, demand = self.gpus, self.demand
        left = ((before != NONE)[:, None] & changed).T.astype(float) @ jobs.demand  # (R, C)
        came = ((after != NONE) & changed).T.astype(float) @ jobs.demand
        if not left.any() and not came.any():
            return np.zeros(len(demand))
        columns = np.flatnonzero((left.any(axis=0) | came.any(axis=0)) & (gpus.weights > 0))
        return _two_regions(gpus, demand, columns, at, left, came)

    def _home_holds(self, jobs: _Jobs, before: Index, after: Index) -> Bools:
        hours = jobs.home
        now = np.where(before == NONE, 0.0, hours[np.arange(len(before)), np.maximum(before, 0)])
        then = np.take_along_axis(hours, np.maximum(after, 0), axis=1)
        then = np.where(after == NONE, 0.0, then)
        total = self.home_gpu_h + then.sum(axis=0) - now.sum()
        least = min(self.home_least, self.home_gpu_h)
        found: Bools = total >= least - _SLACK * (1 + least)
        return found

    def _cpu_holds(self, jobs: _Jobs, before: Index, after: Index, changed: Bools) -> Bools:
        """(R,) expression 5 holds with the table there."""
        info = self.warehouse.jobs
        n_regions = after.shape[1]
        more = np.zeros((n_regions, *self.cpu_h.shape))
        for k in jobs.cpu:
            app, hours = info.app[jobs.rows[k]], info.cpu_h[jobs.rows[k]]
            moved = np.flatnonzero(changed[k])
            came = moved[after[k, moved] != NONE]
            more[came, app, after[k, came]] += hours
            if before[k] != NONE:
                more[moved, app, before[k]] -= hours
        worse = (more > 0) & (self.cpu_h + more > self.cpu_cap * (1 + _SLACK))
        found: Bools = np.logical_not(worse.any(axis=(1, 2)))
        return found

    def move(self, table: int, to: int) -> None:
        """Make this region the home of the table."""
        at = int(self.home[table])
        jobs, info = self._jobs_of(table), self.warehouse.jobs
        rows, gib = jobs.rows, self.gib[table]
        before = self.region[rows]
        self.counts[rows, at] -= 1
        self.counts[rows, to] += 1
        self.held_gib[rows, at] -= gib
        self.held_gib[rows, to] += gib
        after = self._regions(rows, self.counts[rows])
        self.region[rows] = after
        self.home[table] = to
        self.stored_gib[at] -= gib
        self.stored_gib[to] += gib
        for k in np.flatnonzero(before != after):
            for region, sign in ((int(before[k]), -1.0), (int(after[k]), 1.0)):
                if region == NONE:
                    continue
                self.demand[region] += sign * jobs.demand[k]
                self.home_gpu_h += sign * float(jobs.home[k, region])
                if info.app[rows[k]] != NONE:
                    self.cpu_h[info.app[rows[k]], region] += sign * info.cpu_h[rows[k]]


def _two_regions(
    gpus: GpuBalance, demand: F64, columns: Index, at: int, left: F64, came: F64
) -> F64:
    """The change of expressions 7 and 8 if demand leaves ``at`` and comes to each region.

    The sum of squares is kept as a polynomial of the fleet-wide ratio, so that only the two
    regions are looked at.
    """
    d, floor = demand[:, columns], gpus.floor[:, columns]
    left, came = left[:, columns], came[:, columns]
    has, total = gpus.has[:, columns], gpus.total[columns]
    fleet_of = np.where(total > 0, total, np.inf)
    u = d / floor
    gone, grown = (d[at] - left) / floor[at], (d + came) / floor
    squares = (u**2).sum(axis=0) + gone**2 - u[at] ** 2 + grown**2 - u**2
    ratios = (u * has).sum(axis=0) + has[at] * (gone - u[at]) + has * (grown - u)
    fleet = (d.sum(axis=0) + came - left) / fleet_of
    now = d.sum(axis=0) / fleet_of
    n_has = has.sum(axis=0)
    before = (u**2).sum(axis=0) - 2 * now * (u * has).sum(axis=0) + n_has * now**2
    change = squares - 2 * fleet * ratios + n_has * fleet**2 - before
    supply = gpus.supply[:, columns]
    change += gpus.overload(d + came - supply) - gpus.overload(d - supply)
    change += gpus.overload(d[at] - left - supply[at]) - gpus.overload(d[at] - supply[at])
    found: F64 = change @ gpus.weights[columns]
    return found


def _demand_rows(warehouse: Warehouse) -> F64:
    """(J, C): GPU hours of a job in the columns of its type and of its level and those below.

    The demand of a level counts what is as important or more.
    """
    jobs, n_types = warehouse.jobs, len(warehouse.regions.gpu_types)
    rows = np.zeros((len(jobs.names), n_types, LEVELS))
    users = np.flatnonzero(jobs.gpu_type != NONE)
    counts = np.arange(1, LEVELS + 1) >= jobs.priority[users][:, None]
    rows[users, jobs.gpu_type[users]] = counts * jobs.gpu_h[users][:, None]
    return rows.reshape(len(jobs.names), n_types * LEVELS)


def _home_rows(warehouse: Warehouse, weights: TetrisWeights) -> F64:
    """(J, R): GPU hours of a high-priority job where its type of GPU is, else 0."""
    jobs, supply = warehouse.jobs, warehouse.regions.gpu_h
    rows = np.zeros((len(jobs.names), len(supply)))
    users = np.flatnonzero((jobs.gpu_type != NONE) & (jobs.priority <= weights.high_priority))
    rows[users] = (supply[:, jobs.gpu_type[users]].T > 0) * jobs.gpu_h[users][:, None]
    return rows


def _can_run(warehouse: Warehouse, weights: TetrisWeights) -> Bools:
    """(J, R): the job may have this region, if its tables are there."""
    jobs, supply = warehouse.jobs, warehouse.regions.gpu_h
    found: Bools = np.ones((len(jobs.names), len(supply)), dtype=np.bool_)
    if weights.needs_gpus:
        users = np.flatnonzero(jobs.gpu_type != NONE)
        found[users] = supply[:, jobs.gpu_type[users]].T > 0
    return found
