"""Acts of users and admins directly in Slurm, past the federation, and of a site that lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from federator.faults.inject.scene import FaultScene, Inject, het_jobs_at_work
from federator.faults.kinds import FaultKind
from federator.faults.process import outside
from federator.faults.site_host import SiteHost
from federator.faults.slurm import SimulatedJob
from federator.model.site import SiteJobState
from federator.model.workload import AttemptId, SiteName
from federator.wire.client_protocol import Call, CancelCall, ErrorKind, ErrorReply, SubmitCall


def _attempt_of(site: SiteHost, job: SimulatedJob) -> AttemptId:
    """The attempt that a job of the federation really is."""
    attempt = site.cluster.real(job)
    assert attempt is not None
    return attempt


def _scancel(scene: FaultScene) -> bool:
    site = scene.site()
    jobs = site.cluster.federated()
    if jobs:
        job = scene.world.rng.choice(jobs)
        scene.world.model.evidence.truth(_attempt_of(site, job).workload).ended_outside = True
        site.cluster.end_job(job, SiteJobState.CANCELLED)
    return bool(jobs)


def _component_cancelled(scene: FaultScene) -> bool:
    site, rng = scene.site(), scene.world.rng
    jobs = het_jobs_at_work(site)
    if jobs:
        job = rng.choice(jobs)
        scene.world.model.evidence.truth(_attempt_of(site, job).workload).maimed = True
        site.cluster.cancel_components(job.job_id, (rng.randrange(1, len(job.jobs)),))
    return bool(jobs)


def _requeue(scene: FaultScene) -> bool:
    site = scene.site()
    running = site.cluster.at_work()
    if running:
        site.cluster.put_back(scene.world.rng.choice(running))
    return bool(running)


def _hold(scene: FaultScene) -> None:
    scene.site().cluster.holds_next = True


def _comment(scene: FaultScene) -> bool:
    site = scene.site()
    jobs = [j for j in site.cluster.federated() if j.job_id not in site.cluster.nameless]
    if not (site.has_spool or site.cluster.keeps_accounts):  # nothing else tells whose it is
        jobs = [j for j in jobs if site.has_noted(j.attempt, j.job_id)]
    if jobs:
        job = scene.world.rng.choice(jobs)
        site.cluster.nameless.add(job.job_id)
        scene.world.model.runs.renamed(_attempt_of(site, job))
    return bool(jobs)


def _forged_comment(scene: FaultScene) -> bool:
    submissions = scene.world.model.runs.submissions
    if not submissions:
        return False
    site = scene.site()
    attempt = scene.world.rng.choice(list(submissions))
    site.cluster.pretend(attempt, scene.node_of(site))
    return True


def _forged_call(scene: FaultScene) -> None:
    """The last site may speak for some users alone; its root speaks for another, who has jobs."""
    world = scene.world
    site, rng = list(world.sites.values())[-1], world.rng
    foreign = [
        script
        for script in world.model.wishes.scripts.values()
        if not world.config.speaks_for(SiteName(site.name), script.user)
    ]
    if foreign:
        script = rng.choice(foreign)
        live = [each.workload for each in world.model.runs.submissions]
        calls: list[Call] = [
            SubmitCall(submission=script.submission(world.clock()), key="forged"),
            CancelCall(ids=(str(rng.choice(live) if live else 1),)),
        ]
        outside(_forge(scene, site, script.user, calls))


async def _forge(scene: FaultScene, site: SiteHost, user: str, calls: Sequence[Call]) -> None:
    for call in calls:
        reply = await site.ask(user, call)
        if reply is not None:
            scene.world.model.answers.forged(user, reply)
        if isinstance(reply, ErrorReply) and reply.kind is ErrorKind.DENIED:
            scene.world.strike(FaultKind.FORGED_CALL, site.name)


PEOPLE_FAULTS: Final[Mapping[FaultKind, Inject]] = {
    FaultKind.USER_SCANCEL: _scancel,
    FaultKind.COMPONENT_CANCELLED: _component_cancelled,
    FaultKind.USER_REQUEUE: _requeue,
    FaultKind.USER_HOLD: _hold,
    FaultKind.USER_COMMENT: _comment,
    FaultKind.FORGED_COMMENT: _forged_comment,
    FaultKind.FORGED_CALL: _forged_call,
}
