"""Faults of a site's nodes, and local work that takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from federator.faults.inject.scene import FaultScene, Inject, het_jobs_at_work
from federator.faults.kinds import FaultKind
from federator.faults.site_host import SiteHost
from federator.model.site import NodeShare


def repaired_within_a_minute(scene: FaultScene, site: SiteHost, name: str) -> None:
    """Have a node that failed work again then."""
    scene.undo_within(5.0, 60.0, lambda: site.cluster.repair_node(name))


def _fails(scene: FaultScene) -> bool:
    site = scene.site()
    name = scene.node_of(site)
    under_job = any(name in plan.nodes for job in site.cluster.at_work() for plan in job.jobs)
    site.cluster.fail_node(name)
    repaired_within_a_minute(scene, site, name)
    return under_job


def _fails_under_a_component(scene: FaultScene) -> bool:
    site, rng = scene.site(), scene.world.rng
    jobs = het_jobs_at_work(site)
    if jobs:
        plans = rng.choice(jobs).jobs[1:]
        name = rng.choice([name for plan in plans for name in plan.nodes])
        site.cluster.fail_node(name)
        repaired_within_a_minute(scene, site, name)
    return bool(jobs)


def _drained(scene: FaultScene) -> bool:
    site = scene.site()
    name = scene.node_of(site)
    site.cluster.hardware.drain(name, "maintenance")
    repaired_within_a_minute(scene, site, name)
    return True


def _prolog_fails(scene: FaultScene) -> None:
    scene.site().cluster.prolog_fails += 1


def _local_job(scene: FaultScene) -> bool:
    site = scene.site()
    name = scene.node_of(site)
    node = next(n for n in site.cluster.nodes() if n.name == name)
    cpus = 1 if node.gpus else node.cpus - node.cpus_alloc
    free = NodeShare(gpus=node.gpus - node.gpus_alloc, cpus=cpus)
    site.cluster.take_locally(name, free)
    scene.undo_within(5.0, 60.0, lambda: site.cluster.take_locally(name, NodeShare()))
    return True


def _site_preempts(scene: FaultScene) -> bool:
    site = scene.site()
    running = site.cluster.at_work()
    if running:
        site.cluster.put_back(scene.world.rng.choice(running), preempted=True)
    return bool(running)


NODE_FAULTS: Final[Mapping[FaultKind, Inject]] = {
    FaultKind.NODE_FAILS: _fails,
    FaultKind.HET_NODE_FAILS: _fails_under_a_component,
    FaultKind.NODE_DRAINED: _drained,
    FaultKind.PROLOG_FAILS: _prolog_fails,
    FaultKind.LOCAL_JOB: _local_job,
    FaultKind.SITE_PREEMPTS: _site_preempts,
}
