"""How estimated starts are judged, on a trace small enough to work by hand."""

from __future__ import annotations

import pytest

from federator.sched.starts.calibration import Wait
from federator.sim.experiments.base import ExperimentResult, run_here
from federator.sim.experiments.starts import GivenStart, StartsExperiment, bursts
from tests.fakes.traces import pool, trace

pytestmark = pytest.mark.slow

RUN_S = 900
GIVEN = GivenStart(0.0, 0, (), True, 0.0, 1.0, 2.0, Wait(0.0, 1.0, 2.0), 1.0, 1.0)


@pytest.fixture(scope="module")
def found() -> ExperimentResult:
    """One node, and two jobs of it every hour: the second waits for the end of the first."""
    lines = "\n".join(f"{k} {k // 2 * 3600} {RUN_S} 8 ant" for k in range(200))
    return run_here(StartsExperiment(trace=trace(lines, pool("ant", 8))), 0)


def row_of(found: ExperimentResult, name: str, *begin: object) -> dict[str, object]:
    table = found.table(name)
    (row,) = (row for row in table.rows if row[: len(begin)] == begin)
    return dict(zip(table.columns, row, strict=True))


def test_half_start_at_once_and_half_are_estimated(found: ExperimentResult) -> None:
    row = row_of(found, "all-jobs", 1.0, "all")
    assert (row["jobs"], row["at_once_frac"]) == (200, 0.5)
    assert row_of(found, "by-week-and-class", 1.0, "all", "all")["estimates"] == 100


def test_a_steady_queue_is_estimated_well_and_better_than_by_limits(
    found: ExperimentResult,
) -> None:
    row = row_of(found, "by-week-and-class", 1.0, "all", "all")
    assert row["median_wait_min"] == 15
    error, by_limits = row["median_error_min"], row["median_error_by_limits_min"]
    assert isinstance(error, float)
    assert error < 2
    assert by_limits == 45  # the least limit that is twice 15 minutes is an hour
    coverage = row["coverage_frac"]
    assert isinstance(coverage, float)
    assert coverage > 0.85


def test_estimates_that_are_given_together_are_one_burst(found: ExperimentResult) -> None:
    row = row_of(found, "by-week-and-class", 1.0, "all", "all")
    assert row["bursts"] == row["shown"]  # one an hour
    at_once = [GIVEN._replace(day=k / 86_400.0) for k in (0.0, 30.0, 90.0, 700.0, 1299.0)]
    assert (bursts([]), bursts([GIVEN]), bursts(at_once)) == (0, 1, 2)
