"""The generated warehouse has the paper's sharing and sizes, and is the same for the same seed."""

from __future__ import annotations

import numpy as np

from federator.sim.generate.warehouse import WarehouseModel, warehouse_like_mast

MODEL = WarehouseModel(tables=2000, regions=8, jobs=1000, departments=60)


def test_tables_are_shared_by_as_many_jobs_as_the_paper_says() -> None:
    warehouse = warehouse_like_mast(MODEL, 0)
    readers = np.bincount(warehouse.jobs.tables, minlength=MODEL.tables)
    p50, p90, p99 = np.percentile(readers, [50, 90, 99])
    # A small department has fewer jobs than its hottest tables want readers.
    assert p50 == 3
    assert 11 <= p90 <= 17
    assert 25 <= p99 <= 45


def test_sizes_have_the_papers_percentiles() -> None:
    gib = warehouse_like_mast(MODEL, 0).tables.gib
    found = np.percentile(gib, [50, 90, 99])
    assert np.allclose(found, [0.526, 95.9, 6985.0], rtol=0.1)


def test_the_same_seed_gives_the_same_warehouse() -> None:
    one, other = (warehouse_like_mast(MODEL, 3) for _ in range(2))
    assert np.array_equal(one.tables.home, other.tables.home)
    assert np.array_equal(one.jobs.tables, other.jobs.tables)
    assert not np.array_equal(one.tables.home, warehouse_like_mast(MODEL, 4).tables.home)
