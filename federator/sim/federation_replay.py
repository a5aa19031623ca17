"""The federation itself: MAST's ranking, bids of every pool for every job, the best bid wins."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from federator.errors import InvalidRequest
from federator.policies.mast import Mast
from federator.sim.fast.core import FlatFleet, applies
from federator.sim.fleet import Fleet
from federator.sim.physics import Physics
from federator.sim.settings import Settings, settings_of, without_effect
from federator.sim.trace import ReplayOptions, Timetable, Trace
from federator.sim.trace_scenario import scenario_of, timetable_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MastReplay:
    """What daemon and agent would do with a trace; see ``federator.sim.fleet``.

    A job may run in any pool. Each pool is a tenant's quota, too: who stays within it goes first.
    Unless the settings say otherwise nobody is evicted, starts take no time and nothing fails.

    Attributes:
        settings: of the federation and its sites.
        exact: the code of daemon and agent itself, message by message, instead of
            ``federator.sim.fast``; the timetable is the same, and takes far longer. With evictions
            or physics there is no other way.
    """

    settings: Settings = Settings()
    exact: bool = False

    @classmethod
    def adjusted(cls, changes: Mapping[str, float]) -> MastReplay:
        """With some settings changed, by name.

        Raises:
            InvalidRequest: there is none of a name, or the value makes no sense.
        """
        return cls(settings=settings_of(changes, "mast"))

    def remarks(self, changes: Collection[str]) -> list[str]:
        """One line for each of these changes that has no effect."""
        return list(without_effect(changes, self.settings))

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        if not applies(trace):
            raise InvalidRequest(
                "mast: the trace's last submission and all its durations come to 2^52 s or more, "
                "too much for exact times; correct the durations or replay fewer jobs"
            )
        rules, physics = self.settings.rules, self.settings.physics
        policy, usage = Mast(self.settings.weights), self.settings.usage.average()
        if self.exact or rules.evicts or physics != Physics():
            fleet = Fleet(scenario_of(trace), policy, rules, physics, options, usage)
            return timetable_of(trace, fleet.run())
        return FlatFleet(trace, policy, rules, options, usage).run()
