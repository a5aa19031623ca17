"""How often forecasts of arrivals are right, on a trace small enough to count by hand."""

from __future__ import annotations

import pytest

from federator.errors import InvalidRequest
from federator.planner.history import FEATURES
from federator.sim.experiments.base import run_here
from federator.sim.experiments.forecasts import (
    FEATURE_SETS,
    LATELY,
    ForecastsExperiment,
    ForecastTask,
    grouped,
    lived,
)
from federator.sim.trace import Trace, TracePool
from tests.fakes.traces import trace

pytestmark = pytest.mark.slow
pytest.importorskip("xgboost")

DAY_S = 86_400
ANT = TracePool(name="ant", nodes=1, gpus_per_node=4)
BEE = TracePool(name="bee", nodes=1, gpus_per_node=4)


def hourly(days: int) -> Trace:
    """A job of ant at each full hour, for a minute; one of bee, for two hours, at the end."""
    rows = [f"a{k} {3600 * k} 60 1 ant" for k in range(24 * days)]
    return trace("\n".join([*rows, f"b {days * DAY_S} 7200 1 bee"]), ANT, BEE)


def test_pools_are_grouped_by_how_long_their_jobs_run() -> None:
    assert grouped(hourly(1)) == {"all": [0, 1], "to 5 min": [0], "60 to 720 min": [1]}


def test_what_happened_is_told_step_by_step_and_nothing_after_the_last_submission() -> None:
    history = lived(hourly(2))
    assert history.steps == 2 * DAY_S // 300 + 1
    assert history.any_came(0, 1, 12)[:, 0].tolist() == [False] * 11 + [True]
    assert max(FEATURE_SETS.values()) == FEATURES


def test_trees_learn_a_rhythm_that_the_plain_rule_does_not_know() -> None:
    counts = ForecastTask(trace=hourly(6), window=0, learn_days=4.0)(lambda _: None)
    by_set = {(features, group): rest for features, group, *rest in counts.rows}
    _, asked, came, said, hits = by_set["periodic only", "to 5 min"]
    assert (asked, came) == (2 * DAY_S // 300, 47)
    assert (said, hits) == (48, 47)  # an hour ago tells all; at the last full hour none comes
    assert by_set[LATELY, "to 5 min"][4] == 0  # five minutes ago there was none


def test_days_that_leave_nothing_to_judge_are_refused() -> None:
    for days in (1.0, 0.3):
        with pytest.raises(InvalidRequest, match="learn_days: expected more than the longest"):
            ForecastTask(trace=hourly(1), window=2, learn_days=days)(lambda _: None)


def test_a_trace_without_jobs_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="--trace: expected jobs, found none"):
        ForecastsExperiment(trace=trace("", ANT)).runs(0)


def test_the_table_has_all_windows_and_feature_sets() -> None:
    result = run_here(ForecastsExperiment(trace=hourly(4), learn_days=2.0), 0)
    table, pools = result.tables
    assert [row[1] for row in pools.rows] == ["ant", "bee"] * 3
    ant = dict(zip(pools.columns, pools.rows[0], strict=True))
    # The one job of bee is the last of all, and nothing foretold it.
    assert (ant["recall"], ant["hours_foreseen_frac"], ant["hours_missed_frac"]) == (1, 1, 0)
    assert pools.rows[1][4:] == (0, 1, 0, 1)
    assert {row[0] for row in table.rows} == {5, 60, 720}
    assert {row[2] for row in table.rows} == {LATELY, *FEATURE_SETS}
