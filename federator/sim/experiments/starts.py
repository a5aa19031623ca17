"""``starts``: measures how well the starts of jobs that wait are estimated, beside time limits.

A trace is lived through by the federation's own code, and its starts are estimated by the daemon's
own ``StartEstimates``: after each pass, for those that the pass has left waiting. So no estimate
knows anything that came after it. What starts in its first pass is told so by the bids themselves
(``--test-only`` says "would start now"): it is counted apart.

Beside it stands what Slurm would say: the same queue played forward once, with everything taking
as long as its time limit. A trace says no limits, so the least of ``LIMITS_S`` is taken that is
twice the true run time at least. That is kind to Slurm: it knows much of the run times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple

from federator.policies import POLICIES
from federator.sched.starts.calibration import COVERAGE, Wait
from federator.sched.starts.estimates import AGES_S, Promise, StartEstimates
from federator.sched.starts.playout import Coming, Play, PlayedRun
from federator.sched.starts.plays import Plays
from federator.sched.starts.queue_view import Occupied
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
from federator.sim.fleet import Fleet
from federator.sim.generate.sia import sia_workload
from federator.sim.job_records import BEGIN_S
from federator.sim.runs.base import Progress, SimRun
from federator.sim.trace import ReplayOptions, Trace
from federator.sim.trace_scenario import scenario_of

LIMITS_S: Final = tuple(h * 3600.0 for h in (1, 4, 12, 24, 72, 168, 336, 8760, inf))
BURST_S: Final = 600.0
_DAY_S: Final = 86_400.0
_ALL: Final = "all"
_MADE_UP: Final = "base"


class GivenStart(NamedTuple):
    """An estimate and what became of it; times in seconds from when it was made.

    Attributes:
        day: since the first submission.
        age: index in ``AGES_S``.
        classes: of the workload.
        shown: whether it would have been.
        earliest_s, likely_s, latest_s: as given; inf: beyond what is played.
        played: the interval before it was corrected.
        by_limits_s: as by time limits; inf: never.
        wait_s: until it started.
    """

    day: float
    age: int
    classes: tuple[str, ...]
    shown: bool
    earliest_s: float
    likely_s: float
    latest_s: float
    played: Wait
    by_limits_s: float
    wait_s: float

    @property
    def holds(self) -> bool:
        return self.earliest_s <= self.wait_s <= self.latest_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StartScores:
    """All estimates of a run, and the days and classes of jobs that started in their first pass."""

    given: list[GivenStart] = field(default_factory=list)
    at_once: list[float] = field(default_factory=list)


class ForecastingFleet(Fleet):
    """A fleet whose starts are estimated after each pass, as a daemon does."""

    def __init__(self, *args: Any, limit_s: Callable[[int], float]) -> None:
        super().__init__(*args)
        self.estimates = StartEstimates(self.federation)
        self.promises: list[tuple[Promise, float]] = []  # each with what time limits say
        self._limit_s = limit_s

    def moment_over(self) -> None:
        if self.estimates.look(self.now_s):
            plays = self.estimates.begin(self.now_s)
            while not plays.over:
                plays.play()
            made = self.estimates.finish(plays)
            by_limits = self._by_limits(plays) if made else {}
            self.promises += [(promise, by_limits[promise.id]) for promise in made]

    def _by_limits(self, plays: Plays) -> dict[int, float]:
        """When each that waits would start if everything took as long as its limit."""
        view, index = plays.view, self._records.index
        running = [PlayedRun(o.pool, o.hold, self._left_s(o)) for o in view.occupied]
        waiting = [Coming(0.0, q.shape, self._limit_s(index(q.id))) for q in view.queued]
        starts_s = Play([pool.copy() for pool in view.pools], running, waiting).run(inf)
        return {q.id: start_s for q, start_s in zip(view.queued, starts_s, strict=True)}

    def _left_s(self, occupied: Occupied) -> float:
        started_s = self.federation.ledger.entries[occupied.id].started_at_s or self.now_s
        left_s = self._limit_s(self._records.index(occupied.id)) - (self.now_s - started_s)
        return max(1.0, left_s)

    def index(self, id_: Any) -> int:
        """The number of a workload's arrival."""
        return self._records.index(id_)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsTask:
    """A trace whose jobs come faster, or slower, by ``load``."""

    trace: Trace
    load: float
    most_jobs: int

    def __call__(self, progress: Progress) -> StartScores:
        trace = self.trace.first(self.most_jobs)
        began_s = min(trace.submit_s)
        faster = [int((at_s - began_s) / self.load) for at_s in trace.submit_s]
        scenario = scenario_of(replace(trace, submit_s=faster))
        limits_s = [LIMITS_S[bisect_left(LIMITS_S, 2.0 * a.duration_s)] for a in scenario.arrivals]
        over = 0

        def more(jobs: int) -> None:
            nonlocal over
            over += jobs
            progress(over / len(limits_s))

        policy, options = POLICIES["mast"](CreditWeights()), ReplayOptions(progress=more)
        fleet = ForecastingFleet(
            scenario, policy, Rules(), None, options, limit_s=limits_s.__getitem__
        )
        lives = fleet.run()
        given = [
            _given(promise, by_limits_s, lives[fleet.index(promise.id)].first_start_s)
            for promise, by_limits_s in fleet.promises
        ]
        waited = {fleet.index(promise.id) for promise, _ in fleet.promises}
        at_once = [a.at_s / _DAY_S for k, a in enumerate(scenario.arrivals) if k not in waited]
        return StartScores(given=given, at_once=at_once)


def _given(promise: Promise, by_limits_s: float, start_s: float) -> GivenStart:
    made_s = promise.made_at_s - BEGIN_S
    return GivenStart(
        day=made_s / _DAY_S,
        age=promise.age,
        classes=promise.classes,
        shown=promise.shown,
        earliest_s=promise.given.earliest_s,
        likely_s=promise.given.likely_s,
        latest_s=promise.given.latest_s,
        played=promise.played,
        by_limits_s=by_limits_s,
        wait_s=start_s - made_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsExperiment:
    """Parameters.

    Attributes:
        trace: whose starts are estimated; None: SIA's synthetic workload.
        loads: jobs come so many times faster than in the trace.
        days: that a row of the table covers.
        most_jobs: of the trace, the first that were submitted.
    """

    trace: Trace | None = None
    loads: tuple[float, ...] = bounded((1.0,), 0.01, 100.0)
    days: float = bounded(7.0, 0.01, 3650.0)
    most_jobs: int = bounded(10_000_000, 1, 10_000_000)

    def runs(self, seed: int) -> list[SimRun[StartScores]]:
        trace = self.trace if self.trace is not None else sia_workload(_MADE_UP).generate(seed)
        return [
            SimRun(
                name=f"load {load:g}",
                task=StartsTask(trace=trace, load=load, most_jobs=self.most_jobs),
                returns=StartScores,
            )
            for load in self.loads
        ]

    def result(self, found: Sequence[StartScores]) -> ExperimentResult:
        return ExperimentResult(
            title="how well the starts of jobs that wait are estimated",
            parameters=parameters_of(self),
            tables=(
                DataTable(
                    name="by-week-and-class",
                    title=f"first estimates of jobs that wait, by {self.days:g} days and class",
                    columns=("load", "from_day", "class", *_COLUMNS),
                    rows=tuple(self._by_week(found)),
                    about=_ABOUT,
                ),
                DataTable(
                    name="by-age",
                    title="estimates by how long jobs had waited",
                    columns=("load", "had_waited_s", *_COLUMNS),
                    rows=tuple(self._by_age(found)),
                    about=_ABOUT,
                ),
                DataTable(
                    name="all-jobs",
                    title="all jobs, those that start at once among them",
                    columns=("load", "from_day", *_OF_ALL),
                    rows=tuple(self._of_all(found)),
                    about=_ABOUT_ALL,
                ),
            ),
            notes=_NOTES,
        )

    def _by_week(self, found: Sequence[StartScores]) -> Iterator[tuple[Cell, ...]]:
        for load, scores in zip(self.loads, found, strict=True):
            first = [each for each in scores.given if each.age == 0]
            weeks = sorted({int(each.day / self.days) for each in first})
            classes = sorted({name for each in first for name in each.classes[:2]})
            for week in (*weeks, None):
                for name in (_ALL, *classes):
                    rows = [
                        each
                        for each in first
                        if (week is None or int(each.day / self.days) == week)
                        and (name == _ALL or name in each.classes)
                    ]
                    if rows:
                        day: Cell = _ALL if week is None else week * self.days
                        yield load, day, name, *_figures(rows)

    def _by_age(self, found: Sequence[StartScores]) -> Iterator[tuple[Cell, ...]]:
        for load, scores in zip(self.loads, found, strict=True):
            for age, age_s in enumerate(AGES_S):
                rows = [each for each in scores.given if each.age == age]
                if rows:
                    yield load, age_s, *_figures(rows)

    def _of_all(self, found: Sequence[StartScores]) -> Iterator[tuple[Cell, ...]]:
        for load, scores in zip(self.loads, found, strict=True):
            first = [each for each in scores.given if each.age == 0]
            days = [*(each.day for each in first), *scores.at_once]
            for week in (*sorted({int(day / self.days) for day in days}), None):
                rows = [each for each in first if week in (None, int(each.day / self.days))]
                at_once = sum(week in (None, int(day / self.days)) for day in scores.at_once)
                day: Cell = _ALL if week is None else week * self.days
                jobs = len(rows) + at_once
                yield load, day, jobs, at_once / jobs, *_within(rows, at_once)


_FIGURES: Final = ("estimates", "bounded", "shown")
_COLUMNS: Final = (
    *_FIGURES,
    "bursts",
    "coverage_frac",
    "coverage_shown_frac",
    "in_1_min_frac",
    "in_10_min_frac",
    "median_wait_min",
    "median_width_min",
    "median_error_min",
    "mean_error_min",
    "median_error_by_limits_min",
    "mean_error_by_limits_min",
)
_OF_ALL: Final = ("jobs", "at_once_frac", "in_1_min_frac", "in_10_min_frac", "no_estimate_frac")
_ABOUT: Final = (
    "estimates: that were made. bounded: those whose interval has an end. shown: those of them "
    "narrow enough to be shown. bursts: into which those fall, with "
    f"{BURST_S:.0f} s and more between one and the next; jobs of one burst have much the same "
    f"fate. coverage_frac: of those bounded, {COVERAGE:.0%} is aimed at. "
    "All that follows is of those shown: in_…_frac: whose likely start was so near the true one; "
    "…_error_by_limits_min: of the same queue played forward by time limits."
)
_ABOUT_ALL: Final = (
    "at_once_frac: jobs that started in the pass that followed their submission; they count as "
    "right. in_…_frac: of all jobs; those without an estimate count as wrong."
)
_NOTES: Final = (
    "A trace says no time limits: the least usual one that is twice the run time at least.",
)


def _figures(rows: Sequence[GivenStart]) -> tuple[Cell, ...]:
    finite = [each for each in rows if each.latest_s < inf]
    shown = [each for each in finite if each.shown]
    coverage = mean(each.holds for each in finite) if finite else None
    if not shown:
        return (len(rows), len(finite), 0, 0, coverage, *(None,) * (len(_COLUMNS) - 5))
    errors_s = [abs(each.likely_s - each.wait_s) for each in shown]
    by_limits_s = [abs(each.by_limits_s - each.wait_s) for each in shown]
    return (
        len(rows),
        len(finite),
        len(shown),
        bursts(shown),
        coverage,
        mean(each.holds for each in shown),
        mean(error_s <= 60.0 for error_s in errors_s),
        mean(error_s <= 600.0 for error_s in errors_s),
        _median_min(each.wait_s for each in shown),
        _median_min(each.latest_s - each.earliest_s for each in shown),
        _median_min(errors_s),
        mean(errors_s) / 60.0,
        _median_min(by_limits_s),
        mean(by_limits_s) / 60.0,
    )


def bursts(given: Iterable[GivenStart]) -> int:
    """How many groups of estimates there are, with ``BURST_S`` between one and the next."""
    days = sorted(each.day for each in given)
    gaps = sum((later - day) * _DAY_S >= BURST_S for day, later in pairwise(days))
    return gaps + bool(days)


def _within(rows: Sequence[GivenStart], at_once: int) -> tuple[float, float, float]:
    jobs = len(rows) + at_once
    errors_s = [abs(each.likely_s - each.wait_s) for each in rows if each.shown]
    within_1_min, within_10_min = (
        (at_once + sum(error_s <= near_s for error_s in errors_s)) / jobs
        for near_s in (60.0, 600.0)
    )
    return within_1_min, within_10_min, (len(rows) - len(errors_s)) / jobs


def _median_min(times_s: Iterable[float]) -> float:
    return at_fraction(sorted(times_s), 0.5) / 60.0
