"""``preemption-budget``: counts the evictions behind promised starts, and their cost.

The federation's own policy on scenarios with MAST's percentiles, under budgets from none to all
GPUs in 5 minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from federator.sim.experiments.base import (
    ExperimentResult,
    Plot,
    bounded,
    parameters_of,
)
from federator.sim.experiments.mast_slo import MOST_DRAWS, FleetSetup, premise, tables
from federator.sim.experiments.routers import mast
from federator.sim.experiments.slo import SloFigures, figures
from federator.sim.runs.base import Progress, SimRun


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTask:
    """One draw of workloads under one budget; see ``RouterTask``.

    Attributes:
        grace_s: that a victim has.
        save_s: that it needs.
    """

    setup: FleetSetup
    load: float
    draw: int
    seed: int
    budget_gpus: float
    objective_s: float
    grace_s: float
    save_s: float

    def __call__(self, _: Progress) -> SloFigures:
        scenario = self.setup.scenario(self.load, self.draw)
        given = premise(scenario, self.budget_gpus, self.seed)
        rules = replace(given.rules, grace_s=self.grace_s)
        physics = replace(given.physics, save_s=self.save_s)
        lived = mast(replace(given, rules=rules, physics=physics))
        return figures(scenario, lived, self.setup.window_s, self.objective_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionBudgetExperiment:
    """Parameters; those that ``mast-slo`` has mean the same.

    Attributes:
        budgets: fractions of all GPUs that may be evicted in 5 minutes.
        grace_s: that a victim has.
        save_s: that it needs; if that is more, its work since the start is lost.
    """

    budgets: tuple[float, ...] = bounded((0.0, 0.01, 0.05, 0.25, 1.0), 0.0, 10.0)
    loads: tuple[float, ...] = bounded((0.9, 1.3), 0.01, 10.0)
    draws: int = bounded(2, 1, MOST_DRAWS)
    sites: int = bounded(6, 1, 1000)
    nodes: int = bounded(40, 1, 10_000)
    tenants: int = bounded(21, 7, 10_000)
    days: float = bounded(3.0, 0.01, 365.0)
    warm_up_days: float = bounded(1.0, 0.0, 365.0)
    objective_s: float = bounded(600.0, 0.0, 1e7)
    grace_s: float = bounded(120.0, 0.0, 86_400.0)
    save_s: float = bounded(60.0, 0.0, 86_400.0)

    def runs(self, seed: int) -> list[SimRun[SloFigures]]:
        setup = self._setup()
        setup.check()
        return [
            SimRun(
                name=f"load {load:g}, draw {draw}, budget {budget:g}",
                task=BudgetTask(
                    setup=setup,
                    load=load,
                    draw=seed * MOST_DRAWS + draw,
                    seed=seed,
                    budget_gpus=budget * setup.gpus,
                    objective_s=self.objective_s,
                    grace_s=self.grace_s,
                    save_s=self.save_s,
                ),
                returns=SloFigures,
            )
            for load in self.loads
            for draw in range(self.draws)
            for budget in self.budgets
        ]

    def result(self, found: Sequence[SloFigures]) -> ExperimentResult:
        each = iter(found)
        by_key: dict[tuple[float, str], list[SloFigures]] = {}
        for load in self.loads:
            for _ in range(self.draws):
                for budget in self.budgets:
                    by_key.setdefault((load, f"{budget:g}"), []).append(next(each))
        return ExperimentResult(
            title="what evictions buy, and what they cost",
            parameters=parameters_of(self),
            notes=_NOTES,
            tables=tables(by_key, ("load", "budget_frac")),
            plots=tuple(_plots()),
        )

    def _setup(self) -> FleetSetup:
        return FleetSetup(
            sites=self.sites,
            nodes=self.nodes,
            tenants=self.tenants,
            days=self.days,
            warm_up_days=self.warm_up_days,
        )


_NOTES: Final = (
    "budget_frac: of all GPUs, that may be evicted in any 5 minutes; 0: nobody is evicted.",
)


def _plots() -> Iterator[Plot]:
    for metric, title, label, least in (
        ("violations_frac", "Promised starts that were late", "fraction of the entitled", 0.0),
        ("p95_s", "Start latency of the entitled, 95 %", "seconds, at least 1", 1.0),
        ("preemptions", "Evictions", "in the whole run", 0.0),
        ("lost_gpu_h", "Work that was done again", "GPU-hours", 0.0),
        ("wait_all_mean_s", "Mean wait of everyone", "seconds, at least 1", 1.0),
        ("allocated_frac", "Allocated GPUs", "fraction", 0.0),
    ):
        yield Plot(
            table="spread",
            only=("metric", metric),
            title=title,
            x="load",
            y="mean",
            low="least",
            high="largest",
            by="budget_frac",
            y_label=label,
            y_least_log=least,
        )
