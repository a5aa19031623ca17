"""The federation itself: MAST's ranking, bids of every pool for every job, the best bid wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any

from federator.errors import InvalidRequest
from federator.policies.mast import Mast
from federator.sched.rules import Rules
from federator.sim.fast.core import FlatFleet, applies
from federator.sim.fleet import Fleet
from federator.sim.physics import Physics
from federator.sim.trace import ReplayOptions, Timetable, Trace
from federator.sim.trace_scenario import scenario_of, timetable_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MastReplay:
    """What daemon and agent would do with a trace; see ``federator.sim.fleet``.

    A job may run in any pool. Each pool is a tenant's quota, too: who stays within it goes first.
    Unless ``rules`` say otherwise nobody is evicted; unless ``physics``
    do, starts take no time and nothing fails.

    Attributes:
        rules: of the federation.
        physics: of the sites.
        exact: the code of daemon and agent itself, message by message, instead of
            ``federator.sim.fast``; the timetable is the same, and takes far longer. With evictions
            or physics there is no other way.
    """

    rules: Rules = Rules()
    physics: Physics = Physics()
    exact: bool = False

    @classmethod
    def adjusted(cls, settings: Mapping[str, float]) -> MastReplay:
        """With some of ``Rules`` and ``Physics``, by the names of their attributes.

        Raises:
            InvalidRequest: there is none of a name, or the value makes no sense.
        """
        of_rules = {f.name for f in fields(Rules)} - {"window"}
        of_physics = {f.name for f in fields(Physics)}
        for name, value in settings.items():
            if name not in of_rules | of_physics:
                known = ", ".join(sorted(of_rules | of_physics))
                raise InvalidRequest(f"--set: {name[:60]!r} is unknown; expected one of {known}")
            if name in of_rules and not 0 <= value < inf:
                raise InvalidRequest(f"--set: {name}: expected a number from 0 on, got {value}")
        rules: dict[str, Any] = {
            name: value for name, value in settings.items() if name in of_rules
        }
        physics: dict[str, Any] = {n: v for n, v in settings.items() if n in of_physics}
        if "local_gpus" in physics and float(physics["local_gpus"]).is_integer():
            physics["local_gpus"] = int(physics["local_gpus"])
        return cls(rules=replace(Rules(), **rules), physics=Physics(**physics))

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        if not applies(trace):
            raise InvalidRequest(
                "mast: the trace's last submission and all its durations come to 2^52 s or more, "
                "too much for exact times; correct the durations or replay fewer jobs"
            )
        if self.exact or self.rules.preempt_gpus or self.physics != Physics():
            fleet = Fleet(scenario_of(trace), Mast(), self.rules, self.physics, options)
            return timetable_of(trace, fleet.run())
        return FlatFleet(trace, Mast(), self.rules, options).run()
