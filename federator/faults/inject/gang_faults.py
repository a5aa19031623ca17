"""Faults of gangs: nodes of those that have a spare, and deaths in the middle of a resize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from federator.faults.checks.evidence import Moment
from federator.faults.inject.daemon_faults import kill_daemon
from federator.faults.inject.node_faults import repaired_within_a_minute
from federator.faults.inject.scene import FaultScene, Inject
from federator.faults.kinds import FaultKind
from federator.faults.site_host import SiteHost
from federator.faults.slurm import SimulatedJob
from federator.faults.spell import SbatchOutcome
from federator.model.workload import AttemptId, SiteName

LOOKS_S: Final = 2.0
LOOKS: Final = 30  # for a gang that a fault could strike
KNOWN_WITHIN_S: Final = 6.0  # an agent looks every five seconds
RESIZE_LASTS_S: Final = 12.0  # the grace, and the award of what comes after
SBATCH_FAILS: Final = (
    SbatchOutcome.REFUSED,
    SbatchOutcome.REFUSED_LATE,
    SbatchOutcome.NEVER_REACHED,
    SbatchOutcome.REPLY_LOST,
)
Strike = Callable[[FaultScene, SiteHost, SimulatedJob], None]


# ---- gangs with a spare ----


def _under_a_gang(strike: Strike, scene: FaultScene) -> None:
    """As soon as a gang with a spare is at work, if one is within a minute."""
    _look(strike, scene, LOOKS)


def _look(strike: Strike, scene: FaultScene, looks: int) -> None:
    sites = scene.world.sites.values()
    found = [(s, job) for s in sites for job in s.cluster.at_work() if job.spare and not job.lost]
    if found:
        strike(scene, *scene.world.rng.choice(found))
    elif looks:
        scene.at(LOOKS_S, partial(_look, strike, scene, looks - 1))


def _fail(scene: FaultScene, site: SiteHost, name: str) -> None:
    site.cluster.fail_node(name)
    repaired_within_a_minute(scene, site, name)


def _one_that_trains(job: SimulatedJob) -> str:
    """A node of the gang, but neither the one of its batch script nor a spare."""
    return job.nodes_left[1]


def _node_fails(scene: FaultScene, site: SiteHost, job: SimulatedJob) -> None:
    scene.world.strike(FaultKind.GANG_NODE_FAILS, site.name)
    _fail(scene, site, _one_that_trains(job))


def _spare_fails(scene: FaultScene, site: SiteHost, job: SimulatedJob) -> None:
    scene.world.strike(FaultKind.SPARE_FAILS, site.name)
    _fail(scene, site, job.nodes_left[-1])


def _spares_spent(scene: FaultScene, site: SiteHost, job: SimulatedJob) -> None:
    def fail_next() -> None:
        if job in site.cluster.at_work() and job.lost and len(job.nodes_left) > 1:
            _fail(scene, site, job.nodes_left[-1])
            if not job.has_enough_nodes:
                scene.world.strike(FaultKind.SPARES_SPENT, site.name)

    _fail(scene, site, _one_that_trains(job))
    for _ in range(job.spare):
        scene.undo_within(0.0, KNOWN_WITHIN_S, fail_next)


def _with_a_death(
    kind: FaultKind, kills: Callable[[FaultScene, SiteHost], bool], scene: FaultScene
) -> None:
    """A node of a gang fails, and before that is known somebody dies."""

    def strike(scene: FaultScene, site: SiteHost, job: SimulatedJob) -> None:
        _fail(scene, site, _one_that_trains(job))
        _dies_within(scene, KNOWN_WITHIN_S, kind, lambda: kills(scene, site))

    _under_a_gang(strike, scene)


def _dies_within(
    scene: FaultScene, most_s: float, kind: FaultKind, kills: Callable[[], bool]
) -> None:
    def die() -> None:
        if kills():
            scene.world.strike(kind)

    scene.undo_within(0.0, most_s, die)


def _kill_daemon(scene: FaultScene, _site: SiteHost) -> bool:
    return kill_daemon(scene)


def _kill_agent(_scene: FaultScene, site: SiteHost) -> bool:
    return site.kill_agents()


# ---- a resize ----


def _in_a_resize(
    kind: FaultKind, kills: Callable[[FaultScene, SiteHost], bool], scene: FaultScene
) -> None:
    """Somebody dies between the next resize that is asked for and its end."""

    def asked(site: str, _attempt: AttemptId) -> None:
        host = scene.world.sites[SiteName(site)]
        _dies_within(scene, RESIZE_LASTS_S, kind, lambda: kills(scene, host))

    scene.world.model.evidence.await_moment(Moment.RESIZE_ASKED, asked)


def _sbatch_fails(scene: FaultScene) -> None:
    """That of the next attempt that goes on at another size."""

    def awarded(site: str, attempt: AttemptId) -> None:
        world = scene.world
        world.sites[SiteName(site)].spell.of_resizes[attempt] = world.rng.choice(SBATCH_FAILS)

    scene.world.model.evidence.await_moment(Moment.RESIZE_AWARDED, awarded)


OF_RESIZES: Final = (
    FaultKind.RESIZE_DAEMON_DIES,
    FaultKind.RESIZE_AGENT_DIES,
    FaultKind.RESIZE_SBATCH_FAILS,
)
"""These wait for a resize. Few histories have one, and late. So each of these that may be drawn is
injected once at the first fault, besides as often as it is drawn."""
GANG_FAULTS: Final[Mapping[FaultKind, Inject]] = {
    FaultKind.GANG_NODE_FAILS: partial(_under_a_gang, _node_fails),
    FaultKind.SPARE_FAILS: partial(_under_a_gang, _spare_fails),
    FaultKind.SPARES_SPENT: partial(_under_a_gang, _spares_spent),
    FaultKind.SPARE_DAEMON_DIES: partial(_with_a_death, FaultKind.SPARE_DAEMON_DIES, _kill_daemon),
    FaultKind.SPARE_AGENT_DIES: partial(_with_a_death, FaultKind.SPARE_AGENT_DIES, _kill_agent),
    FaultKind.RESIZE_DAEMON_DIES: partial(_in_a_resize, FaultKind.RESIZE_DAEMON_DIES, _kill_daemon),
    FaultKind.RESIZE_AGENT_DIES: partial(_in_a_resize, FaultKind.RESIZE_AGENT_DIES, _kill_agent),
    FaultKind.RESIZE_SBATCH_FAILS: _sbatch_fails,
}
