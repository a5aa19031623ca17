"""Faults of daemons, their hosts and clocks, and of the log that they share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from federator.faults.inject.scene import FaultScene, Inject
from federator.faults.kinds import FaultKind
from federator.faults.log import LogFault

JUMP_S: Final = 600.0  # of a clock that is set


def kill_daemon(scene: FaultScene) -> bool:
    """Kill one of the daemons; whether one was there."""
    process = scene.world.rng.choice(scene.world.daemons).process
    if process is not None:
        process.die()
    return process is not None


def _host_lost(scene: FaultScene) -> bool:
    """No channel sees its end: what it would say is held back, and lost."""
    for site in scene.world.sites.values():
        site.network.holds_down = site.network.holds_up = True
        scene.at(20.0, partial(site.network.heal, lose=True))
    return kill_daemon(scene)


def _crash_loop(scene: FaultScene) -> None:
    deaths: list[bool] = []

    def die() -> None:
        deaths.append(kill_daemon(scene))
        if deaths[-1] and sum(deaths) == 2:
            scene.world.strike(FaultKind.DAEMON_CRASH_LOOP)

    for turn in range(4):
        scene.at(1.5 * turn, die)


def _paused(scene: FaultScene) -> bool:
    process = scene.world.rng.choice(scene.world.daemons).process
    if process is not None:
        process.pause()
        scene.undo_within(4.0, 40.0, process.resume)
    return process is not None


def _clock_jumps(by_s: float, scene: FaultScene) -> bool:
    scene.world.rng.choice(scene.world.walls).ahead_s += by_s
    return True


def _lease_silent(scene: FaultScene) -> None:
    log = scene.world.log
    log.silent = True
    log.said.clear()
    scene.undo_within(1.0, 12.0, lambda: setattr(log, "silent", False))


def _next_append(fault: LogFault, scene: FaultScene) -> None:
    scene.world.log.fault = fault


def _store_full(scene: FaultScene) -> None:
    log = scene.world.log
    log.full = True
    log.said.clear()
    scene.undo_within(3.0, 20.0, lambda: setattr(log, "full", False))


def _store_slow(scene: FaultScene) -> None:
    log = scene.world.log
    log.said.clear()
    log.slow_s = scene.world.rng.uniform(0.5, 4.0)
    scene.undo_within(5.0, 30.0, lambda: setattr(log, "slow_s", 0.0))


DAEMON_FAULTS: Final[Mapping[FaultKind, Inject]] = {
    FaultKind.DAEMON_KILLED: kill_daemon,
    FaultKind.DAEMON_HOST_LOST: _host_lost,
    FaultKind.DAEMON_CRASH_LOOP: _crash_loop,
    FaultKind.DAEMON_PAUSED: _paused,
    FaultKind.DAEMON_CLOCK_FORWARD: partial(_clock_jumps, JUMP_S),
    FaultKind.DAEMON_CLOCK_BACK: partial(_clock_jumps, -JUMP_S),
    FaultKind.LEASE_SILENT: _lease_silent,
    FaultKind.STORE_ERROR_NOTHING: partial(_next_append, LogFault.NOTHING),
    FaultKind.STORE_ERROR_ADDED: partial(_next_append, LogFault.ADDED),
    FaultKind.STORE_FULL: _store_full,
    FaultKind.STORE_SLOW: _store_slow,
}
