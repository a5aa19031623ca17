"""Policies beside the best timetable, on cases of a few jobs."""

from __future__ import annotations

import pytest

from federator.errors import InvalidRequest
from federator.sim.experiments.base import Cell, ExperimentResult, run_here
from federator.sim.experiments.oracle import (
    ANY_ORDER,
    NONE_SLOWED,
    OracleExperiment,
    OracleTask,
    rounded,
)
from tests.fakes.traces import pool, trace

pytestmark = pytest.mark.slow

# ant's b and bee's d wait alone; shared, c and d fit beside a.
FOUR = trace(
    "a 0 600 2 ant\nb 0 600 2 ant\nc 0 60 1 bee\nd 0 60 1 bee", pool("ant", 2), pool("bee", 1)
)


def found(**parameters: object) -> ExperimentResult:
    few = {"cases": 2, "jobs": 12, "variants": ("fewer-queues",), "load_factors": (2.0,)}
    return run_here(OracleExperiment(**{**few, **parameters}), 3)  # type: ignore[arg-type]


def column(result: ExperimentResult, name: str) -> dict[Cell, Cell]:
    """Of the summary, by policy; one setting."""
    table = result.table("summary")
    return dict(zip(table.column("policy"), table.column(name), strict=True))


def test_a_case_by_hand() -> None:
    task = OracleTask(
        setting="x", case=0, trace=FOUR, policies=("ssf", "maxmin"), limit_s=60.0, seed=0
    )
    case = task(lambda _: None)
    assert (case.jobs, case.alone_s) == (4, 660)
    waits = {one.policy: (one.wait_s, one.bound_s) for one in case.found}
    # c, then d, beside a; b when a ends. Or b first, if all may: no better.
    assert waits == {
        ANY_ORDER: (660, 660),
        NONE_SLOWED: (660, 660),
        "ssf": (660, 660),
        "maxmin": (660, 660),
    }


def test_the_oracle_gains_all_there_is_and_policies_no_more() -> None:
    result = found()
    gains = column(result, "gain_of_best_frac")
    assert gains[ANY_ORDER] == 1
    assert all(gain is None or float(gain) <= 1 for gain in gains.values())
    assert column(result, "gain_of_careful_frac")[NONE_SLOWED] == 1
    assert column(result, "slowed_frac")[NONE_SLOWED] == 0
    assert column(result, "proven")[ANY_ORDER] == 2
    assert column(result, "wait_bound_min")[ANY_ORDER] == column(result, "wait_min")[ANY_ORDER]
    assert column(result, "proven")["mast"] is None
    assert len(result.table("cases").rows) == 2 * len(gains)


def test_what_is_not_proven_is_told() -> None:
    result = found(limit_s=0.0, policies=("ssf",))
    wait, bound = (float(column(result, name)[ANY_ORDER] or 0) for name in _WAIT_AND_BOUND)
    assert 0 <= bound < wait
    assert column(result, "proven")[ANY_ORDER] != 2


_WAIT_AND_BOUND = ("wait_min", "wait_bound_min")


def test_times_are_rounded_to_steps_and_no_job_vanishes() -> None:
    jobs = rounded(trace("a 599 1 1\nb 600 899 1\nc 1300 901 1", pool("ant", 1)), 600)
    assert jobs.submit_s == [0, 600, 1200]
    assert jobs.duration_s == [600, 600, 1200]


def test_a_policy_that_preempts_is_refused() -> None:
    jobs = trace("a 0 6000 1\nb 60 60 1", pool("ant", 1))
    task = OracleTask(setting="x", case=0, trace=jobs, policies=("themis",), limit_s=1.0, seed=0)
    with pytest.raises(InvalidRequest, match="policies: themis stops jobs before their end"):
        task(lambda _: None)
    with pytest.raises(InvalidRequest, match="'best' is unknown"):
        found(policies=("best",))
