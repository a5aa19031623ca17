"""Faults that are injected: each kind in one way, and counted only where it struck."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from federator.faults import world
from federator.faults.clock import VirtualClock, run_virtual
from federator.faults.fault_injector import DRAWN_FAULTS, FaultInjector
from federator.faults.inject.daemon_faults import DAEMON_FAULTS
from federator.faults.inject.gang_faults import GANG_FAULTS
from federator.faults.inject.host_faults import HOST_FAULTS
from federator.faults.inject.network_faults import NETWORK_FAULTS
from federator.faults.inject.node_faults import NODE_FAULTS
from federator.faults.inject.operator_faults import OPERATOR_FAULTS
from federator.faults.inject.people_faults import PEOPLE_FAULTS
from federator.faults.inject.planner_faults import PLANNER_FAULTS
from federator.faults.inject.slurm_faults import SLURM_FAULTS
from federator.faults.kinds import AT_POINT, FaultKind
from federator.faults.process import ManyProcesses


def test_a_kind_is_injected_in_one_way_alone() -> None:
    families = (
        DAEMON_FAULTS,
        HOST_FAULTS,
        NETWORK_FAULTS,
        SLURM_FAULTS,
        NODE_FAULTS,
        GANG_FAULTS,
        PEOPLE_FAULTS,
        OPERATOR_FAULTS,
        PLANNER_FAULTS,
        AT_POINT,
    )
    kinds = [kind for family in families for kind in family]
    assert len(kinds) == len(set(kinds)) == len(DRAWN_FAULTS)


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.SCANCEL_FAILS,
        FaultKind.PROLOG_FAILS,
        FaultKind.STORE_SLOW,
        FaultKind.NETWORK_SLOW,
        FaultKind.PARTITION,
        FaultKind.DAEMON_CRASH_LOOP,
        FaultKind.NODE_FAILS,
        FaultKind.HET_NODE_FAILS,
        FaultKind.GANG_NODE_FAILS,
        FaultKind.SPARES_SPENT,
        FaultKind.SPARE_DAEMON_DIES,
        FaultKind.RESIZE_AGENT_DIES,
        FaultKind.RESIZE_SBATCH_FAILS,
        FaultKind.COMPONENT_CANCELLED,
        FaultKind.SBATCH_REFUSES_USERS,
    ],
)
def test_a_fault_that_meets_nobody_is_not_counted(kind: FaultKind, tmp_path: Path) -> None:
    nobody = world.World(Random(1), VirtualClock(world.BEGINS_S), tmp_path)

    async def live() -> None:
        injector = FaultInjector(nobody, 1.0, (kind,))
        for _ in range(3):
            injector.inject(kind)
        await asyncio.sleep(30.0)

    run_virtual(nobody.clock, live(), ManyProcesses)
    assert nobody.struck[kind] == 0
