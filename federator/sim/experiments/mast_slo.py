"""``mast-slo``: measures promised starts on time, and GPUs in use, as load grows.

MAST's router beside three others, see ``routers``, on scenarios with MAST's percentiles, or on a
trace at loads of one's choice. See ``slo`` for who is promised what.

Source:
    MAST sec. 5.6: below 1.3 % of the workloads violate the objective all the time; with the
    federated approach up to 50 % of those of high priority in busy hours. Sec. 5.3: 98 % allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import lru_cache
from typing import Final

from federator.errors import InvalidRequest
from federator.sched.state.rules import Rules
from federator.sim.experiments.base import (
    Cell,
    DataTable,
    ExperimentResult,
    Plot,
    bounded,
    mean,
    parameters_of,
)
from federator.sim.experiments.routers import ROUTERS, Premise
from federator.sim.experiments.slo import SloFigures, figures
from federator.sim.experiments.trace_load import TraceSetup
from federator.sim.generate.mast_like import MastLike
from federator.sim.physics import Physics
from federator.sim.runs.base import Progress, SimRun
from federator.sim.scenario import Scenario
from federator.sim.trace import ReplayOptions, Trace

STARTUP_MEDIAN_S: Final = 150.0  # MAST sec. 5.4
STARTUP_P90_S: Final = 278.0
DAY_S: Final = 86_400.0
MOST_DRAWS: Final = 1000
METRICS: Final = tuple(field.name for field in fields(SloFigures))
ABOUT: Final = (
    "entitled: workloads that came within their tenant's quota, by its demand. violations: of "
    "those, who waited longer than the objective; _others: without those that waited at least half "
    "of the time for what their own tenant ran, as it left no room in the quota; _high: of "
    "priority 1 to 3; _busiest: in the worst two hours. p95_s: wait of the entitled until their "
    "first start. allocated_busy: while at least as many GPUs were asked for as there are, which "
    "was busy_frac of the time. hottest: demand / supply of the site where it is highest. "
    "scan_entitled: workloads that MAST's scan had within quota while they waited, with all that "
    "their tenant ran counted first; scan_violations: of those, who waited so for longer than the "
    "objective."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSetup:
    """Sites, tenants and times of a scenario with MAST's percentiles."""

    sites: int
    nodes: int
    tenants: int
    days: float
    warm_up_days: float

    def scenario(self, load: float, seed: int) -> Scenario:
        """The workloads of one draw; the last one is remembered, for its other runs."""
        return _scenario(self, load, seed)

    def check(self) -> None:
        """Refuse what leaves nothing to measure.

        Raises:
            InvalidRequest: all of the time is a warm-up.
        """
        if self.warm_up_days >= self.days:
            raise InvalidRequest("--set: warm_up_days: expected less than days")

    @property
    def window_s(self) -> tuple[float, float]:
        """The time that is measured, in seconds of the scenario."""
        return self.warm_up_days * DAY_S, self.days * DAY_S

    @property
    def gpus(self) -> int:
        return self.sites * self.nodes * 8


@lru_cache(maxsize=1)
def _scenario(setup: FleetSetup, load: float, seed: int) -> Scenario:
    made = MastLike(
        sites=setup.sites,
        nodes=setup.nodes,
        tenants=setup.tenants,
        load=load,
        span_s=int(setup.days * DAY_S),
    )
    return made.generate(seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterTask:
    """One draw of workloads under one router.

    Attributes:
        setup: of the fleet.
        load: GPU time asked for / GPU time that there is.
        draw: seed of the workloads; a trace has one.
        seed: of the physics.
        budget_gpus: that may be evicted in 5 minutes, all sites together.
        objective_s: a longer wait until the first start is a violation.
        router: a name of ``ROUTERS``.
    """

    setup: FleetSetup | TraceSetup
    load: float
    draw: int
    seed: int
    budget_gpus: float
    objective_s: float
    router: str

    def __call__(self, _: Progress) -> SloFigures:
        scenario = self.setup.scenario(self.load, self.draw)
        given = premise(scenario, self.budget_gpus, self.seed)
        lived = ROUTERS[self.router](given)
        return figures(scenario, lived, self.setup.window_s, self.objective_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class MastSloExperiment:
    """Parameters.

    Attributes:
        trace: whose pools are sites and quotas; None: fleets with MAST's percentiles.
        home: with a trace, whether a quota is guaranteed in its own pool only (1), or as a count.
        quota_frac: with a trace, of a pool's GPUs, that its tenant is guaranteed.
        routers: names of ``ROUTERS``, or "all".
        loads: GPU time asked for / GPU time that there is.
        draws: scenarios for each load; of a trace, one.
        sites: of the fleet.
        nodes: of a site, with eight GPUs each.
        tenants: of the fleet.
        days: in which workloads come.
        warm_up_days: of those, not measured; the fleet is empty at first.
        objective_s: a longer wait until the first start is a violation.
        budget_frac: of all GPUs, that may be evicted in 5 minutes.
    """

    trace: Trace | None = None
    home: int = bounded(0, 0, 1)
    quota_frac: float = bounded(1.0, 0.01, 1.0)
    routers: tuple[str, ...] = ("all",)
    loads: tuple[float, ...] = bounded((0.7, 0.9, 1.1, 1.3), 0.01, 10.0)
    draws: int = bounded(2, 1, MOST_DRAWS)
    sites: int = bounded(6, 1, 1000)
    nodes: int = bounded(40, 1, 10_000)
    tenants: int = bounded(21, 7, 10_000)
    days: float = bounded(3.0, 0.01, 365.0)
    warm_up_days: float = bounded(1.0, 0.0, 365.0)
    objective_s: float = bounded(600.0, 0.0, 1e7)
    budget_frac: float = bounded(0.25, 0.0, 10.0)

    def runs(self, seed: int) -> list[SimRun[SloFigures]]:
        names, setup = self._router_names(), self._setup()
        setup.check()
        return [
            SimRun(
                name=f"load {load:g}, draw {draw}, {name}",
                task=RouterTask(
                    setup=setup,
                    load=load,
                    draw=seed * MOST_DRAWS + draw,
                    seed=seed,
                    budget_gpus=self.budget_frac * setup.gpus,
                    objective_s=self.objective_s,
                    router=name,
                ),
                returns=SloFigures,
            )
            for load in self.loads
            for draw in range(self._draws)
            for name in names
        ]

    def result(self, found: Sequence[SloFigures]) -> ExperimentResult:
        each = iter(found)
        by_key: dict[tuple[float, str], list[SloFigures]] = {}
        for load in self.loads:
            for _ in range(self._draws):
                for name in self._router_names():
                    by_key.setdefault((load, name), []).append(next(each))
        return ExperimentResult(
            title="starts that quotas promise, and GPUs in use, as load grows",
            parameters=parameters_of(self),
            notes=_NOTES,
            tables=tables(by_key, ("load", "router")),
            plots=tuple(_plots()),
        )

    def _router_names(self) -> tuple[str, ...]:
        names = tuple(ROUTERS) if self.routers == ("all",) else self.routers
        for name in names:
            if name not in ROUTERS:
                raise InvalidRequest(
                    f"--set: routers: {name[:60]!r} is unknown; expected {', '.join(ROUTERS)}"
                )
        return names

    @property
    def _draws(self) -> int:
        return self.draws if self.trace is None else 1

    def _setup(self) -> FleetSetup | TraceSetup:
        if self.trace is not None:
            return TraceSetup(
                trace=self.trace,
                days=self.days,
                warm_up_days=self.warm_up_days,
                home=bool(self.home),
                quota_frac=self.quota_frac,
            )
        return FleetSetup(
            sites=self.sites,
            nodes=self.nodes,
            tenants=self.tenants,
            days=self.days,
            warm_up_days=self.warm_up_days,
        )


def premise(scenario: Scenario, budget_gpus: float, seed: int) -> Premise:
    """A scenario under the rules and physics of these experiments."""
    physics = Physics(
        startup_median_s=STARTUP_MEDIAN_S, startup_p90_s=STARTUP_P90_S, save_s=60.0, restore_s=60.0
    )
    rules = Rules(preempt_gpus=budget_gpus)
    return Premise(
        scenario=scenario, rules=rules, physics=physics, options=ReplayOptions(seed=seed)
    )


def tables(
    found: Mapping[tuple[float, str], Sequence[SloFigures]], keys: tuple[str, str]
) -> tuple[DataTable, DataTable, DataTable]:
    """Means, how far the draws lie apart, and each draw."""
    summary: list[tuple[Cell, ...]] = []
    spread: list[tuple[Cell, ...]] = []
    runs: list[tuple[Cell, ...]] = []
    for key, draws in found.items():
        columns = [_known(column) for column in zip(*map(astuple, draws), strict=True)]
        summary.append((*key, len(draws), *(mean(c) if c else None for c in columns)))
        spread += [
            (metric, *key, mean(c), min(c), max(c))
            for metric, c in zip(METRICS, columns, strict=True)
            if c
        ]
        runs += [(*key, draw, *astuple(one)) for draw, one in enumerate(draws)]
    return (
        DataTable(
            name="summary",
            title="Means of the draws",
            rows=tuple(summary),
            about=ABOUT,
            columns=(*keys, "draws", *METRICS),
        ),
        DataTable(
            name="spread",
            title="How far the draws lie apart",
            rows=tuple(spread),
            about=ABOUT,
            columns=("metric", *keys, "mean", "least", "largest"),
        ),
        DataTable(
            name="runs",
            title="Each draw",
            rows=tuple(runs),
            about=ABOUT,
            columns=(*keys, "draw", *METRICS),
        ),
    )


def _known(numbers: Iterable[float | None]) -> list[float]:
    return [number for number in numbers if number is not None]


_NOTES: Final = (
    "Every router runs the federation's own code on the same workloads, under the same rules and "
    "physics. Entitled is a workload by its tenant's demand, so the same ones under each router.",
    "mast: every site bids for what can start now. federated: bound when it comes to the site with "
    "the lowest demand / supply; real run times are known to the reckoning of demand, and each "
    "site grants each tenant's whole quota. local allocation: one queue that counts free GPUs. "
    "ideal: all nodes are one site, an upper bound.",
)


def _plots() -> Iterator[Plot]:
    for metric, title, label, least in (
        ("violations_frac", "Promised starts that were late", "fraction of the entitled", 0.0),
        ("violations_high_frac", "The same, of high priority", "fraction of the entitled", 0.0),
        ("violations_busiest_frac", "The same, in the worst two hours", "fraction", 0.0),
        ("p95_s", "Start latency of the entitled, 95 %", "seconds, at least 1", 1.0),
        ("allocated_busy_frac", "Allocated GPUs while demand exceeds supply", "fraction", 0.0),
        ("hottest", "Demand / supply of the hottest site", "demand / supply", 0.0),
    ):
        yield Plot(
            table="spread",
            only=("metric", metric),
            title=title,
            x="load",
            y="mean",
            low="least",
            high="largest",
            by="router",
            y_label=label,
            y_least_log=least,
        )
