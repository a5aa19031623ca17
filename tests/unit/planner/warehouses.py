"""Small warehouses, drawn or by hand."""

from __future__ import annotations

import numpy as np

from federator.planner.tetris_cost import HomePlacement, TetrisWeights
from federator.planner.warehouse import NONE, PlannedJobs, Regions, Tables, Warehouse


def named(what: str, count: int) -> tuple[str, ...]:
    return tuple(f"{what}{number}" for number in range(count))


def drawn(seed: int, tables: int = 8, regions: int = 3, jobs: int = 10) -> Warehouse:
    """A warehouse with two types of GPU, two applications, and a third of analytics jobs."""
    rng = np.random.default_rng(seed)
    supply = np.round(rng.uniform(0, 60, (regions, 2))) * (rng.random((regions, 2)) < 0.8)
    first, read = [0], []
    for _ in range(jobs):
        count = int(rng.integers(1, min(4, tables) + 1))
        read += rng.choice(tables, count, replace=False).tolist()
        first.append(len(read))
    training = rng.random(jobs) >= 0.3
    kind = np.where(training, rng.integers(-1, 2, jobs), NONE).astype(np.intp)
    gib = rng.lognormal(3, 1, tables)
    return Warehouse(
        regions=Regions(
            names=named("region", regions),
            gpu_types=named("gpu", 2),
            gpu_h=supply,
            storage_gib=np.full(regions, gib.sum() * 0.8),
            replica_gib=np.full(regions, gib.sum()),
            apps=named("app", 2),
            cpu_h=np.full((2, regions), 60.0),
        ),
        tables=Tables(
            names=named("table", tables),
            gib=gib,
            partitions=np.full(tables, 10, dtype=np.intp),
            home=rng.integers(0, regions, tables).astype(np.intp),
        ),
        jobs=PlannedJobs(
            names=named("job", jobs),
            tenants=named("tenant", jobs),
            training=training,
            priority=rng.integers(1, 8, jobs).astype(np.intp),
            gpu_type=kind,
            gpu_h=np.where(kind != NONE, rng.uniform(1, 30, jobs), 0.0),
            app=rng.integers(-1, 2, jobs).astype(np.intp),
            cpu_h=rng.uniform(0, 20, jobs),
            runs=rng.uniform(0.2, 3, jobs),
            weight=np.ones(jobs),
            first=np.array(first, dtype=np.intp),
            tables=np.array(read, dtype=np.intp),
            reads=np.zeros(len(read), dtype=np.intp),
        ),
    ).checked()


def weighed(warehouse: Warehouse) -> TetrisWeights:
    """Weights under which each term counts: 100 if everything were read remotely."""
    reads = float(
        (warehouse.job_weights() * HomePlacement(warehouse, TetrisWeights()).job_gib).sum()
    )
    return TetrisWeights(
        remote=100 / reads,
        gpus=0.5,
        storage=5.0,
        overload_unit_gpu_h=10.0,
        high_priority=3,
        home_gpu_h=20.0,
    )


def two_regions(
    *,
    gib: tuple[float, ...],
    home: tuple[int, ...],
    jobs: tuple[tuple[int, ...], ...],
    gpu_h: tuple[float, ...] = (),
    supply: tuple[float, float] = (100.0, 100.0),
    storage_gib: float = 10_000.0,
    reads: int = 0,
) -> Warehouse:
    """Training jobs of tenant ``vision`` on one type of GPU, in regions west and east."""
    count = len(jobs)
    return Warehouse(
        regions=Regions(
            names=("west", "east"),
            gpu_types=("a100",),
            gpu_h=np.array(supply).reshape(2, 1),
            storage_gib=np.full(2, storage_gib),
            replica_gib=np.full(2, storage_gib),
        ),
        tables=Tables(
            names=named("table", len(gib)),
            gib=np.array(gib),
            partitions=np.full(len(gib), 10, dtype=np.intp),
            home=np.array(home, dtype=np.intp),
        ),
        jobs=PlannedJobs(
            names=named("job", count),
            tenants=("vision",) * count,
            training=np.ones(count, dtype=bool),
            priority=np.ones(count, dtype=np.intp),
            gpu_type=np.zeros(count, dtype=np.intp),
            gpu_h=np.array(gpu_h or (1.0,) * count),
            app=np.full(count, NONE, dtype=np.intp),
            cpu_h=np.zeros(count),
            runs=np.ones(count),
            weight=np.ones(count),
            first=np.cumsum([0, *map(len, jobs)]).astype(np.intp),
            tables=np.array([table for job in jobs for table in job], dtype=np.intp),
            reads=np.full(sum(map(len, jobs)), reads, dtype=np.intp),
        ),
    ).checked()
