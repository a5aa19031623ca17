"""Faults of the planner: it dies, stands still, comes too late, or brings nonsense."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan
from typing import Final

from msgspec.structs import replace

from federator.faults.inject.scene import FaultScene, Inject
from federator.faults.kinds import FaultKind
from federator.faults.planner_host import PlannerHost
from federator.faults.process import outside
from federator.model.lending import LendingPlan, LoadForecast


def _killed(scene: FaultScene) -> bool:
    process = _planner(scene).process
    if process is not None:
        process.die()
    return process is not None


def _stands_still(scene: FaultScene) -> bool:
    """Its plan expires meanwhile."""
    planner = _planner(scene)
    process = planner.process
    if process is None or not planner.taken or planner.daemon.federation is None:
        return False
    process.pause()
    now_s = planner.clock()
    last = replace(planner.taken[-1], made_at_s=now_s, expires_at_s=now_s + 5.0)
    outside(_bring(scene, planner, last, None))
    scene.undo_within(10.0, 60.0, process.resume)
    return True


def _stale(scene: FaultScene) -> None:
    planner = _planner(scene)
    if planner.taken:
        plan = scene.world.rng.choice(planner.taken)
        outside(_bring(scene, planner, plan, FaultKind.PLAN_STALE))


def _nonsense(scene: FaultScene) -> None:
    planner, rng = _planner(scene), scene.world.rng
    now_s = planner.clock()
    sound = LendingPlan(made_at_s=now_s, expires_at_s=now_s + 900, windows_s=(300.0, 3600.0))
    huge = LoadForecast(tenant="prod", new_gpus=(2**62, -1))
    nobody = LoadForecast(tenant="nobody", new_gpus=(0, 0))
    plan = rng.choice(
        (
            replace(sound, made_at_s=nan),
            replace(sound, expires_at_s=inf),
            replace(sound, made_at_s=now_s + 1e9, expires_at_s=now_s + 1e9 + 1),
            replace(sound, windows_s=(3600.0, 300.0)),
            replace(sound, forecasts=(huge,)),
            replace(sound, forecasts=(nobody,)),
        )
    )
    outside(_bring(scene, planner, plan, FaultKind.PLAN_NONSENSE))


async def _bring(
    scene: FaultScene, planner: PlannerHost, plan: LendingPlan, wrong: FaultKind | None
) -> None:
    """Bring a plan; one that is ``wrong`` must be refused."""
    taken = await planner.bring(plan)
    if wrong is None or taken is None:
        return
    scene.world.strike(wrong)
    if taken and wrong is FaultKind.PLAN_NONSENSE:
        scene.world.model.evidence.break_(f"a plan was taken that makes no sense: {plan}")


def _planner(scene: FaultScene) -> PlannerHost:
    return scene.world.rng.choice(scene.world.planners)


PLANNER_FAULTS: Final[Mapping[FaultKind, Inject]] = {
    FaultKind.PLANNER_KILLED: _killed,
    FaultKind.PLANNER_STANDS_STILL: _stands_still,
    FaultKind.PLAN_STALE: _stale,
    FaultKind.PLAN_NONSENSE: _nonsense,
}
