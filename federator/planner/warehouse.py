"""Tables, the jobs that read them, and the regions that hold them: what placement is planned from.

Names stand at the edge; inside, tables, jobs, regions, GPU types and applications are numbers.
T = tables, J = jobs, R = regions, G = GPU types, A = applications, E = pairs of a job and a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from federator.errors import InvalidRequest

F64 = NDArray[np.float64]
Index = NDArray[np.intp]
Bools = NDArray[np.bool_]

LEVELS = 7  # of priority; 1 is the highest
NONE = -1  # no region, no GPU type, no application


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """What each region has to offer.

    Attributes:
        names: (R,).
        gpu_types: (G,) names.
        apps: (A,) names.
        gpu_h: (R, G) GPU hours a day.
        storage_gib: (R,) for homes of tables.
        replica_gib: (R,) for further copies.
        cpu_h: (A, R) CPU hours a day of each application; ``inf``: no quota.
    """

    names: tuple[str, ...]
    gpu_types: tuple[str, ...]
    gpu_h: F64
    storage_gib: F64
    replica_gib: F64
    apps: tuple[str, ...] = ()
    cpu_h: F64 = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Attributes: names; (T,) sizes, counts of partitions, and regions of their homes."""

    names: tuple[str, ...]
    gib: F64
    partitions: Index
    home: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJobs:
    """Recurring jobs, as their history tells them.

    Attributes:
        names: (J,).
        tenants: (J,) names.
        training: (J,) it reads all its tables in its own region; others are analytics jobs, whose
            region is the home of most of their tables.
        priority: (J,) 1 is the highest, 7 the lowest.
        gpu_type: (J,) ``NONE`` for none; an analytics job has none.
        gpu_h: (J,) GPU hours a day.
        app: (J,) ``NONE`` for none.
        cpu_h: (J,) CPU hours a day, of its application.
        runs: (J,) a day.
        weight: (J,) importance of its remote reads; 1 counts bytes a day.
        first: (J + 1,) where its tables begin in ``tables``.
        tables: (E,) numbers of tables, each at most once in a job.
        reads: (E,) newest partitions of the table that it reads; 0: all.
    """

    names: tuple[str, ...]
    tenants: tuple[str, ...]
    training: Bools
    priority: Index
    gpu_type: Index
    gpu_h: F64
    app: Index
    cpu_h: F64
    runs: F64
    weight: F64
    first: Index
    tables: Index
    reads: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Warehouse:
    """A whole problem of placement, with the homes of today."""

    regions: Regions
    tables: Tables
    jobs: PlannedJobs

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of tables, regions and jobs."""
        return len(self.tables.names), len(self.regions.names), len(self.jobs.names)

    def edge_jobs(self) -> Index:
        """(E,) the job of each pair."""
        counts = np.diff(self.jobs.first)
        return np.repeat(np.arange(len(self.jobs.names), dtype=np.intp), counts)

    def job_weights(self) -> F64:
        """(J,) ``w_job`` of expression 1: what a GiB read from another region costs."""
        return self.jobs.weight * self.jobs.runs

    def checked(self) -> Warehouse:
        """This warehouse, which makes sense.

        Raises:
            InvalidRequest: it does not.
        """
        _check_numbers(self)
        _check_pairs(self)
        return self


def _check_numbers(warehouse: Warehouse) -> None:
    tables, jobs, regions = warehouse.tables, warehouse.jobs, warehouse.regions
    n_tables, n_regions, n_jobs = warehouse.shape
    if not n_regions or not n_tables or not n_jobs:
        raise InvalidRequest("expected at least one region, one table and one job")
    finite = (tables.gib, jobs.gpu_h, jobs.cpu_h, jobs.runs, jobs.weight, regions.gpu_h)
    amounts = (*finite, regions.storage_gib, regions.replica_gib, regions.cpu_h)
    if not all((amount >= 0).all() for amount in amounts):  # NaN fails too
        raise InvalidRequest("sizes, hours, capacities and weights are numbers from 0")
    if not all(np.isfinite(amount).all() for amount in finite):
        raise InvalidRequest("sizes, hours and weights are finite")
    if not (regions.storage_gib > 0).all() or not np.isfinite(regions.storage_gib).all():
        raise InvalidRequest("each region has some storage, and a finite amount")
    _within(tables.home, 0, n_regions, "home")
    _within(tables.partitions, 1, 2**31, "partitions")
    _within(jobs.priority, 1, LEVELS + 1, "priority")
    _within(jobs.gpu_type, NONE, len(regions.gpu_types), "gpu_type")
    _within(jobs.app, NONE, len(regions.apps), "app")
    if (jobs.gpu_type[~jobs.training] != NONE).any():
        raise InvalidRequest("an analytics job uses no GPUs; expected no gpu_type")
    if (jobs.gpu_h[jobs.gpu_type == NONE] > 0).any():
        raise InvalidRequest("a job with GPU hours has a gpu_type")


def _check_pairs(warehouse: Warehouse) -> None:
    jobs = warehouse.jobs
    counts = np.diff(jobs.first)
    if not (counts > 0).all():
        name = jobs.names[int(np.flatnonzero(counts <= 0)[0])]
        raise InvalidRequest(f"job {name[:64]!r} reads no table")
    _within(jobs.tables, 0, len(warehouse.tables.names), "tables")
    _within(jobs.reads, 0, 2**31, "reads")
    pairs = warehouse.edge_jobs() * len(warehouse.tables.names) + jobs.tables
    if len(np.unique(pairs)) < len(pairs):
        raise InvalidRequest("a job names the same table twice")


def _within(numbers: Index, least: int, beyond: int, what: str) -> None:
    if not ((numbers >= least) & (numbers < beyond)).all():
        raise InvalidRequest(f"{what}: expected numbers from {least} to {beyond - 1}")
