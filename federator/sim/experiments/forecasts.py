"""``forecasts``: measures how often forecasts of arrivals are right, on weeks they did not see.

Each pool of a trace lives alone, in strict order of submission. At every step of 5 minutes and for
each pool it is asked whether any job will come within a window. Boosted trees learn from the first
``learn_days`` and answer for the steps after them. They are given more of what SIA has them know
from one feature set to the next; ``lately`` is the plain rule: jobs come if jobs came.

Source:
    SIA sec. 5.4.1 (Table 10) and appendix B: precision, recall and F by window and feature set, and
    of groups of pools by the mean run time of their jobs (Tables 20 and 23); recall of each pool
    (Figure 22), and of each hour in which jobs came to it (Figure 21). It learnt from five
    months of Helios and judged by a sixth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from federator.errors import InvalidRequest
from federator.planner.anticipation import WINDOWS_S
from federator.planner.boosted import trained, xgboost
from federator.planner.forecast import SimilarJobs
from federator.planner.history import STEP_S, PoolHistory
from federator.sim.experiments.base import (
    Cell,
    DataTable,
    ExperimentResult,
    bounded,
    mean,
    parameters_of,
)
from federator.sim.generate.sia import sia_workload
from federator.sim.registry import trace_policy
from federator.sim.runs.base import Progress, SimRun
from federator.sim.trace import ReplayOptions, Trace

_DAY_S: Final = 86_400
_MADE_UP: Final = "base"
FEATURE_SETS: Final = {
    "periodic only": 6,
    "+ recent arrivals": 9,
    "+ recent completions": 12,
    "+ future completions": 14,
}
"""How many of the first columns of ``PoolHistory.features`` each has."""
LATELY: Final = "lately"
GROUPS_MIN: Final = (5.0, 60.0, 720.0)
"""Bounds of the mean run time of a pool's jobs, in minutes."""
STEPS_AN_HOUR: Final = 3600 // STEP_S
_ALL: Final = "all"
_ENDS, _STARTS, _COMES = range(3)

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCounts:
    """How answers and truth went together.

    Attributes:
        rows: feature set, group, pools, asked, came, said, and both said and came.
        pools: with all features, of each pool: asked, came, said, both; then the hours in which any
            job came, those of which all was foreseen, and those of which nothing was.
    """

    rows: list[tuple[str, str, int, int, int, int, int]]
    pools: list[tuple[str, int, int, int, int, int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTask:
    """A trace, one window.

    Attributes:
        trace: whose pools.
        window: index in ``WINDOWS_S``.
        learn_days: from the first job on, that the trees learn from.
    """

    trace: Trace
    window: int
    learn_days: float

    def __call__(self, _: Progress) -> ForecastCounts:
        history = lived(self.trace)
        length = history.windows[self.window]
        learnt = int(self.learn_days * _DAY_S) // history.step_s
        last = history.steps - length
        if not 1 <= learnt - length < learnt < last:
            raise InvalidRequest(
                "--set: learn_days: expected more than the longest window, and as much of the "
                f"trace after it; the trace has {history.steps * history.step_s / _DAY_S:.1f} days"
            )
        seen = history.features(self.window, 1, learnt - length)
        came = history.any_came(self.window, 1, learnt - length).reshape(-1)
        asked = history.features(self.window, learnt + 1, last)
        truth = history.any_came(self.window, learnt + 1, last)
        said = {LATELY: history.any_came(self.window, learnt + 1 - length, last - length)}
        for name, columns in FEATURE_SETS.items():
            if came.all() or not came.any():
                said[name] = np.full(truth.shape, came.all())
                continue
            model = trained(seen[:, :, :columns].reshape(-1, columns), came)
            chances = model.inplace_predict(asked[:, :, :columns].reshape(-1, columns))
            said[name] = (chances > 0.5).reshape(truth.shape)
        groups, best = grouped(self.trace), said[list(FEATURE_SETS)[-1]]
        return ForecastCounts(
            rows=[
                (name, group, len(pools), *_counted(answers[:, pools], truth[:, pools]))
                for name, answers in said.items()
                for group, pools in groups.items()
            ],
            pools=[
                (own.name, *_counted(best[:, k], truth[:, k]), *_hours(best[:, k], truth[:, k]))
                for k, own in enumerate(self.trace.pools)
            ],
        )


def _counted(said: Flags, truth: Flags) -> tuple[int, int, int, int]:
    return int(truth.size), int(truth.sum()), int(said.sum()), int((said & truth).sum())


def _hours(said: Flags, truth: Flags) -> tuple[int, int, int]:
    """Hours of one pool after whose questions jobs came; all of these foreseen; none of them."""
    hours = len(truth) // STEPS_AN_HOUR
    came = truth[: hours * STEPS_AN_HOUR].reshape(hours, -1)
    hits = came & said[: hours * STEPS_AN_HOUR].reshape(hours, -1)
    some = came.any(axis=1)
    foreseen = hits.sum(axis=1) == came.sum(axis=1)
    return int(some.sum()), int((some & foreseen).sum()), int((some & ~hits.any(axis=1)).sum())


def lived(trace: Trace) -> PoolHistory:
    """All that comes, starts and ends in the pools of a trace, each alone in strict order."""
    table = trace_policy("pool-fifo-count").replay(trace, ReplayOptions())
    begin_s = min(trace.submit_s)
    history, similar = PoolHistory(len(trace.pools), WINDOWS_S, begin_s), SimilarJobs()
    events = [(at_s, _COMES, row) for row, at_s in enumerate(trace.submit_s)]
    events += [(at_s, _STARTS, row) for row, at_s in enumerate(table.start_s)]
    events += [(at_s, _ENDS, row) for row, at_s in enumerate(table.end_s)]
    events.sort(key=lambda event: (event[0], (0, 2, 1)[event[1]], event[2]))
    until_s = max(trace.submit_s)
    expected_s: dict[int, float] = {}
    for at_s, kind, row in events:
        if at_s > until_s:
            break
        history.close(at_s - 1)
        job = trace.user[row], trace.pool[row], trace.gpus[row]
        if kind == _COMES:
            history.arrived(job[1], job[2])
            expected_s[row] = similar.expect_s(*job)
        elif kind == _STARTS:
            history.started(row, job[1], at_s + expected_s[row])
        else:
            history.ended(row)
            similar.ended(*job, trace.duration_s[row])
    history.close(until_s)
    return history


def grouped(trace: Trace) -> dict[str, list[int]]:
    """Pools by the mean run time of their jobs, and all; groups without a pool are left out."""
    runs_min: list[list[float]] = [[] for _ in trace.pools]
    for pool, duration_s in zip(trace.pool, trace.duration_s, strict=True):
        runs_min[pool].append(duration_s / 60)
    groups: dict[str, list[int]] = {_ALL: list(range(len(trace.pools)))}
    bounds_min = (0.0, *GROUPS_MIN)
    names = [f"to {GROUPS_MIN[0]:g} min"]
    names += [f"{a:g} to {b:g} min" for a, b in pairwise(GROUPS_MIN)]
    names.append(f"above {GROUPS_MIN[-1]:g} min")
    for pool, of_pool in enumerate(runs_min):
        if of_pool:
            at = max(k for k, bound in enumerate(bounds_min) if not k or mean(of_pool) > bound)
            groups.setdefault(names[at], []).append(pool)
    return {name: groups[name] for name in (_ALL, *names) if name in groups}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastsExperiment:
    """Parameters.

    Attributes:
        trace: whose arrivals are forecast; None: SIA's synthetic workload.
        learn_days: from the first job on, that the trees learn from; all after it judges them.
    """

    trace: Trace | None = None
    learn_days: float = bounded(21.0, 1.0, 3650.0)

    def runs(self, seed: int) -> list[SimRun[ForecastCounts]]:
        xgboost()  # without it no run has a result
        trace = self.trace if self.trace is not None else sia_workload(_MADE_UP).generate(seed)
        if not len(trace):
            raise InvalidRequest("--trace: expected jobs, found none")
        return [
            SimRun(
                name=f"{length_s // 60} min",
                task=ForecastTask(trace=trace, window=window, learn_days=self.learn_days),
                returns=ForecastCounts,
            )
            for window, length_s in enumerate(WINDOWS_S)
        ]

    def result(self, found: Sequence[ForecastCounts]) -> ExperimentResult:
        table = DataTable(
            name="forecasts",
            title="Will any job come within the window? After the days that were learnt from",
            columns=_COLUMNS,
            rows=tuple(_rows(found)),
            about=_ABOUT,
        )
        return ExperimentResult(
            title="how often are forecasts of arrivals right, on weeks that they did not see?",
            parameters=parameters_of(self),
            tables=(table, _of_pools(found)),
            notes=_NOTES,
        )


def _rows(found: Sequence[ForecastCounts]) -> Iterator[tuple[Cell, ...]]:
    for length_s, counts in zip(WINDOWS_S, found, strict=True):
        for features, group, pools, asked, came, said, hits in counts.rows:
            precision = hits / said if said else None
            recall = hits / came if came else None
            score = 2 * hits / (said + came) if said + came else None
            yield (
                length_s // 60,
                group,
                features,
                pools,
                came / asked if asked else None,
                precision,
                recall,
                score,
            )


def _of_pools(found: Sequence[ForecastCounts]) -> DataTable:
    rows: list[tuple[Cell, ...]] = [
        (
            length_s // 60,
            pool,
            came / asked if asked else None,
            hits / said if said else None,
            hits / came if came else None,
            hours,
            whole / hours if hours else None,
            none / hours if hours else None,
        )
        for length_s, counts in zip(WINDOWS_S, found, strict=True)
        for pool, asked, came, said, hits, hours, whole, none in counts.pools
    ]
    return DataTable(
        name="pools",
        title="The same for each pool, with all features",
        columns=(
            "window_min",
            "pool",
            "came_frac",
            "precision",
            "recall",
            "hours",
            "hours_foreseen_frac",
            "hours_missed_frac",
        ),
        rows=tuple(rows),
        about="hours: after some question of which a job came. foreseen: all of these were "
        "answered by yes; missed: none was.",
    )


_COLUMNS: Final = (
    "window_min",
    "pools_by_mean_run",
    "features",
    "pools",
    "came_frac",
    "precision",
    "recall",
    "f_score",
)
_ABOUT: Final = (
    "came_frac: questions after which a job came. precision: of those answered by yes, the ones "
    "after which a job came; recall: of those after which a job came, the ones answered by yes; "
    "f_score: their harmonic mean. pools_by_mean_run: pools whose jobs ran so long on average."
)
_NOTES: Final = (
    "One model for each window and feature set, over all pools, with xgboost's defaults and the "
    "rarer outcome weighed up. No answer is learnt from whose window reaches into the days that "
    "judge.",
)
