"""Policies are found by name; a name that is none is told what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from federator.errors import InvalidRequest
from federator.sim.registry import DEFAULT_POLICY, TRACE_POLICIES, trace_policy
from tests.fakes.traces import pool, replay, trace


@pytest.mark.parametrize("name", TRACE_POLICIES)
def test_every_name_is_a_policy_that_ends_every_job(name: str) -> None:
    jobs = trace("a 0 2 1\nb 0 2 1\nc 7 2 1", pool("ant", 1))
    assert max(replay(jobs, name).end_s) == 9


@pytest.mark.parametrize("name", TRACE_POLICIES)
def test_a_trace_without_jobs_is_replayed(name: str) -> None:
    assert replay(trace("", pool("ant", 1)), name).end_s == []


def test_an_unknown_name_is_told_what_there_is() -> None:
    assert DEFAULT_POLICY in TRACE_POLICIES
    with pytest.raises(InvalidRequest, match="'best' is unknown; expected one of mast, fifo"):
        trace_policy("best")


def test_the_documents_table_has_each_policy_once() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text(encoding="utf-8")
    table = page.split("\n## Policies\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\|((?: `[^`]+`)+) \|", table, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(names) == sorted(TRACE_POLICIES)
