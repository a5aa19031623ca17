"""Replays a trace with the federation itself: every pool bids for every job, the best bid wins.

The queue is ranked by one of the daemon's own policies, ``federator.policies``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from federator.errors import InvalidRequest
from federator.policies import POLICIES
from federator.policies.settings import USAGE_KEYS, WEIGHT_KEYS
from federator.sim.fleet import Fleet
from federator.sim.job_records import BEGIN_S
from federator.sim.scenario import JobTrace
from federator.sim.settings import Settings, settings_of, without_effect
from federator.sim.trace import ReplayOptions, Timetable, Trace
from federator.sim.trace_scenario import scenario_of, timetable_of

DEFAULT_POLICY: Final = "mast"
_EXACT_BELOW_S: Final = 2.0**52


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationReplay:
    """What daemon and agents would do with a trace; see ``federator.sim.fleet``.

    A job may run in any pool. Each pool is a tenant's quota, too: who stays within it goes first.
    Unless the settings say otherwise nobody is evicted, starts take no time and nothing fails.

    Attributes:
        policy: name of the daemon's policy, as in federation.yaml.
        settings: of the federation and its sites.
    """

    policy: str = DEFAULT_POLICY
    settings: Settings = Settings()

    @classmethod
    def adjusted(
        cls, changes: Mapping[str, float], policy: str = DEFAULT_POLICY
    ) -> FederationReplay:
        """With some settings changed, by name.

        Raises:
            InvalidRequest: there is none of a name, or the value makes no sense.
        """
        return cls(policy=policy, settings=settings_of(changes, policy))

    def remarks(self, changes: Collection[str]) -> list[str]:
        """One line for each of these changes that has no effect."""
        lines = list(without_effect(changes, self.settings))
        if self.policy != DEFAULT_POLICY:
            of_credit = {*WEIGHT_KEYS, *USAGE_KEYS}.intersection(changes)
            lines += [
                f"--set: {name} has no effect: policy {self.policy} does not rank by credit"
                for name in changes
                if name in of_credit
            ]
        return lines

    def replay(self, trace: Trace, options: ReplayOptions) -> Timetable:
        return timetable_of(trace, self.lives(trace, options))

    def lives(self, trace: Trace, options: ReplayOptions) -> Sequence[JobTrace]:
        """What became of each job, in order of submission.

        Raises:
            InvalidRequest: the trace is too long for exact times.
        """
        if not _has_exact_times(trace):
            raise InvalidRequest(
                f"{self.policy}: the trace's last submission and all its durations come to 2^52 s "
                "or more, too much for exact times; correct the durations or replay fewer jobs"
            )
        rules, physics = self.settings.rules, self.settings.physics
        policy, usage = POLICIES[self.policy](self.settings.weights), self.settings.usage.average()
        home, start_within_s = self.settings.home, self.settings.start_within_s
        scenario = scenario_of(trace, home=home, start_within_s=start_within_s)
        scenario = replace(scenario, known_durations=self.settings.known_durations)
        fleet = Fleet(scenario, policy, rules, physics, options, usage)
        return fleet.run()


def _has_exact_times(trace: Trace) -> bool:
    """Tell whether all times of a replay are exact numbers as floats."""
    longest_s = max(trace.submit_s, default=0) + sum(trace.duration_s) + BEGIN_S
    return min(trace.submit_s, default=0) >= 0 and longest_s < _EXACT_BELOW_S
