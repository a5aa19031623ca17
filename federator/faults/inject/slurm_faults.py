"""Faults of a site's slurmctld and of the commands that ask it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from federator.faults.client_scripts import USERS
from federator.faults.inject.scene import FaultScene, Inject
from federator.faults.kinds import FaultKind
from federator.faults.spell import SbatchOutcome


def _slurmctld_down(scene: FaultScene) -> None:
    spell = scene.site().spell
    spell.down = True
    spell.said.clear()
    scene.undo_within(1.5, 50.0, lambda: setattr(spell, "down", False))


def _slurmctld_lost_state(scene: FaultScene) -> bool:
    site = scene.site()
    site.spell.down = True
    site.spell.said.clear()
    scene.at(3.0, lambda: setattr(site.spell, "down", False))
    return site.cluster.lose_last(scene.world.rng.choice((1, 1, 2)))


def _records_forgotten(scene: FaultScene) -> bool:
    return scene.site().cluster.forget_ended()


def _next_sbatch(outcome: SbatchOutcome, scene: FaultScene) -> None:
    scene.site().spell.fate = outcome


def _sbatch_beyond(scene: FaultScene) -> None:
    """Only where a gate stands: elsewhere nobody promises anything then."""
    site = scene.site()
    if site.has_spool:
        site.spell.fate = SbatchOutcome.BEYOND


def _sbatch_refuses_users(scene: FaultScene) -> None:
    """At one site, or, as when nobody has added a QOS anywhere, at all of them."""
    rng = scene.world.rng
    sites = rng.choice(([scene.site()], list(scene.world.sites.values())))
    users = rng.choice(((rng.choice(USERS),), USERS))
    for spell in (site.spell for site in sites):
        spell.refuses.update(users)
        spell.said.clear()
        scene.undo_within(10.0, 90.0, partial(spell.refuses.difference_update, users))


def _scancel_fails(scene: FaultScene) -> None:
    site = scene.site()
    cluster = site.cluster
    cluster.refuses_cancels = True
    site.spell.said.clear()
    scene.undo_within(3.0, 25.0, lambda: setattr(cluster, "refuses_cancels", False))


def _sweep_slow(scene: FaultScene) -> None:
    spell = scene.site().spell
    spell.sweep_s = scene.world.rng.choice((1.0, 4.0, 12.0))
    spell.said.clear()
    scene.undo_within(5.0, 25.0, lambda: setattr(spell, "sweep_s", 0.0))


def _sweep_incomplete(scene: FaultScene) -> None:
    spell = scene.site().spell
    spell.hides_node = True
    spell.said.clear()
    scene.undo_within(5.0, 30.0, lambda: setattr(spell, "hides_node", False))


def _sweep_unreadable(scene: FaultScene) -> None:
    spell = scene.site().spell
    spell.unreadable = True
    spell.said.clear()
    scene.undo_within(2.0, 25.0, lambda: setattr(spell, "unreadable", False))


SLURM_FAULTS: Final[Mapping[FaultKind, Inject]] = {
    FaultKind.SLURMCTLD_DOWN: _slurmctld_down,
    FaultKind.SLURMCTLD_LOST_STATE: _slurmctld_lost_state,
    FaultKind.RECORDS_FORGOTTEN: _records_forgotten,
    FaultKind.SBATCH_REPLY_LOST: partial(_next_sbatch, SbatchOutcome.REPLY_LOST),
    FaultKind.SBATCH_NEVER_REACHED: partial(_next_sbatch, SbatchOutcome.NEVER_REACHED),
    FaultKind.SBATCH_REFUSED: partial(_next_sbatch, SbatchOutcome.REFUSED),
    FaultKind.SBATCH_REFUSED_LATE: partial(_next_sbatch, SbatchOutcome.REFUSED_LATE),
    FaultKind.SBATCH_REFUSES_USERS: _sbatch_refuses_users,
    FaultKind.SBATCH_SLOW: partial(_next_sbatch, SbatchOutcome.SLOW),
    FaultKind.SBATCH_TOO_LATE: partial(_next_sbatch, SbatchOutcome.TOO_LATE),
    FaultKind.SBATCH_BEYOND: _sbatch_beyond,
    FaultKind.SCANCEL_FAILS: _scancel_fails,
    FaultKind.SWEEP_SLOW: _sweep_slow,
    FaultKind.SWEEP_INCOMPLETE: _sweep_incomplete,
    FaultKind.SWEEP_UNREADABLE: _sweep_unreadable,
}
