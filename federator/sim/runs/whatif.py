"""A history under one federation.yaml, as a run."""

from __future__ import annotations

from dataclasses import dataclass

from federator.config import FederationConfig
from federator.sim.report.before_after import BeforeAfter, compare
from federator.sim.runs.base import Progress
from federator.sim.trace import ReplayOptions
from federator.sim.whatif import WhatIf, live_through, rules_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfTask:
    """All that an answer depends on.

    Attributes:
        question: the history, and the scenario made of it and of ``config``.
        config: federation.yaml.
        evict: whether anybody is evicted, within ``policy.preemption``.
        seed: told in the result.
    """

    question: WhatIf
    config: FederationConfig
    evict: bool
    seed: int

    def __call__(self, progress: Progress) -> BeforeAfter:
        scenario, config = self.question.scenario, self.config
        done, jobs = 0, max(1, len(scenario.arrivals))

        def more(count: int) -> None:
            nonlocal done
            done += count
            progress(done / jobs)

        gpus = sum(site.gpus for site in scenario.sites)
        rules = rules_of(config, gpus if self.evict else 0)
        options = ReplayOptions(seed=self.seed, progress=more)
        lives = live_through(scenario, config, rules, options)
        return compare(self.question, lives, config.policy.name, self.seed)
