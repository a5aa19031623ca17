"""The federation itself: MAST's ranking, bids of every pool for every job, the best bid wins."""

from __future__ import annotations

from dataclasses import dataclass

from federator.errors import InvalidRequest
from federator.policies.mast import Mast
from federator.sched.rules import Rules
from federator.sim.fast.core import FlatFleet, applies
from federator.sim.fleet import Fleet
from federator.sim.trace import ReplayOptions, Timetable, Trace
from federator.sim.trace_scenario import scenario_of, timetable_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MastReplay:
    """What daemon and agent would do with a trace; see ``federator.sim.fleet``.

    A job may run in any pool. Each pool is a tenant's quota, too: who stays within it goes first.
    Nobody is evicted, as in the federation today.

    Attributes:
        pass_interval_s: between passes without news.
        window: jobs asked about in one message to a site.
        exact: the code of daemon and agent itself, message by message, instead of
            ``federator.sim.fast``; the timetable is the same, and takes far longer.
    """

    pass_interval_s: float = 300.0
    window: int = 500
    exact: bool = False

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        rules = Rules(pass_interval_s=self.pass_interval_s, window=self.window)
        if not applies(trace):
            raise InvalidRequest(
                "mast: the trace's last submission and all its durations come to 2^52 s or more, "
                "too much for exact times; correct the durations or replay fewer jobs"
            )
        if self.exact:
            fleet = Fleet(scenario_of(trace), Mast(), rules, options=options)
            return timetable_of(trace, fleet.run())
        return FlatFleet(trace, Mast(), rules, options).run()
