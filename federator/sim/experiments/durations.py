"""``durations``: measures how well run times are predicted from runs that ended before.

Every job of a trace starts as it is submitted and runs as long as it did. It is predicted by the
ledger's ``DurationModel`` as it starts, and again when it has run for 10 minutes, 1 h and 6 h;
then the model learns from its end. So no prediction knows anything that came after it.

The other rule is the same model with users and pools taken away: only the size of a job is known.

Source:
    Interval score: Gneiting and Raftery, JASA 2007, eq. 43, for an interval that begins at 0: its
    upper end, and ten times what the run took beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Final

from federator.model.workload import TenantName
from federator.sched.state.corrections import AGES_S, QUANTILE
from federator.sched.state.durations import DurationModel
from federator.sched.state.recent_runs import size_class
from federator.sched.state.save_times import Family
from federator.sim.experiments.base import (
    Cell,
    DataTable,
    ExperimentResult,
    bounded,
    mean,
    parameters_of,
)
from federator.sim.generate.sia import sia_workload
from federator.sim.runs.base import Progress, SimRun
from federator.sim.trace import Trace

RULES: Final = ("user and pool", "size alone")
_DAY_S: Final = 86_400.0
_HOUR_S: Final = 3600.0
_ENDS, _COMES_OF_AGE, _BEGINS = range(3)  # at one instant in this order
_UNITS: Final = {0.0: "start", 600.0: "10 min", 3600.0: "1 h", 21_600.0: "6 h"}
_ALL: Final = "all"
_MADE_UP: Final = "base"


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationScores:
    """What became of the predictions of one rule; one entry of each list for each prediction.

    Attributes:
        week: when it was made, from 0.
        size: class of the job's GPUs, as of ``size_class``.
        age: index in ``AGES_S``.
        left_s: how long the job ran on.
        q90_s: as was predicted.
        expected_s: as was predicted.
        unknown: predictions asked for and not made.
    """

    week: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    age: list[int] = field(default_factory=list)
    left_s: list[float] = field(default_factory=list)
    q90_s: list[float] = field(default_factory=list)
    expected_s: list[float] = field(default_factory=list)
    unknown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationTask:
    """A trace under one rule."""

    trace: Trace
    rule: str
    days: float
    most_jobs: int

    def __call__(self, progress: Progress) -> DurationScores:
        trace, model, found = self.trace, DurationModel(), DurationScores()
        unknown = 0
        begin_s = min(trace.submit_s)
        rows = trace.in_order()[: self.most_jobs]
        events = [(float(trace.submit_s[row]), _BEGINS, row, 0) for row in rows]
        heapify(events)
        while events:
            now_s, kind, row, age = heappop(events)
            model.advance(now_s)
            if kind == _ENDS:
                model.ended(row, now_s)
                continue
            if kind == _BEGINS:
                progress(row / len(trace))
                model.started(row, self._family(row), trace.gpus[row], now_s)
                for event in _due(now_s, trace.duration_s[row], row):
                    heappush(events, event)
            predicted = model.remaining_of(row, now_s)
            if predicted is None:
                unknown += 1
                continue
            found.week.append(int((now_s - begin_s) / _DAY_S / self.days))
            found.size.append(size_class(trace.gpus[row]))
            found.age.append(age)
            found.left_s.append(trace.duration_s[row] - AGES_S[age])
            found.q90_s.append(predicted.q90_s)
            found.expected_s.append(predicted.expected_s)
        return replace(found, unknown=unknown)

    def _family(self, row: int) -> Family:
        if self.rule != RULES[0]:
            return (TenantName(""), "", "")
        trace = self.trace
        return (TenantName(trace.pools[trace.pool[row]].name), trace.user[row], "")


def _due(begin_s: float, duration_s: float, row: int) -> Iterator[tuple[float, int, int, int]]:
    for age in range(1, len(AGES_S)):
        if duration_s > AGES_S[age]:
            yield begin_s + AGES_S[age], _COMES_OF_AGE, row, age
    yield begin_s + duration_s, _ENDS, row, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationsExperiment:
    """Parameters.

    Attributes:
        trace: whose jobs are predicted; None: SIA's synthetic workload, which has no users.
        days: that a row of the table covers.
        most_jobs: of the trace, the first that were submitted.
    """

    trace: Trace | None = None
    days: float = bounded(7.0, 0.01, 3650.0)
    most_jobs: int = bounded(10_000_000, 1, 10_000_000)

    def runs(self, seed: int) -> list[SimRun[DurationScores]]:
        trace = self.trace if self.trace is not None else sia_workload(_MADE_UP).generate(seed)
        return [
            SimRun(
                name=rule,
                task=DurationTask(trace=trace, rule=rule, days=self.days, most_jobs=self.most_jobs),
                returns=DurationScores,
            )
            for rule in RULES
        ]

    def result(self, found: Sequence[DurationScores]) -> ExperimentResult:
        tables = (
            DataTable(
                name="by-week-and-size",
                title=f"predictions at the start of jobs, by {self.days:g} days and GPUs",
                columns=("from_day", "gpus", *_COLUMNS),
                rows=tuple(self._by_week(found)),
                about=_ABOUT,
            ),
            DataTable(
                name="by-age",
                title="predictions by how long jobs had run",
                columns=("had_run", "rule", *_COLUMNS[: len(_FIGURES)]),
                rows=tuple(_by_age(found)),
                about=_ABOUT,
            ),
        )
        return ExperimentResult(
            title="how well run times are predicted from runs before",
            parameters=parameters_of(self),
            tables=tables,
            notes=(
                *_NOTES,
                *(
                    f"{rule}: {scores.unknown} predictions were not made, as nothing was known "
                    "of the size."
                    for rule, scores in zip(RULES, found, strict=True)
                ),
            ),
        )

    def _by_week(self, found: Sequence[DurationScores]) -> Iterator[tuple[Cell, ...]]:
        ours, by_size = found
        starts = [k for k, age in enumerate(ours.age) if age == 0]
        weeks: list[int | None] = [*sorted({ours.week[k] for k in starts}), None]
        sizes: list[int | None] = [*sorted({ours.size[k] for k in starts}), None]
        for week in weeks:
            for size in sizes:
                figures = _figures(ours, week, size, 0)
                if figures is not None:
                    day: Cell = _ALL if week is None else week * self.days
                    gpus = _ALL if size is None else _gpus_of(size)
                    others = _figures(by_size, week, size, 0)
                    yield day, gpus, *figures, *(others[1:4] if others else (None,) * 3)


_FIGURES: Final = ("predictions", "coverage_frac", "mean_q90_h", "score_h", "mean_error_h")
_COLUMNS: Final = (
    *_FIGURES,
    "coverage_frac_by_size",
    "mean_q90_h_by_size",
    "score_h_by_size",
)
_ABOUT: Final = (
    "coverage_frac: jobs that were over by the predicted 90 % quantile. score_h: interval score, "
    "smaller is better. mean_error_h: expected less true run time. …_by_size: of the rule that "
    "knows sizes alone."
)
_NOTES: Final = (
    "Each job starts as it is submitted. Names of jobs are not in the trace, so the most specific "
    "kind is that of user, pool and size.",
)


def _by_age(found: Sequence[DurationScores]) -> Iterator[tuple[Cell, ...]]:
    for age, age_s in enumerate(AGES_S):
        for rule, scores in zip(RULES, found, strict=True):
            figures = _figures(scores, None, None, age)
            if figures is not None:
                yield _UNITS[age_s], rule, *figures


def _figures(
    scores: DurationScores, week: int | None, size: int | None, age: int
) -> tuple[int, float, float, float, float] | None:
    rows = [
        k
        for k, of_age in enumerate(scores.age)
        if of_age == age
        and (week is None or scores.week[k] == week)
        and (size is None or scores.size[k] == size)
    ]
    if not rows:
        return None
    left_s, q90_s = scores.left_s, scores.q90_s
    return (
        len(rows),
        mean(left_s[k] <= q90_s[k] for k in rows),
        mean(q90_s[k] for k in rows) / _HOUR_S,
        mean(_interval_score(q90_s[k], left_s[k]) for k in rows) / _HOUR_S,
        mean(scores.expected_s[k] - left_s[k] for k in rows) / _HOUR_S,
    )


def _interval_score(upper_s: float, true_s: float) -> float:
    return upper_s + max(0.0, true_s - upper_s) / (1.0 - QUANTILE)


def _gpus_of(size: int) -> str:
    if size <= 2:
        return str(size)
    return f"{2 ** (size - 2) + 1}-{2 ** (size - 1)}"
