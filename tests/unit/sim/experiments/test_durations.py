"""How predictions of run times are judged, on traces small enough to work by hand, and on Venus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from federator.sim.experiments.base import DataTable, ExperimentResult, run_here
from federator.sim.experiments.durations import DurationsExperiment
from federator.sim.importers.trace_csv import read_pools, read_trace
from federator.sim.trace import Trace
from tests.fakes.traces import pool, trace

pytestmark = pytest.mark.slow

BESIDE = Path(__file__).resolve().parents[5] / "shared" / "traces"
TRACES = Path(os.environ.get("FEDERATOR_TRACES", BESIDE))
VENUS = TRACES / "helios-venus-sept2020.csv.gz"

DAY_S = 86_400


def predicted(jobs: Trace | None, **parameters: float) -> ExperimentResult:
    return run_here(DurationsExperiment(trace=jobs, **parameters), 0)  # type: ignore[arg-type]


def row_of(table: DataTable, *begin: object) -> dict[str, object]:
    (row,) = (row for row in table.rows if row[: len(begin)] == begin)
    return dict(zip(table.columns, row, strict=True))


def alike(count: int, duration_s: int, gpus: int = 1) -> Trace:
    lines = "\n".join(f"{k} {k * DAY_S} {duration_s} {gpus} ant" for k in range(count))
    return trace(lines, pool("ant", gpus))


def test_without_a_trace_jobs_are_made_up() -> None:
    found = row_of(predicted(None, most_jobs=50).table("by-week-and-size"), "all", "all")
    assert found["coverage_frac"] == found["coverage_frac_by_size"]  # they have no users


def test_jobs_that_are_all_alike_are_predicted_well() -> None:
    result = predicted(alike(15, 7200), days=7.0)
    table = result.table("by-week-and-size")
    found = row_of(table, "all", "all")
    assert found["predictions"] == 14  # of the first nothing was known
    assert found["coverage_frac"] == found["coverage_frac_by_size"] == 13 / 14  # nine of ten
    assert found["score_h"] == found["score_h_by_size"] == pytest.approx(2.0, rel=0.2)
    assert found["mean_q90_h"] == pytest.approx(2.0, rel=0.2)
    assert found["mean_error_h"] == pytest.approx(0.0, abs=0.1)
    assert [row[:3] for row in table.rows] == [
        (0.0, "1", 6),
        (0.0, "all", 6),
        (7.0, "1", 7),
        (7.0, "all", 7),
        (14.0, "1", 1),
        (14.0, "all", 1),
        ("all", "1", 14),
        ("all", "all", 14),
    ]


def test_what_a_run_takes_beyond_its_quantile_counts_tenfold() -> None:
    lines = "a 0 3600 1 ant\nb 10000 36000 1 ant"
    found = row_of(predicted(trace(lines, pool("ant", 1))).table("by-week-and-size"), "all", "all")
    upper_h = found["mean_q90_h"]
    assert isinstance(upper_h, float)
    assert found["coverage_frac"] == 0.0
    assert found["score_h"] == pytest.approx(upper_h + 10 * (10.0 - upper_h))


def test_a_run_is_predicted_again_when_it_has_run_for_a_while() -> None:
    table = predicted(alike(9, 7200)).table("by-age")
    ages = [row[0] for row in table.rows if row[1] == "user and pool"]
    assert ages == ["start", "10 min", "1 h"]  # and is over before 6 h
    assert row_of(table, "1 h", "user and pool")["mean_q90_h"] == pytest.approx(1.0, rel=0.3)


def test_only_the_first_jobs_may_be_looked_at() -> None:
    table = predicted(alike(15, 7200), most_jobs=5).table("by-week-and-size")
    assert row_of(table, "all", "all")["predictions"] == 4


@pytest.mark.skipif(
    not VENUS.exists(), reason="no Venus trace in ../shared/traces; set FEDERATOR_TRACES"
)
def test_nine_of_ten_jobs_of_venus_are_over_by_their_quantile() -> None:
    jobs = read_trace(VENUS, read_pools(TRACES / "helios-venus-sept2020.pools.csv"))
    result = predicted(jobs)
    weeks = result.table("by-week-and-size")
    for row in weeks.rows:
        cells = dict(zip(weeks.columns, row, strict=True))
        if cells["gpus"] == "all":
            assert 0.87 <= float(cells["coverage_frac"] or 0) <= 0.93
    for row in result.table("by-age").rows:
        assert 0.87 <= float(row[3]) <= 0.93  # type: ignore[arg-type]
    found = row_of(weeks, "all", "all")
    assert float(found["score_h"]) < float(found["score_h_by_size"])  # type: ignore[arg-type]
