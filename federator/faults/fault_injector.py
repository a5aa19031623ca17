"""Injects faults: draws which kinds strike when, and has each injected by its family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from federator.faults.inject.daemon_faults import DAEMON_FAULTS
from federator.faults.inject.gang_faults import GANG_FAULTS, OF_RESIZES
from federator.faults.inject.host_faults import HOST_FAULTS
from federator.faults.inject.network_faults import NETWORK_FAULTS
from federator.faults.inject.node_faults import NODE_FAULTS
from federator.faults.inject.operator_faults import OPERATOR_FAULTS
from federator.faults.inject.people_faults import PEOPLE_FAULTS
from federator.faults.inject.planner_faults import PLANNER_FAULTS
from federator.faults.inject.scene import FaultScene, Inject
from federator.faults.inject.slurm_faults import SLURM_FAULTS
from federator.faults.kinds import AT_POINT, FaultKind
from federator.faults.process import later
from federator.faults.world import World

ARMED_S: Final = 80.0  # that a named point waits for who comes by
INJECTED: Final[Mapping[FaultKind, Inject]] = {
    **DAEMON_FAULTS,
    **HOST_FAULTS,
    **NETWORK_FAULTS,
    **SLURM_FAULTS,
    **NODE_FAULTS,
    **GANG_FAULTS,
    **PEOPLE_FAULTS,
    **OPERATOR_FAULTS,
    **PLANNER_FAULTS,
}
DRAWN_FAULTS: Final = tuple(kind for kind in FaultKind if kind in INJECTED or kind in AT_POINT)
"""What is drawn from; the others follow from these, or are the users' own."""

_SELDOM: Final = 2 * tuple(GANG_FAULTS)
"""Few histories have something that these could strike: where they may be drawn, they are so often
more on the menu."""


class FaultInjector:
    """Injects the faults of one history.

    Args:
        world: where they strike.
        faults_s: how long.
        menu: the kinds to draw from.
    """

    def __init__(
        self, world: World, faults_s: float, menu: tuple[FaultKind, ...] = DRAWN_FAULTS
    ) -> None:
        self._world = world
        self._scene = FaultScene(world)
        self._faults_s = faults_s
        rng = world.rng
        count = rng.randint(10, 22)
        menu = (*menu, *(kind for kind in _SELDOM if kind in menu))
        self.plan = sorted(
            ((rng.uniform(2.0, faults_s), rng.choice(menu)) for _ in range(count)),
            key=lambda each: each[0],
        )

        self.plan[:0] = [(self.plan[0][0], kind) for kind in OF_RESIZES if kind in menu]

    def begin(self) -> None:
        """Have it all happen at its time."""
        later(self._faults_s, self._end)
        for at_s, kind in self.plan:
            later(at_s, self.inject, kind)

    def _end(self) -> None:
        self._scene.over = True

    def inject(self, kind: FaultKind) -> None:
        """Inject one fault now, or arm its point; count it if it struck."""
        if kind in AT_POINT:
            role, point = AT_POINT[kind]
            key = ("daemon" if role == "daemon" else self._scene.site().name, point)
            self._world.armed[key] = kind
            later(ARMED_S, self._world.armed.pop, key, None)
        elif INJECTED[kind](self._scene):
            self._world.strike(kind)
