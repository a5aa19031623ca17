"""The cost of a placement, and its changes, beside a slow computation from the formulas."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from federator.errors import InvalidRequest
from federator.planner.tetris_cost import SCARCE, HomePlacement, TetrisWeights
from federator.planner.warehouse import LEVELS, NONE, Warehouse
from tests.unit.planner.warehouses import drawn, two_regions, weighed


def region_of(warehouse: Warehouse, home: list[int], job: int, *, needs_gpus: bool = False) -> int:
    """R(job), as the paper says it; with ``needs_gpus`` only where its type of GPU is."""
    jobs = warehouse.jobs
    homes = [home[t] for t in jobs.tables[jobs.first[job] : jobs.first[job + 1]]]
    if jobs.training[job]:
        kind, supply = jobs.gpu_type[job], warehouse.regions.gpu_h[homes[0]]
        has_gpus = not needs_gpus or kind == NONE or supply[kind] > 0
        return homes[0] if len(set(homes)) == 1 and has_gpus else NONE
    counts = [homes.count(region) for region in range(len(warehouse.regions.names))]
    return counts.index(max(counts))


def slow_cost(  # noqa: C901 - every expression in its own words
    warehouse: Warehouse, home: list[int], weights: TetrisWeights
) -> float:
    """Expressions 1 to 3 and 7 to 9, one by one."""
    jobs, tables, regions = warehouse.jobs, warehouse.tables, warehouse.regions
    places = [
        region_of(warehouse, home, job, needs_gpus=weights.needs_gpus)
        for job in range(len(jobs.names))
    ]
    cost = 0.0
    for job, place in enumerate(places):
        for table in jobs.tables[jobs.first[job] : jobs.first[job + 1]]:
            if place != home[table]:
                cost += weights.remote * jobs.weight[job] * jobs.runs[job] * tables.gib[table]
    n_regions = len(regions.names)
    for kind in range(len(regions.gpu_types)):
        supply = regions.gpu_h[:, kind]
        has = [s > 0 for s in supply]
        for level in range(1, LEVELS + 1):
            demand = [0.0] * n_regions
            for job, place in enumerate(places):
                if place != NONE and jobs.gpu_type[job] == kind and jobs.priority[job] <= level:
                    demand[place] += jobs.gpu_h[job]
            fleet = sum(demand) / sum(supply) if sum(supply) else 0.0
            for r in range(n_regions):
                if has[r]:
                    apart = (demand[r] / supply[r] - fleet) ** 2
                else:
                    scarce = SCARCE * sum(supply) / sum(has) if any(has) else 1.0
                    apart = (demand[r] / scarce) ** 2
                beyond = max(0.0, demand[r] - supply[r]) / weights.overload_unit_gpu_h
                over = 1 / (1 + exp(-beyond)) if weights.overload else 0.0
                cost += weights.gpus * weights.levels[level - 1] * (apart + over)
    even = sum(tables.gib) / sum(regions.storage_gib)
    for r in range(n_regions):
        stored = sum(g for g, h in zip(tables.gib, home, strict=True) if h == r)
        cost += weights.storage * (stored / regions.storage_gib[r] - even) ** 2
    return cost


def allowed(placement: HomePlacement, table: int, to: int) -> bool:
    """Expressions 4 to 6 after a move, as far as they held before."""
    then = HomePlacement(placement.warehouse, placement.weights)
    then.home = placement.home.copy()
    then.home[table] = to
    then.refresh()
    stored = then.stored_gib[to] <= placement.storage_cap[to] + 1e-6
    worse = (then.cpu_h > placement.cpu_cap + 1e-6) & (then.cpu_h > placement.cpu_h + 1e-9)
    least = min(placement.home_least, placement.home_gpu_h)
    return bool(stored and not worse.any() and then.home_gpu_h >= least - 1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_cost_is_that_of_the_papers_expressions(seed: int) -> None:
    warehouse = drawn(seed)
    weights = weighed(warehouse)
    others = replace(weights, overload=False, storage=0.0), replace(weights, needs_gpus=True)
    for chosen in (weights, *others):
        found = HomePlacement(warehouse, chosen).cost().total
        assert found == pytest.approx(slow_cost(warehouse, warehouse.tables.home.tolist(), chosen))


@pytest.mark.parametrize("needs_gpus", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_each_change_is_the_difference_of_two_costs_and_forbidden_ones_are_infinite(
    seed: int, needs_gpus: bool
) -> None:
    rng = np.random.default_rng(seed)
    warehouse = drawn(seed)
    weights = replace(weighed(warehouse), needs_gpus=needs_gpus)
    at = HomePlacement(warehouse, weights)
    for _ in range(6):
        table = int(rng.integers(len(at.home)))
        before = slow_cost(warehouse, at.home.tolist(), weights)
        changes = at.changes(table)
        for region, change in enumerate(changes):
            home = at.home.tolist()
            home[table] = region
            if region == at.home[table]:
                assert change == 0.0
            elif np.isfinite(change):
                assert allowed(at, table, region)
                assert change == pytest.approx(
                    slow_cost(warehouse, home, weights) - before, abs=1e-6
                )
            else:
                assert not allowed(at, table, region)
        at.move(table, int(rng.choice(np.flatnonzero(np.isfinite(changes)))))
        kept = at.demand.copy(), at.cpu_h.copy(), at.home_gpu_h
        at.refresh()
        assert np.allclose(kept[0], at.demand)
        assert np.allclose(kept[1], at.cpu_h)
        assert kept[2] == pytest.approx(at.home_gpu_h)


def test_a_training_job_with_tables_in_two_regions_reads_all_of_them_remotely() -> None:
    warehouse = two_regions(gib=(10.0, 5.0), home=(0, 1), jobs=((0, 1),))
    at = HomePlacement(warehouse, TetrisWeights(gpus=0.0, storage=0.0))
    assert at.region.tolist() == [NONE]
    assert at.cost().remote == 15.0
    assert at.changes(1)[0] == -15.0


def test_overload_costs_more_than_the_same_underload() -> None:
    warehouse = two_regions(gib=(1.0, 1.0), home=(0, 1), jobs=((0,), (1,)), gpu_h=(150.0, 50.0))
    with_penalty = HomePlacement(warehouse, TetrisWeights(overload_unit_gpu_h=10.0)).cost()
    swapped = two_regions(gib=(1.0, 1.0), home=(0, 1), jobs=((0,), (1,)), gpu_h=(75.0, 25.0))
    without = HomePlacement(swapped, TetrisWeights(overload_unit_gpu_h=10.0)).cost()
    cells = 2 * LEVELS
    assert without.overload == pytest.approx(0.5 * cells)
    assert with_penalty.overload > without.overload + 0.4 * LEVELS


def test_a_warehouse_that_makes_no_sense_is_refused() -> None:
    warehouse = two_regions(gib=(1.0,), home=(0,), jobs=((0,),))
    broken = [
        replace(warehouse, tables=replace(warehouse.tables, gib=np.array([np.nan]))),
        replace(warehouse, tables=replace(warehouse.tables, home=np.array([2]))),
        replace(warehouse, jobs=replace(warehouse.jobs, priority=np.array([0]))),
        replace(warehouse, jobs=replace(warehouse.jobs, training=np.array([False]))),
        replace(warehouse, jobs=replace(warehouse.jobs, first=np.array([0, 0]))),
        replace(
            warehouse,
            jobs=replace(
                warehouse.jobs,
                first=np.array([0, 2]),
                tables=np.array([0, 0]),
                reads=np.array([0, 0]),
            ),
        ),
    ]
    for one in broken:
        with pytest.raises(InvalidRequest):
            one.checked()
