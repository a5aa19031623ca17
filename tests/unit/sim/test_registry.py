"""Policies are found by name; a name that is none is told what there is."""

from __future__ import annotations

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
