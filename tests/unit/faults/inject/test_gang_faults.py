"""Faults of gangs strike one with a spare as soon as it is at work, and a resize when it comes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import msgspec
import pytest

from federator.faults import world
from federator.faults.checks.evidence import Moment
from federator.faults.clock import VirtualClock, run_virtual
from federator.faults.inject.gang_faults import GANG_FAULTS
from federator.faults.inject.scene import FaultScene
from federator.faults.kinds import FaultKind
from federator.faults.process import ManyProcesses
from federator.faults.sbatch_helper import SbatchHelper
from federator.faults.site_host import SiteHost
from federator.faults.slurm import SimulatedJob
from federator.faults.user_code import Script
from federator.model.plan import JobPlan
from federator.model.site import NodeShare, SiteJobState
from federator.model.submission import Submission
from federator.wire.agent_protocol import LaunchOrder
from tests.fakes.build import attempt

ORDER = LaunchOrder(
    attempt=attempt(),
    user="ada",
    tenant="prod",
    name="x",
    submission=Submission(components=((),), script="#!/bin/sh\n"),
    jobs=(),
)


def open_site_with_three_gpu_nodes(found: world.World) -> SiteHost | None:
    """One whose gate lets jobs run that no agent has launched."""
    sites = (s for s in found.sites.values() if sum(n.gpus > 0 for n in s.cluster.nodes()) == 3)
    return next((site for site in sites if site.spool is None), None)


def play(kind: FaultKind, folder: Path) -> tuple[FaultScene, SimulatedJob]:
    """The fault is injected, and ten seconds later a gang of two with a spare begins."""
    clock = VirtualClock(world.BEGINS_S)
    seeds = iter(range(100))
    while True:
        seed = next(seeds)
        (folder / str(seed)).mkdir()
        made = world.World(Random(seed), clock, folder / str(seed))
        if (site := open_site_with_three_gpu_nodes(made)) is not None:
            break
    site.cluster.code._script = lambda _: Script(duration_s=60.0)
    scene, jobs = FaultScene(made), list[SimulatedJob]()

    async def live() -> None:
        GANG_FAULTS[kind](scene)
        await asyncio.sleep(10.0)
        names = [node.name for node in site.cluster.nodes() if node.gpus]
        plan = JobPlan(name="x", partition="gpu", nodes=dict.fromkeys(names, NodeShare(gpus=4)))
        job_id = site.cluster.take_in(attempt(), "ada", (plan,), 600.0, spare=1)
        jobs.append(site.cluster.jobs[job_id])
        await asyncio.sleep(11.0)

    run_virtual(clock, live(), ManyProcesses)
    return scene, jobs[0]


@pytest.mark.parametrize(
    ("kind", "lost"),
    [(FaultKind.GANG_NODE_FAILS, 1), (FaultKind.SPARE_FAILS, 2)],
)
def test_one_of_its_nodes_fails_and_the_gang_goes_on(
    kind: FaultKind, lost: int, tmp_path: Path
) -> None:
    scene, job = play(kind, tmp_path)
    assert scene.world.struck[kind] == 1
    names = [name for plan in job.jobs for name in plan.nodes]
    assert job.lost == {names[lost]}
    assert (job.state, job.restarts) == (SiteJobState.RUNNING, 0)


def test_a_gang_whose_spares_are_spent_is_put_back(tmp_path: Path) -> None:
    scene, job = play(FaultKind.SPARES_SPENT, tmp_path)
    assert scene.world.struck[FaultKind.SPARES_SPENT] == 1
    assert job.restarts == 1


def test_the_sbatch_of_the_next_resize_fails_and_of_no_other(tmp_path: Path) -> None:
    """Two wait for it. Before it another attempt is launched at its site; it strikes once."""
    made = world.World(Random(1), VirtualClock(world.BEGINS_S), tmp_path)
    host, resized, other = next(iter(made.sites.values())), attempt(2), attempt(1)
    helper = SbatchHelper(cluster=host.cluster, spell=host.spell, tell=made.note, spool=None)
    for _ in range(2):
        GANG_FAULTS[FaultKind.RESIZE_SBATCH_FAILS](FaultScene(made))
    for which in (resized, other):
        made.model.evidence.at_moment(Moment.RESIZE_AWARDED, host.name, which)
    struck = []

    async def live() -> None:
        for which in (other, resized, resized):
            order = msgspec.structs.replace(ORDER, attempt=which)
            await asyncio.gather(helper.call(order, "", 0.0), return_exceptions=True)
            struck.append(made.struck[FaultKind.RESIZE_SBATCH_FAILS])

    run_virtual(made.clock, live(), ManyProcesses)
    assert struck == [0, 1, 1]


def test_nothing_waits_for_a_resize_once_faults_are_over(tmp_path: Path) -> None:
    made = world.World(Random(1), VirtualClock(world.BEGINS_S), tmp_path)
    GANG_FAULTS[FaultKind.RESIZE_SBATCH_FAILS](FaultScene(made))
    made.model.evidence.await_nothing()
    made.model.evidence.at_moment(Moment.RESIZE_AWARDED, next(iter(made.sites)), attempt())
    assert not any(site.spell.of_resizes for site in made.sites.values())
