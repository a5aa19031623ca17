"""The planner of a simulated federation: the daemon's own code, each 5 minutes of virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from federator.model.event import LogRecord
from federator.model.message import Observation, PlanAsked
from federator.model.tenant import Tenancy
from federator.planner.boosted import BoostedForecast
from federator.planner.forecast import ArrivalForecast
from federator.planner.history import STEP_S
from federator.planner.lending_planner import LendingPlanner
from federator.sim.failures import SimEventKind

_NOBODY: Final = -1  # waits for the answer


class PlannedStage(Protocol):
    """The simulation, as its planner sees it."""

    now_s: float

    def see(self, observation: Observation) -> None: ...

    def later(self, at_s: float, occasion: SimEventKind, act: Callable[[], None]) -> None: ...


class SimulatedPlanner:
    """Reads each record as it is made, and brings a plan at each step.

    Args:
        stage: the simulation.
        tenancy: its tenants.
        arrivals: says whether any work will come; by default boosted trees.

    Raises:
        InvalidRequest: the boosted trees are not installed.
    """

    def __init__(
        self, stage: PlannedStage, tenancy: Tenancy, arrivals: ArrivalForecast | None = None
    ) -> None:
        self._stage = stage
        self._planner = LendingPlanner(tenancy, arrivals or BoostedForecast())

    def take(self, record: LogRecord) -> None:
        """A record was made."""
        self._planner.take(record)

    def plan(self) -> None:
        """Bring a plan now, and again after each step."""
        now_s = self._stage.now_s
        self._stage.later(now_s + STEP_S, SimEventKind.PLAN, self.plan)
        self._stage.see(PlanAsked(client=_NOBODY, plan=self._planner.plan(now_s)))
