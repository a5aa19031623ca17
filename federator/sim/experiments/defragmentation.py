"""``defragmentation``: measures what it is worth that small jobs move so that a gang fits.

The jobs of a trace, or jobs with MAST's percentiles, on one site: every pool is a tenant's quota
there. A job of more than a node takes whole nodes. Each load is lived through twice, with and
without moves; else nothing differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from federator.model.defragment import Defragment
from federator.model.site import Node
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import Job, SiteName, TenantName
from federator.policies import POLICIES
from federator.sched.state.credit import CreditWeights
from federator.sched.state.rules import Rules
from federator.sim.experiments.base import (
    Cell,
    DataTable,
    ExperimentResult,
    at_fraction,
    bounded,
    mean,
    parameters_of,
)
from federator.sim.experiments.trace_load import TraceSetup
from federator.sim.fleet import Fleet
from federator.sim.generate.mast_like import MastLike
from federator.sim.physics import Physics
from federator.sim.runs.base import Progress, SimRun
from federator.sim.scenario import Arrival, JobTrace, Scenario, SimulatedSite
from federator.sim.trace import ReplayOptions, Trace

_DAY_S: Final = 86_400.0
_GPU_H: Final = 3600.0
_COLUMNS: Final = (
    *("load", "moves", "gangs", "gang_wait_mean_s", "gang_wait_p95_s", "gang_wait_max_s"),
    *("small_wait_mean_s", "moved", "evicted", "lost_gpu_h", "allocated_frac"),
)
_ABOUT: Final = (
    "Gangs: jobs of at least large_gpus GPUs that came after the warm-up; small: all others. Waits "
    "are until the first start. moved, evicted: jobs, evicted without those that moved. "
    "lost_gpu_h: GPU time that jobs held and did no lasting work in (saves, restarts, work done "
    "again). allocated: mean, while jobs come."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentationFigures:
    """What became of the jobs under one rule.

    Attributes:
        gangs_s: waits of the large jobs until they first started.
        small_s: of the others, in all.
        small: so many others.
        moved: jobs that went to another node.
        evicted: jobs that were evicted otherwise.
        lost_gpu_s: GPU time that jobs held, and in which nothing was done that lasts.
        allocated_frac: of the GPU time while jobs come.
    """

    gangs_s: tuple[float, ...]
    small_s: float
    small: int
    moved: int
    evicted: int
    lost_gpu_s: float
    allocated_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentationTask:
    """One load, with moves or without."""

    scenario: Scenario
    rules: Rules
    physics: Physics
    measured_s: tuple[float, float]
    large_gpus: int
    seed: int

    def __call__(self, _: Progress) -> DefragmentationFigures:
        policy, options = POLICIES["mast"](CreditWeights()), ReplayOptions(seed=self.seed)
        fleet = Fleet(
            self.scenario, policy, self.rules, self.physics, replace(options, keep_awards=True)
        )
        lives = fleet.run()
        moved = sum(len(award.moves) for award in fleet.awards)
        begin_s, end_s = self.measured_s
        pairs = [
            (arrival, life)
            for arrival, life in zip(self.scenario.arrivals, lives, strict=True)
            if arrival.at_s >= begin_s and not life.refused
        ]
        large = [(a, life) for a, life in pairs if _gpus_of(a) >= self.large_gpus]
        others = [_wait_s(a, life) for a, life in pairs if _gpus_of(a) < self.large_gpus]
        return DefragmentationFigures(
            gangs_s=tuple(_wait_s(a, life) for a, life in large),
            small_s=sum(others),
            small=len(others),
            moved=moved,
            evicted=sum(life.preemptions for life in lives) - moved,
            lost_gpu_s=_held_gpu_s(lives, self.scenario, 0.0, inf)
            - sum(life.useful_gpu_s for life in lives),
            allocated_frac=_held_gpu_s(lives, self.scenario, begin_s, end_s)
            / (sum(site.gpus for site in self.scenario.sites) * (end_s - begin_s)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentationExperiment:
    """Parameters.

    Attributes:
        trace: its jobs, each pool a quota; by default jobs are made, of MAST's percentiles.
        loads: GPU time asked for / GPU time that there is.
        days: in which jobs come.
        warm_up_days: of those, not measured.
        nodes: of the site, without a trace.
        one_quota: 1: all jobs are of one tenant, whose quota is the site: nobody borrows.
        large_gpus: a gang has at least so many.
        max_moves: in a window of the eviction budget.
        margin: see ``Rules.defragment_margin``.
        budget_frac: of all GPUs, that may be evicted in 10 minutes.
        save_s: that a job takes to save.
        restore_s: that a start takes longer from a checkpoint.
    """

    trace: Trace | None = None
    loads: tuple[float, ...] = bounded((0.89, 1.2), 0.01, 10.0)
    days: float = bounded(26.0, 0.01, 365.0)
    warm_up_days: float = bounded(3.0, 0.0, 365.0)
    nodes: int = bounded(60, 2, 10_000)
    one_quota: int = bounded(0, 0, 1)
    large_gpus: int = bounded(32, 2, 100_000)
    max_moves: int = bounded(8, 1, 1_000)
    margin: float = bounded(2.0, 1.0, 1_000.0)
    budget_frac: float = bounded(0.05, 0.0, 1.0)
    save_s: float = bounded(60.0, 0.0, 86_400.0)
    restore_s: float = bounded(150.0, 0.0, 86_400.0)

    def runs(self, seed: int) -> list[SimRun[DefragmentationFigures]]:
        physics = Physics(save_s=self.save_s, restore_s=self.restore_s)
        return [
            SimRun(
                name=f"load {load:g}, moves {mode.value}",
                task=DefragmentationTask(
                    scenario=scenario,
                    rules=self._rules(mode),
                    physics=physics,
                    measured_s=(self.warm_up_days * _DAY_S, self.days * _DAY_S),
                    large_gpus=self.large_gpus,
                    seed=seed,
                ),
                returns=DefragmentationFigures,
            )
            for load in self.loads
            for scenario in (self._scenario(load, seed),)
            for mode in _MODES
        ]

    def _rules(self, mode: Defragment) -> Rules:
        return Rules(
            preempt_frac=self.budget_frac,
            preempt_window_s=600.0,
            cooldown_s=3600.0,
            defragment=mode,
            defragment_moves=self.max_moves,
            defragment_margin=self.margin,
        )

    def _scenario(self, load: float, seed: int) -> Scenario:
        if self.trace is not None:
            setup = TraceSetup(
                trace=self.trace, days=self.days, warm_up_days=self.warm_up_days, home=False
            )
            setup.check()
            made = setup.scenario(load, 0)
        else:
            span_s = int(self.days * _DAY_S)
            made = MastLike(sites=1, nodes=self.nodes, load=load, span_s=span_s).generate(seed)
        site = SimulatedSite(name=SiteName("site"), nodes=tuple(_nodes_of(made)))
        largest = max(node.gpus for node in site.nodes)
        tenants = tuple(replace(tenant, home=()) for tenant in made.tenants)
        arrivals = tuple(_on_whole_nodes(arrival, largest) for arrival in made.arrivals)
        if self.one_quota:
            one = Tenant(name=TenantName("all"), priority=4, quota=Allowance(gpus=site.gpus))
            tenants = (one,)
            arrivals = tuple(_of_tenant(arrival, one.name) for arrival in arrivals)
        return replace(made, sites=(site,), tenants=tenants, arrivals=arrivals)

    def result(self, found: Sequence[DefragmentationFigures]) -> ExperimentResult:
        names = [(load, mode.value) for load in self.loads for mode in _MODES]
        rows = tuple((*name, *_row(one)) for name, one in zip(names, found, strict=True))
        table = DataTable(
            name="moves",
            title="waits of gangs, and the work that moves cost",
            columns=_COLUMNS,
            rows=rows,
            about=_ABOUT,
        )
        return ExperimentResult(
            title="do gangs start sooner when small jobs move?",
            parameters=parameters_of(self),
            tables=(table,),
        )


_MODES: Final = (Defragment.OFF, Defragment.ON)


def _row(one: DefragmentationFigures) -> tuple[Cell, ...]:
    waits_s = sorted(one.gangs_s)
    return (
        len(waits_s),
        mean(waits_s) if waits_s else None,
        at_fraction(waits_s, 0.95) if waits_s else None,
        waits_s[-1] if waits_s else None,
        one.small_s / one.small if one.small else None,
        one.moved,
        one.evicted,
        one.lost_gpu_s / _GPU_H,
        one.allocated_frac,
    )


def _nodes_of(scenario: Scenario) -> Iterator[Node]:
    for site in scenario.sites:
        yield from site.nodes


def _of_tenant(arrival: Arrival, tenant: TenantName) -> Arrival:
    return replace(arrival, draft=replace(arrival.draft, tenant=tenant))


def _on_whole_nodes(arrival: Arrival, per_node: int) -> Arrival:
    """A job of more than a node asks for as many whole nodes as hold its GPUs."""
    (job, *others) = arrival.draft.jobs
    gpus = job.total_gpus
    if others or gpus <= per_node:
        return arrival
    nodes = -(-gpus // per_node)
    whole = Job(name=job.name, nodes=nodes, gpus_per_node=per_node, gpu_types=job.gpu_types)
    return replace(arrival, draft=replace(arrival.draft, jobs=(whole,)))


def _gpus_of(arrival: Arrival) -> int:
    return sum(job.total_gpus for job in arrival.draft.jobs)


def _wait_s(arrival: Arrival, life: JobTrace) -> float:
    return life.first_start_s - arrival.at_s


def _held_gpu_s(
    lives: Sequence[JobTrace], scenario: Scenario, begin_s: float, end_s: float
) -> float:
    """The GPU time from begin to end in which jobs ran."""
    return sum(
        max(0.0, min(stay.end_s, end_s) - max(stay.start_s, begin_s)) * _gpus_of(arrival)
        for arrival, life in zip(scenario.arrivals, lives, strict=True)
        for stay in life.stays
    )
