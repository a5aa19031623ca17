"""Policies are found by name; a name that is none is told what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from federator.errors import InvalidRequest
from federator.policies import POLICIES
from federator.sim.baselines.fifo import FifoReplay
from federator.sim.federation_replay import FederationReplay
from federator.sim.registry import (
    BASELINES,
    DEFAULT_POLICY,
    NAMES_ONCE,
    TRACE_POLICIES,
    remarks,
    trace_policy,
)
from tests.fakes.traces import pool, replay, starts, trace


@pytest.mark.parametrize("name", TRACE_POLICIES)
def test_every_name_is_a_policy_that_ends_every_job(name: str) -> None:
    jobs = trace("a 0 2 1\nb 0 2 1\nc 7 2 1", pool("ant", 1))
    assert max(replay(jobs, name).end_s) == 9


@pytest.mark.parametrize("name", TRACE_POLICIES)
def test_a_trace_without_jobs_is_replayed(name: str) -> None:
    assert replay(trace("", pool("ant", 1)), name).end_s == []


def test_an_unknown_name_is_told_what_there_is() -> None:
    assert DEFAULT_POLICY in TRACE_POLICIES
    with pytest.raises(
        InvalidRequest, match="'best' is unknown; expected one of mast, global-fifo"
    ):
        trace_policy("best")


def test_every_policy_of_the_daemon_can_be_simulated_by_its_name_and_no_baseline_has_one() -> None:
    for name in POLICIES:
        assert trace_policy(name) == FederationReplay(policy=name)
    assert not POLICIES.keys() & (BASELINES.keys() | NAMES_ONCE.keys())


def test_the_daemons_fifo_is_not_the_strict_queue_of_each_pool() -> None:
    jobs = trace("a 0 9 1\nb 1 9 2\nc 2 3 1", pool("ant", 1, 2))
    assert starts(jobs, "pool-fifo") == {"a": 0, "b": 9, "c": 18}
    assert starts(jobs, "fifo") == starts(jobs, "pool-fifo")
    assert starts(jobs, "global-fifo") == {"a": 0, "b": 9, "c": 2}


def test_what_credit_is_made_of_has_no_effect_on_a_policy_without_credit() -> None:
    changes = {"fair_share": 3.0}
    assert "does not rank by credit" in remarks(trace_policy("global-fifo", changes), changes)[0]
    assert remarks(trace_policy("mast", changes), changes) == []


def test_old_names_of_baselines_are_taken_and_not_listed() -> None:
    assert trace_policy("fifo-count") == FifoReplay(placed=False)
    assert not NAMES_ONCE.keys() & TRACE_POLICIES.keys()
    assert set(NAMES_ONCE.values()) <= BASELINES.keys()


def test_the_documents_table_has_each_baseline_once_and_nothing_that_is_not_there() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text(encoding="utf-8")
    table = page.split("\n## Policies\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\|((?: `[^`]+`)+) \|", table, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(set(names)) == len(names)
    assert set(BASELINES) <= set(names) <= set(TRACE_POLICIES)
