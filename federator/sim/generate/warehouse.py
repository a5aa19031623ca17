"""Generates a warehouse of tables and the jobs that read them, placed by hand in regions.

Tables and jobs belong to departments. A department's tables are in one region, chosen among those
that have its main type of GPU by their popularity, whatever their supply; a few tables were put
elsewhere. The same seed gives the same warehouse.

Source:
    MAST sec. 3 and 5: workloads that share a table, sizes of what is copied, shares of priority
    levels. What the paper does not say, and what is done here:

    - Between the percentiles counts and sizes are log-uniform; ``SHARED_BY`` and ``SIZES_GIB`` end
      as they say. The paper's sizes are of copies; here they are of tables.
    - Half of the jobs are training jobs, which read fewer tables than analytics jobs do. A table's
      readers are of its department, but for ``foreign_frac`` of them.
    - GPU hours of jobs are log-normal, and scaled so that high-priority demand (levels 1 and 2) is
      ``high_load`` of the supply of each type, and that of the others ``low_load``.
    - Supply, storage and popularity of regions are drawn; a region lacks some types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from federator.planner.warehouse import (
    F64,
    NONE,
    Bools,
    Index,
    PlannedJobs,
    Regions,
    Tables,
    Warehouse,
)
from federator.sim.generate.mast_like import LEVEL_SHARES

SHARED_BY: Final = ((0.0, 1.0), (0.5, 3.0), (0.9, 17.0), (0.99, 45.0), (1.0, 120.0))
SIZES_GIB: Final = ((0.0, 0.01), (0.5, 0.526), (0.9, 95.9), (0.99, 6985.0), (1.0, 30_000.0))
_HIGH: Final = 2  # levels 1 and 2
_APPS: Final = 4
_PARTITIONS: Final = (7, 30, 90, 365)
_RUNS: Final = ((0.5, 1.0), (0.3, 4.0), (0.2, 0.25))  # share of the jobs, runs a day


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseModel:
    """How large, and how badly placed.

    Attributes:
        skew: of the popularity of regions; 0: each is as likely.
        misplaced_frac: of tables that are not where their department's are.
        other_type_frac: of training jobs that use another type than their department's main one.
        foreign_frac: of readers that are of another department.
        storage_frac: of all storage that the tables take.
    """

    tables: int = 10_000
    regions: int = 20
    jobs: int = 5_000
    gpu_types: int = 4
    departments: int = 300
    skew: float = 0.7
    misplaced_frac: float = 0.005
    other_type_frac: float = 0.08
    foreign_frac: float = 0.003
    storage_frac: float = 0.7
    high_load: float = 0.6
    low_load: float = 0.6


def percentiles(rng: Generator, points: tuple[tuple[float, float], ...], count: int) -> F64:
    """Draws with these percentiles, one from each of as many equal slices, shuffled."""
    at = (np.arange(count) + rng.random(count)) / count
    logs = np.interp(at, [p for p, _ in points], np.log([x for _, x in points]))
    return rng.permutation(np.exp(logs))


def warehouse_like_mast(model: WarehouseModel, seed: int) -> Warehouse:
    """A warehouse, placed by hand."""
    rng = np.random.default_rng(seed)
    shares = rng.permutation(1.0 / np.arange(1, model.departments + 1) ** 0.7)
    shares /= shares.sum()
    job_of = _dealt(rng, shares, model.jobs)
    table_of = _dealt(rng, shares, model.tables)
    training = rng.random(model.jobs) < 0.5
    gib = percentiles(rng, SIZES_GIB, model.tables)
    first, tables = _edges(rng, model, job_of, table_of, training)
    supply = _supply(rng, model)
    main = rng.integers(0, model.gpu_types, model.departments)
    kind = np.where(training, main[job_of], NONE)
    other = training & (rng.random(model.jobs) < model.other_type_frac)
    kind[other] = rng.integers(0, model.gpu_types, int(other.sum()))
    priority = 1 + rng.choice(7, size=model.jobs, p=np.array(LEVEL_SHARES) / sum(LEVEL_SHARES))
    gpu_h = np.where(training, rng.lognormal(4.0, 1.2, model.jobs), 0.0)
    gpu_h = _scaled(gpu_h, kind, priority, supply, model)
    home = _homes(rng, model, main, supply)[table_of]
    misplaced = rng.random(model.tables) < model.misplaced_frac
    home[misplaced] = rng.integers(0, model.regions, int(misplaced.sum()))
    partitions = rng.choice(_PARTITIONS, model.tables)
    reads = np.where(rng.random(len(tables)) < 0.5, 0, rng.integers(1, 8, len(tables)))
    jobs = PlannedJobs(
        names=tuple(f"job{n}" for n in range(model.jobs)),
        tenants=tuple(f"dept{d}" for d in job_of.tolist()),
        training=training,
        priority=priority.astype(np.intp),
        gpu_type=kind.astype(np.intp),
        gpu_h=gpu_h,
        app=np.where(training, NONE, job_of % _APPS).astype(np.intp),
        cpu_h=np.where(training, 0.0, rng.lognormal(3.0, 1.0, model.jobs)),
        runs=rng.choice([n for _, n in _RUNS], model.jobs, p=[p for p, _ in _RUNS]),
        weight=np.ones(model.jobs),
        first=first,
        tables=tables,
        reads=reads.astype(np.intp),
    )
    regions = _regions(rng, model, supply, gib, jobs)
    placed = _tables(gib, partitions.astype(np.intp), home.astype(np.intp))
    return Warehouse(regions=regions, tables=placed, jobs=jobs).checked()


def _tables(gib: F64, partitions: Index, home: Index) -> Tables:
    names = tuple(f"table{n}" for n in range(len(gib)))
    return Tables(names=names, gib=gib, partitions=partitions, home=home)


def _dealt(rng: Generator, shares: F64, count: int) -> Index:
    """Departments of so many things; each department has at least one if there are enough."""
    rest = max(count - len(shares), 0)
    drawn = rng.choice(len(shares), size=rest, p=shares)
    return np.concatenate([np.arange(len(shares))[: count - rest], drawn]).astype(np.intp)


def _edges(
    rng: Generator, model: WarehouseModel, job_of: Index, table_of: Index, training: Bools
) -> tuple[Index, Index]:
    """Who reads what: ``first`` and ``tables`` of the jobs."""
    readers = np.rint(percentiles(rng, SHARED_BY, model.tables)).astype(int)
    appetite = np.where(training, 1.0, 12.0) * rng.lognormal(0.0, 0.8, model.jobs)
    of_department = [np.flatnonzero(job_of == d) for d in range(model.departments)]
    sets: list[set[int]] = [set() for _ in range(model.jobs)]
    for table, count in enumerate(readers.tolist()):
        own = of_department[table_of[table]]
        foreign = rng.binomial(count, model.foreign_frac)
        near = min(count - foreign, len(own))
        chances = appetite[own] / appetite[own].sum()
        picked = rng.choice(own, size=near, replace=False, p=chances) if near else own[:0]
        for job in (*picked.tolist(), *rng.integers(0, model.jobs, foreign).tolist()):
            sets[job].add(table)
    for job, found in enumerate(sets):
        if not found:
            own_tables = np.flatnonzero(table_of == job_of[job])
            found.add(int(rng.choice(own_tables)) if len(own_tables) else 0)
    first = np.cumsum([0, *map(len, sets)])
    return first.astype(np.intp), np.array([t for s in sets for t in sorted(s)], dtype=np.intp)


def _supply(rng: Generator, model: WarehouseModel) -> F64:
    """(R, G) GPU hours a day; each region has a type, and each type a region."""
    has = rng.random((model.regions, model.gpu_types)) < 0.6
    has[np.arange(model.regions), rng.integers(0, model.gpu_types, model.regions)] = True
    has[rng.integers(0, model.regions, model.gpu_types), np.arange(model.gpu_types)] = True
    return np.round(24.0 * has * rng.lognormal(6.5, 0.6, has.shape))


def _scaled(gpu_h: F64, kind: Index, priority: Index, supply: F64, model: WarehouseModel) -> F64:
    scaled = gpu_h.copy()
    for gpu_type in range(model.gpu_types):
        for high, load in ((True, model.high_load), (False, model.low_load)):
            rows = (kind == gpu_type) & ((priority <= _HIGH) == high)
            if (total := gpu_h[rows].sum()) > 0:
                scaled[rows] *= load * supply[:, gpu_type].sum() / total
    return scaled


def _homes(rng: Generator, model: WarehouseModel, main: Index, supply: F64) -> Index:
    """(departments,) the region that its people chose."""
    popular = rng.permutation(1.0 / np.arange(1, model.regions + 1) ** model.skew)
    homes = []
    for kind in main.tolist():
        chances = popular * (supply[:, kind] > 0)
        homes.append(rng.choice(model.regions, p=chances / chances.sum()))
    return np.array(homes, dtype=np.intp)


def _regions(
    rng: Generator, model: WarehouseModel, supply: F64, gib: F64, jobs: PlannedJobs
) -> Regions:
    parts = rng.lognormal(0.0, 0.25, model.regions)
    storage = gib.sum() / model.storage_frac * parts / parts.sum()
    with_app = jobs.app != NONE
    hours = np.bincount(jobs.app[with_app], jobs.cpu_h[with_app], minlength=_APPS)
    return Regions(
        names=tuple(f"region{n}" for n in range(model.regions)),
        gpu_types=tuple(f"gpu{n}" for n in range(model.gpu_types)),
        gpu_h=supply,
        storage_gib=storage,
        replica_gib=1.25 * storage,
        apps=tuple(f"app{n}" for n in range(_APPS)),
        cpu_h=np.repeat(2.0 * hours[:, None] / model.regions, model.regions, axis=1),
    )
