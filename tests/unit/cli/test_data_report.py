"""``federator data report``: where jobs could run and ran, and how many away from their data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from federator.cli import data, data_report
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ErrorReply
from federator.wire.data_rows import DataReportReply, NearnessRow
from federator.wire.replies import Reply

FOUND = DataReportReply(
    candidates={0: 1, 1: 3, 4: 4, 7: 2},
    ran_in={1: 9, 2: 1},
    kinds_ran_in={1: 2, 2: 2},
    starts={
        "there": NearnessRow(workloads=9, gpus=7999, gpu_h=999.0),
        "staged": NearnessRow(workloads=1, gpus=1, gpu_h=1.0),
    },
    now_s=1000.0,
)


def run(monkeypatch: pytest.MonkeyPatch, reply: Reply, *words: str) -> str:
    monkeypatch.setattr(data_report, "call", lambda _call: reply)
    found = CliRunner().invoke(data.data, ["report", *words], catch_exceptions=False)
    assert found.exit_code == 0
    return found.output


def test_regions_are_told_with_their_part_and_what_was_not_collocated_with_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(monkeypatch, FOUND).splitlines() == [
        "Candidate regions of jobs that wait: none: 1 (10 %), 1: 3 (30 %), 4 or more: 6 (60 %)",
        "Regions in which a job ran:          1: 9 (90 %), 2: 1 (10 %)",
        "Regions in which its like ran:       1: 2 (50 %), 2: 2 (50 %)",
        "Not collocated: 1 of 10 jobs, 0.0125 % of GPUs, 0.1 % of GPU hours; within 0.1 %",
    ]


@pytest.mark.parametrize(
    ("starts", "end"),
    [
        ({}, "no job with data sets has run"),
        ({"there": NearnessRow(workloads=3)}, "0 of 3 jobs, 0 % of jobs; within 0.1 %"),
        (
            {
                "there": NearnessRow(workloads=3, gpus=24),
                "staged": NearnessRow(workloads=1, gpus=8, gpu_h=2.0),
            },
            "1 of 4 jobs, 25 % of GPUs, 100 % of GPU hours; not within 0.1 %",
        ),
    ],
)
def test_few_jobs_are_told_as_they_are(
    monkeypatch: pytest.MonkeyPatch, starts: dict[str, Any], end: str
) -> None:
    empty = DataReportReply(candidates={}, ran_in={}, kinds_ran_in={}, starts=starts, now_s=0.0)
    lines = run(monkeypatch, empty).splitlines()
    assert lines[0].endswith(": no job")
    assert lines[-1] == f"Not collocated: {end}"


def test_the_same_is_to_be_had_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(monkeypatch, FOUND, "--json"))
    assert found["schema"] == 1
    assert found["candidates"] == {"0": 1, "1": 3, "4": 4, "7": 2}
    assert found["not_collocated_frac"] == pytest.approx(1 / 8000)
    assert found["starts"]["staged"]["gpu_h"] == 1.0


def test_whoever_may_not_see_it_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="ask an operator"):
        run(monkeypatch, ErrorReply(message="ada may not see it; ask an operator"))
