"""``elastic``: measures what elastic jobs gain beside rigid ones, and how rigid neighbours fare.

One workload is lived through several times by the federation's own code. Of its jobs that fill
whole nodes, more than one each, a part is elastic: from ``least_frac`` of the nodes they asked for
to ``most_factor`` times as many. The rest is the same in every arm.

A rigid job is *later* if its first start is more than ``late_s`` after that of the rigid arm. A
schedule is chaotic: whatever changes moves starts, both ways. So there is an arm in which nothing
is elastic and only the start-up times are drawn anew, *other start-ups*: as many are later by
chance. And one in which elastic jobs are never resized, to tell what resizes add.

Source:
    Chosen here. A trace tells neither limits nor sizes: the time limit is the least of
    ``LIMITS_S`` that is twice the run time at least, on the least size for one that may be elastic.
    A doubling of the nodes brings ``doubling`` in truth; the federation starts from 1.8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import floor
from time import process_time
from typing import Any, Final

from federator.model.draft import Draft
from federator.model.message import Command, Observation, SendTo, SiteSent, Tick
from federator.model.site_message import Ask, BidsMade
from federator.model.submission import NodeRange
from federator.model.workload import Job, SiteName
from federator.policies import POLICIES
from federator.sched.passes.scaling import GAIN_OF_DOUBLING
from federator.sched.state.credit import CreditWeights
from federator.sched.state.rules import Rules
from federator.sim.experiments.base import (
    Cell,
    DataTable,
    ExperimentResult,
    bounded,
    mean,
    parameters_of,
    seeded,
)
from federator.sim.experiments.mast_slo import MOST_DRAWS, STARTUP_MEDIAN_S, STARTUP_P90_S
from federator.sim.experiments.starts import LIMITS_S
from federator.sim.fleet import Fleet
from federator.sim.generate.mast_like import MastLike
from federator.sim.physics import Physics
from federator.sim.runs.base import Progress, SimRun
from federator.sim.scenario import Arrival, Scenario
from federator.sim.trace import ReplayOptions, Trace
from federator.sim.trace_scenario import scenario_of

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_NEVER_S: Final = 1e9  # a cooldown that nothing outlasts


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticLives:
    """What became of a workload in one arm; columns by arrival.

    Attributes:
        elastic: of the arrivals, those that are.
        starts_s: first starts.
        turnarounds_s: from submission to the end.
        resizes: all together.
        allocated_frac: of all GPUs, from the first submission to the last.
        productive_frac: of the GPU time that jobs held: in which work was done that was kept.
        lost_gpu_h: in which work was done that was lost.
        makespan_s: from the first submission to the last end.
        passes: that were made.
        pass_s: CPU time of their decisions and bids.
        looks: ticks in which there was no pass, such as a look at what might be resized.
        look_s: CPU time of those.
    """

    elastic: list[int] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    turnarounds_s: list[float] = field(default_factory=list)
    resizes: int = 0
    allocated_frac: float = 0.0
    productive_frac: float = 0.0
    lost_gpu_h: float = 0.0
    makespan_s: float = 0.0
    passes: int = 0
    pass_s: float = 0.0
    looks: int = 0
    look_s: float = 0.0


class MeasuredFleet(Fleet):
    """A fleet whose decisions and bids are timed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.passes: set[int] = set()
        self.pass_s = self.look_s = 0.0
        self.looks = 0

    def decide(self, news: list[Observation]) -> list[Command]:
        began_s = process_time()
        commands = super().decide(news)
        took_s = process_time() - began_s
        if _is_of_a_pass(news, commands):
            self.pass_s += took_s
        elif isinstance(news[0], Tick):
            self.looks, self.look_s = self.looks + 1, self.look_s + took_s
        return commands

    def bids_of(self, site: SiteName, ask: Ask) -> BidsMade:
        self.passes.add(ask.pass_id)
        began_s = process_time()
        made = super().bids_of(site, ask)
        self.pass_s += process_time() - began_s
        return made


def _is_of_a_pass(news: Sequence[Observation], commands: Sequence[Command]) -> bool:
    first = news[0]
    if isinstance(first, SiteSent) and isinstance(first.message, BidsMade):
        return True
    return any(isinstance(c, SendTo) and isinstance(c.message, Ask) for c in commands)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What differs between the runs of one workload."""

    name: str
    frac: float = 0.0  # of the jobs that can be: elastic
    resizes: bool = True
    other_start_ups: bool = False  # drawn anew


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticTask:
    """One workload in one arm.

    Attributes:
        scenario: rigid, from ``Workloads``.
        seed: of who is elastic.
    """

    scenario: Scenario
    arm: Arm
    least_frac: float
    most_factor: float
    doubling: float
    save_s: float
    seed: int

    def __call__(self, progress: Progress) -> ElasticLives:
        scenario = self._scenario()
        over, total = 0, max(1, len(scenario.arrivals))

        def more(jobs: int) -> None:
            nonlocal over
            over += jobs
            progress(over / total)

        rules = Rules() if self.arm.resizes else Rules(cooldown_s=_NEVER_S)
        physics = Physics(
            startup_median_s=STARTUP_MEDIAN_S,
            startup_p90_s=STARTUP_P90_S,
            save_s=self.save_s,
            restore_s=self.save_s,
        )
        draw = 2 * self.seed + self.arm.other_start_ups
        options = ReplayOptions(seed=draw, progress=more, tells_usage=True)
        fleet = MeasuredFleet(scenario, POLICIES["mast"](CreditWeights()), rules, physics, options)
        fleet.run()
        return _figures(scenario, fleet)

    def _scenario(self) -> Scenario:
        draw = seeded(f"elastic {self.seed}")
        arrivals = [
            self._elastic(arrival)
            if draw.random() < self.arm.frac and _can_be(arrival)
            else arrival
            for arrival in self.scenario.arrivals
        ]
        return replace(self.scenario, arrivals=tuple(arrivals))

    def _elastic(self, arrival: Arrival) -> Arrival:
        draft = arrival.draft
        (job,) = draft.jobs
        asked = job.nodes or 1
        most = min(floor(asked * self.most_factor), self._largest(job))
        sizes = NodeRange(
            least=_least(asked, self.least_frac), most=max(asked, most), step=1, asked=asked
        )
        if sizes.least == sizes.most:
            return arrival
        smallest = (replace(job, nodes=sizes.least),)
        return replace(
            arrival, draft=replace(draft, jobs=smallest, elastic=sizes), doubling=self.doubling
        )

    def _largest(self, job: Job) -> int:
        """The nodes of the largest site: no size is larger."""
        return max(
            sum(node.gpus >= (job.gpus_per_node or 0) for node in site.nodes)
            for site in self.scenario.sites
        )


def _least(asked: int, frac: float) -> int:
    return max(1, floor(asked * frac))


def _can_be(arrival: Arrival) -> bool:
    (job, *others) = arrival.draft.jobs
    return not others and (job.nodes or 1) > 1


def _figures(scenario: Scenario, fleet: MeasuredFleet) -> ElasticLives:
    arrivals, lives = scenario.arrivals, fleet._records.lives
    begin_s, end_s = arrivals[0].at_s, arrivals[-1].at_s
    last_s = max(life.end_s for life in lives)
    held = _held(fleet, begin_s, end_s)
    all_held = _held(fleet, begin_s, last_s)
    gpus = sum(site.gpus for site in scenario.sites)
    return ElasticLives(
        elastic=[k for k, arrival in enumerate(arrivals) if arrival.draft.elastic is not None],
        starts_s=[life.first_start_s for life in lives],
        turnarounds_s=[life.end_s - a.at_s for a, life in zip(arrivals, lives, strict=True)],
        resizes=sum(life.resizes for life in lives),
        allocated_frac=held / max(1.0, gpus * (end_s - begin_s)),
        productive_frac=sum(life.useful_gpu_s for life in lives) / max(1.0, all_held),
        lost_gpu_h=sum(life.lost_gpu_s for life in lives) / _HOUR_S,
        makespan_s=last_s - begin_s,
        passes=len(fleet.passes),
        pass_s=fleet.pass_s,
        looks=fleet.looks,
        look_s=fleet.look_s,
    )


def _held(fleet: Fleet, begin_s: float, end_s: float) -> float:
    """GPU-seconds that were held from one time to another."""
    held, at_s, gpus = 0.0, begin_s, 0
    for moment in fleet.moments:
        until_s = min(max(moment.at_s, begin_s), end_s)
        held += gpus * (until_s - at_s)
        at_s, gpus = until_s, moment.held_gpus
    return held + gpus * (end_s - at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticExperiment:
    """Parameters.

    Attributes:
        trace: None: a made-up fleet with MAST's sizes, saturated.
        fracs: of the jobs that can be elastic, so many are.
        least_frac, most_factor: of the nodes that a job asks for, its least and its most.
        doubling: what twice the nodes bring, in truth.
        save_s: that a job takes to save, and to load.
        late_s: a neighbour that starts so much later counts.
        draws: of who is elastic; without a trace of the jobs, too.
        load: of the made-up fleet, GPU time asked for / GPU time that there is.
        sites, nodes, days: of the made-up fleet.
        most_jobs: of the trace, the first that were submitted.
    """

    trace: Trace | None = None
    fracs: tuple[float, ...] = bounded((0.3, 1.0), 0.0, 1.0)
    least_frac: float = bounded(0.5, 0.0, 1.0)
    most_factor: float = bounded(2.0, 1.0, 64.0)
    doubling: float = bounded(GAIN_OF_DOUBLING, 0.5, 2.0)
    save_s: float = bounded(60.0, 0.0, 86_400.0)
    late_s: float = bounded(600.0, 0.0, 1e7)
    load: float = bounded(1.2, 0.01, 10.0)
    draws: int = bounded(4, 1, MOST_DRAWS)
    sites: int = bounded(3, 1, 1000)
    nodes: int = bounded(40, 1, 10_000)
    days: float = bounded(2.0, 0.01, 365.0)
    most_jobs: int = bounded(10_000_000, 1, 10_000_000)

    def runs(self, seed: int) -> list[SimRun[ElasticLives]]:
        return [
            SimRun(
                name=f"{arm.name}, draw {draw}",
                task=ElasticTask(
                    scenario=scenario,
                    arm=arm,
                    least_frac=self.least_frac,
                    most_factor=self.most_factor,
                    doubling=self.doubling,
                    save_s=self.save_s,
                    seed=seed * MOST_DRAWS + draw,
                ),
                returns=ElasticLives,
            )
            for draw in range(self.draws)
            for scenario in [self._scenario(seed * MOST_DRAWS + draw)]
            for arm in self._arms()
        ]

    def _arms(self) -> list[Arm]:
        rigid = Arm(name="rigid")
        noise = Arm(name="rigid, other start-ups", other_start_ups=True)
        found = [rigid, noise]
        for frac in self.fracs:
            name = f"{frac:.0%} elastic"
            found.append(Arm(name=name, frac=frac))
            found.append(Arm(name=f"{name}, never resized", frac=frac, resizes=False))
        return found

    def _scenario(self, seed: int) -> Scenario:
        if self.trace is not None:
            made = scenario_of(self.trace.first(self.most_jobs))
        else:
            span_s = int(self.days * _DAY_S)
            fleet = MastLike(sites=self.sites, nodes=self.nodes, load=self.load, span_s=span_s)
            made = fleet.generate(seed)
        per_node = {site.nodes[0].gpus for site in made.sites}
        arrivals = tuple(self._with_limit(_by_nodes(a, min(per_node))) for a in made.arrivals)
        return replace(made, arrivals=arrivals)

    def _with_limit(self, arrival: Arrival) -> Arrival:
        slowest = 1.0
        if _can_be(arrival):
            asked = arrival.draft.jobs[0].nodes or 1
            sizes = NodeRange(least=1, most=asked, step=1, asked=asked)
            as_elastic = replace(
                arrival, draft=replace(arrival.draft, elastic=sizes), doubling=self.doubling
            )
            slowest = as_elastic.speed(_least(asked, self.least_frac))
        least_s = 2.0 * arrival.duration_s / slowest
        limit_s = LIMITS_S[bisect_left(LIMITS_S, least_s)]
        return replace(arrival, draft=replace(arrival.draft, time_limit_s=limit_s))

    def result(self, found: Sequence[ElasticLives]) -> ExperimentResult:
        arms = self._arms()
        draws = [found[k : k + len(arms)] for k in range(0, len(found), len(arms))]
        each = [
            _Draws(arm, [d[0] for d in draws], [d[k] for d in draws]) for k, arm in enumerate(arms)
        ]
        return ExperimentResult(
            title="elastic jobs beside rigid ones",
            parameters=parameters_of(self),
            tables=(
                DataTable(
                    name="arms",
                    title="completion times, GPU time, and resizes",
                    columns=_COLUMNS,
                    rows=tuple(one.row() for one in each),
                    about=_ABOUT,
                ),
                DataTable(
                    name="neighbours",
                    title=f"rigid jobs whose first start is off by more than {self.late_s:g} s",
                    columns=_OF_NEIGHBOURS,
                    rows=tuple(one.neighbours(self.late_s) for one in each[1:] if one.moved_s),
                    about=_ABOUT_NEIGHBOURS,
                ),
                DataTable(
                    name="cost",
                    title="CPU time of decisions and bids",
                    columns=_OF_COST,
                    rows=tuple(one.cost() for one in each),
                    about=_ABOUT_COST,
                ),
            ),
            notes=_NOTES,
        )


def _by_nodes(arrival: Arrival, per_node: int) -> Arrival:
    """A job that fills whole nodes asks for these, so that it can be elastic."""
    draft: Draft = arrival.draft
    (job, *others) = draft.jobs
    if others or not job.gpus or job.gpus % per_node or job.gpus == per_node:
        return arrival
    whole = Job(name=job.name, nodes=job.gpus // per_node, gpus_per_node=per_node)
    return replace(arrival, draft=replace(draft, jobs=(whole,)))


class _Draws:
    """One arm in all draws, beside the rigid one."""

    def __init__(
        self, arm: Arm, rigid: Sequence[ElasticLives], lives: Sequence[ElasticLives]
    ) -> None:
        self._arm, self._lives = arm.name, lives
        pairs = list(zip(rigid, lives, strict=True))
        self._all_s = [s for one in lives for s in one.turnarounds_s]
        self._elastic_s = [
            (r.turnarounds_s[k], o.turnarounds_s[k]) for r, o in pairs for k in o.elastic
        ]
        neighbours = [(r, o, k) for r, o in pairs for k in _rigid_in(o)]
        self._rigid_s = [(r.turnarounds_s[k], o.turnarounds_s[k]) for r, o, k in neighbours]
        self.moved_s = [o.starts_s[k] - r.starts_s[k] for r, o, k in neighbours]

    def row(self) -> tuple[Cell, ...]:
        elastic = self._elastic_s
        return (
            self._arm,
            len(self._all_s),
            len(elastic),
            mean(self._all_s) / _HOUR_S,
            mean(now for _, now in elastic) / _HOUR_S if elastic else None,
            mean(before for before, _ in elastic) / _HOUR_S if elastic else None,
            sum(one.resizes for one in self._lives),
            mean(one.allocated_frac for one in self._lives),
            mean(one.productive_frac for one in self._lives),
            sum(one.lost_gpu_h for one in self._lives),
            mean(one.makespan_s for one in self._lives) / _HOUR_S,
        )

    def neighbours(self, late_s: float) -> tuple[Cell, ...]:
        moved = self.moved_s
        return (
            self._arm,
            len(moved),
            sum(by_s > late_s for by_s in moved),
            sum(by_s < -late_s for by_s in moved),
            max(moved) / _HOUR_S,
            mean(moved) / 60.0,
            mean(now for _, now in self._rigid_s) / _HOUR_S,
            mean(before for before, _ in self._rigid_s) / _HOUR_S,
        )

    def cost(self) -> tuple[Cell, ...]:
        passes = sum(one.passes for one in self._lives)
        looks = sum(one.looks for one in self._lives)
        pass_s = sum(one.pass_s for one in self._lives)
        look_s = sum(one.look_s for one in self._lives)
        return self._arm, passes, 1e3 * pass_s / max(1, passes), looks, 1e3 * look_s / max(1, looks)


def _rigid_in(lives: ElasticLives) -> list[int]:
    elastic = set(lives.elastic)
    return [k for k in range(len(lives.starts_s)) if k not in elastic]


_COLUMNS: Final = (
    "arm",
    "jobs",
    "elastic",
    "jct_h",
    "jct_elastic_h",
    "jct_elastic_as_rigid_h",
    "resizes",
    "allocated_frac",
    "productive_frac",
    "lost_gpu_h",
    "makespan_h",
)
_OF_NEIGHBOURS: Final = (
    "arm",
    "rigid",
    "later",
    "earlier",
    "worst_h",
    "mean_min",
    "jct_h",
    "jct_before_h",
)
_OF_COST: Final = ("arm", "passes", "pass_ms", "looks", "look_ms")
_ABOUT: Final = (
    "jct_h: mean from submission to end, of all jobs; _elastic: of those that are elastic in this "
    "arm, and as_rigid: of the same jobs in the rigid arm. allocated_frac: of all GPU time from "
    "the first submission to the last. productive_frac: of the GPU time held, in which work was "
    "done that was kept: the rest is start-up, loading, saving, and work that was lost."
)
_ABOUT_NEIGHBOURS: Final = (
    "Against the rigid arm. 'Other start-ups' shows what chance does. worst_h: the most that one "
    "starts later; mean_min: over all rigid jobs, minutes later."
)
_ABOUT_COST: Final = (
    "pass_ms: decisions and all sites' bids of a pass. looks: ticks without a pass, such as those "
    "every 10 s at what might be resized."
)
_NOTES: Final = (
    "A schedule is chaotic: whatever changes moves starts, both ways.",
    "Costs are measured: they differ from call to call.",
)
