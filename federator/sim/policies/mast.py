"""The federation itself: MAST's ranking, bids of every pool for every job, the best bid wins."""

from __future__ import annotations

from dataclasses import dataclass

from federator.policies.mast import Mast
from federator.sched.rules import Rules
from federator.sim.fleet import Fleet
from federator.sim.trace import ReplayOptions, Timetable, Trace
from federator.sim.trace_scenario import scenario_of, timetable_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MastReplay:
    """The code of daemon and agent in virtual time; see ``federator.sim.fleet``.

    A job may run in any pool. Each pool is a tenant's quota, too: who stays within it goes first.
    Nobody is evicted, as in the federation today.
    """

    pass_interval_s: float = 300.0

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        rules = Rules(pass_interval_s=self.pass_interval_s)
        fleet = Fleet(scenario_of(trace), Mast(), rules, options=options)
        return timetable_of(trace, fleet.run())
