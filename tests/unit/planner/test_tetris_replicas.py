"""Further copies of tables: which are made, where, and how much of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from federator.planner.tetris_cost import HomePlacement, TetrisWeights
from federator.planner.tetris_replicas import (
    PlannedReplica,
    ReplicaReason,
    ReplicaRules,
    plan_replicas,
    runnable,
)
from federator.planner.tetris_words import replica_text
from federator.planner.warehouse import Warehouse
from tests.unit.planner.warehouses import drawn, two_regions

ONLY_NOWHERE = ReplicaRules(recovery=False, hot_frac=0.0)


def planned(warehouse: Warehouse, rules: ReplicaRules) -> list[PlannedReplica]:
    return plan_replicas(HomePlacement(warehouse, TetrisWeights()), rules).replicas


def test_each_table_has_a_copy_outside_its_home() -> None:
    warehouse = two_regions(gib=(10.0, 5.0), home=(0, 1), jobs=((0,), (1,)))
    copies = planned(warehouse, ReplicaRules(nowhere=False, hot_frac=0.0))
    assert sorted((c.table, c.region, c.gib) for c in copies) == [(0, 1, 10.0), (1, 0, 5.0)]
    assert {c.reason for c in copies} == {ReplicaReason.RECOVERY}


def test_a_job_that_fits_nowhere_gets_what_it_lacks_where_most_of_its_gpus_are() -> None:
    warehouse = two_regions(
        gib=(10.0, 5.0), home=(0, 1), jobs=((0, 1),), supply=(50.0, 80.0), reads=3
    )
    (copy,) = planned(warehouse, ONLY_NOWHERE)
    assert (copy.table, copy.region, copy.partitions, copy.gib) == (0, 1, 3, 3.0)
    assert (
        replica_text(copy, warehouse) == "table0 (newest 3 of 10 partitions) -> east: "
        "job0 of vision can run nowhere without it; 3.2 GB to copy"
    )
    (whole,) = planned(warehouse, replace(ONLY_NOWHERE, partly=False))
    assert (whole.partitions, whole.gib) == (10, 10.0)


def test_a_job_whose_home_lacks_its_gpus_gets_a_copy_where_they_are() -> None:
    warehouse = two_regions(gib=(10.0,), home=(0,), jobs=((0,),), supply=(0.0, 80.0))
    (copy,) = planned(warehouse, ONLY_NOWHERE)
    assert (copy.region, copy.reason) == (1, ReplicaReason.NOWHERE)


def test_hot_tables_are_copied_up_to_the_quota_of_their_type() -> None:
    warehouse = two_regions(
        gib=(30.0, 20.0, 20.0),
        home=(0, 0, 0),
        jobs=((0,), (0,), (1,), (2,)),
        storage_gib=100.0,
    )
    copies = planned(warehouse, ReplicaRules(recovery=False, nowhere=False, hot_frac=0.5))
    # Of 50 GiB for hot tables the hottest takes 30; the next takes the rest.
    assert [(c.table, c.region, c.runs) for c in copies] == [(0, 1, 2.0), (1, 1, 1.0)]


def test_copies_never_exceed_the_room_and_what_fits_nowhere_is_named() -> None:
    for seed in range(8):
        warehouse = drawn(seed)
        room = np.full(3, 0.2 * warehouse.tables.gib.sum())
        warehouse = replace(warehouse, regions=replace(warehouse.regions, replica_gib=room))
        at = HomePlacement(warehouse, TetrisWeights())
        plan = plan_replicas(at, ReplicaRules())
        used = np.zeros(3)
        for copy in plan.replicas:
            used[copy.region] += copy.gib
        assert (used <= room + 1e-9).all()
        fits = runnable(at, plan.held).any(axis=1)
        assert plan.nowhere == np.flatnonzero(warehouse.jobs.training & ~fits).tolist()


def test_copies_for_jobs_that_fit_nowhere_come_first() -> None:
    warehouse = two_regions(gib=(10.0, 5.0), home=(0, 1), jobs=((0, 1), (1,)))
    reasons = [c.reason for c in planned(warehouse, replace(ReplicaRules(), recovery=False))]
    assert reasons[0] is ReplicaReason.NOWHERE
