"""Faults of a site's login node: its agents, their journal, its clock and its spool."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from federator.faults.dialled import lose_link
from federator.faults.inject.daemon_faults import JUMP_S
from federator.faults.inject.scene import FaultScene, Inject
from federator.faults.kinds import FaultKind
from federator.faults.process import later

STOPS_AT: Final = (
    *("intent before", "intent after", "sbatch before call", "sbatch before", "sbatch after"),
    *("job after", "sweep after", "say before"),
)
STOPS_WITHIN_S: Final = 80.0  # that a point waits for an agent


def _agent_killed(scene: FaultScene) -> bool:
    return scene.site().kill_agents()


def _agent_paused(scene: FaultScene) -> bool:
    agents = list(scene.site().agents)
    for agent in agents:
        agent.pause()
        scene.undo_within(4.0, 40.0, agent.resume)
    return bool(agents)


def _journal_full(scene: FaultScene) -> None:
    disk = scene.site().disk
    disk.journal_full = True
    scene.undo_within(5.0, 30.0, lambda: setattr(disk, "journal_full", False))


def _clock_jumps(by_s: float, scene: FaultScene) -> bool:
    scene.world.clocks[scene.site().name].ahead_s += by_s
    return True


def _spool_hangs(scene: FaultScene) -> None:
    disk = scene.site().disk
    disk.spool_hangs = True
    scene.undo_within(3.0, 30.0, lambda: setattr(disk, "spool_hangs", False))


def _spool_wiped(scene: FaultScene) -> bool:
    spool = scene.site().spool
    if spool is None:
        return False
    found = False
    for name in ("leases", "tickets"):
        for path in sorted((spool / name).glob("*")):
            path.unlink(missing_ok=True)
            found = True
    return found


def _login_node_stops(scene: FaultScene) -> None:
    """At the next point of its agent that is drawn, if the site has another one."""
    world = scene.world
    sites = [site for site in world.sites.values() if len(site.login_nodes) > 1]
    if not sites:
        return
    key = (world.rng.choice(sites).name, world.rng.choice(STOPS_AT))
    world.armed[key] = FaultKind.LOGIN_NODE_STOPS
    later(STOPS_WITHIN_S, world.armed.pop, key, None)


def _outbound_link_lost(scene: FaultScene) -> bool:
    """At once, or at the next point of its agent that is drawn: in the middle of a launch."""
    world = scene.world
    sites = [site for site in world.sites.values() if site.diallers]
    if not sites:
        return False
    site = world.rng.choice(sites)
    if world.rng.random() < 0.5:
        return lose_link(site, world.rng)
    key = (site.name, world.rng.choice(STOPS_AT))
    world.armed[key] = FaultKind.OUTBOUND_LINK_LOST
    later(STOPS_WITHIN_S, world.armed.pop, key, None)
    return False


HOST_FAULTS: Final[Mapping[FaultKind, Inject]] = {
    FaultKind.AGENT_KILLED: _agent_killed,
    FaultKind.AGENT_PAUSED: _agent_paused,
    FaultKind.LOGIN_NODE_STOPS: _login_node_stops,
    FaultKind.OUTBOUND_LINK_LOST: _outbound_link_lost,
    FaultKind.JOURNAL_FULL: _journal_full,
    FaultKind.SITE_CLOCK_FORWARD: partial(_clock_jumps, JUMP_S),
    FaultKind.SITE_CLOCK_BACK: partial(_clock_jumps, -JUMP_S),
    FaultKind.SPOOL_HANGS: _spool_hangs,
    FaultKind.SPOOL_WIPED: _spool_wiped,
}
