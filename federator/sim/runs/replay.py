"""The replay of a trace under one policy, settings and seed, as a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from federator.sim.registry import trace_policy
from federator.sim.report.summary import ReplaySummary, summary
from federator.sim.runs.base import Progress
from federator.sim.trace import ReplayOptions, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """All that a replay depends on.

    Attributes:
        trace: the jobs.
        policy: a name of ``federator.sim.registry``.
        seed: of whatever the policy draws.
        settings: of the policy and the sites, by name.
    """

    trace: Trace
    policy: str
    seed: int
    settings: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, progress: Progress) -> ReplaySummary:
        done, jobs = 0, max(1, len(self.trace))

        def more(count: int) -> None:
            nonlocal done
            done += count
            progress(done / jobs)

        chosen = trace_policy(self.policy, self.settings)
        timetable = chosen.replay(self.trace, ReplayOptions(seed=self.seed, progress=more))
        return summary(self.trace, timetable, self.policy, self.seed)
