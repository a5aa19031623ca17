"""The scene of faults: each ends in its time, and none does anything once all are undone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from federator.faults import world
from federator.faults.clock import VirtualClock, run_virtual
from federator.faults.inject.scene import FaultScene
from federator.faults.process import ManyProcesses


def test_a_fault_ends_between_the_two_times_unless_all_have_been_undone(tmp_path: Path) -> None:
    clock = VirtualClock(world.BEGINS_S)
    scene = FaultScene(world.World(Random(1), clock, tmp_path))
    undone: list[tuple[str, float]] = []

    async def live() -> None:
        scene.undo_within(5.0, 10.0, lambda: undone.append(("first", clock() - world.BEGINS_S)))
        scene.at(30.0, lambda: undone.append(("late", clock() - world.BEGINS_S)))
        await asyncio.sleep(20.0)
        scene.over = True
        await asyncio.sleep(20.0)

    run_virtual(clock, live(), ManyProcesses)
    ((what, at_s),) = undone
    assert what == "first"
    assert 5.0 <= at_s <= 10.0
