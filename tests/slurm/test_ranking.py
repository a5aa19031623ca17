"""Quota, limit and credit on real clusters: who starts first, who waits, and what is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import LONG_S, Row, Running, at, starts, traced, within

pytestmark = pytest.mark.slurm

TENANTS = {
    "vision": {"quota": {"gpus": 16}, "limit": {"gpus": 24}},
    "nlp": {"quota": {"gpus": 16}},
    "bio": {"quota": {"gpus": 64}},
}
ONE_NODE = ("-N1", "--gres=gpu:8")
WHOLE_SITE = ("-N8", "--gres=gpu:h100:8")


@pytest.fixture
def shares(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(Running(tmp_path, tenants=TENANTS, pass_interval_s=10.0))


def tenant(running: Running, name: str) -> dict[str, Any]:
    told = running.run("federator", "tenants", "--json")
    assert told.returncode == 0, told.stderr
    (row,) = [r for r in json.loads(told.stdout)["tenants"] if r["name"] == name]
    return dict(row)


def rank_of(running: Running, id_: int) -> Row:
    told = running.run("fsqueue", "--why", "--json", "-t", "all", str(id_))
    assert told.returncode == 0, told.stderr
    (row,) = json.loads(told.stdout)["jobs"]
    return dict(row["rank"])


def test_limit_holds_back_quota_decides_the_priority_and_both_survive_a_killed_daemon(
    shares: Running,
) -> None:
    ids = [shares.submit(traced(LONG_S), *ONE_NODE) for _ in range(4)]
    for id_ in ids[:3]:
        shares.await_state(id_, "RUNNING")
    assert [rank_of(shares, id_)["within_quota"] for id_ in ids[:3]] == [True, True, False]
    held = shares.await_state(ids[3], "PENDING")
    within(60, lambda: shares.row(ids[3])["reason"]["code"] == "FedLimit")
    told = shares.run("federator", "explain", str(ids[3]))
    assert (told.returncode, held["attempt"]) == (0, 0)
    assert "needs 8 GPUs, the limit of tenant vision leaves 0" in told.stdout
    before = tenant(shares, "vision")
    assert (before["used"]["gpus"], before["borrowed"]["gpus"]) == (24, 8)
    within(60, lambda: [start[0] for start in starts(*ids)] == ids[:3])

    shares.kill()
    shares.start()
    after = tenant(shares, "vision")
    assert (after["used"], after["borrowed"]) == (before["used"], before["borrowed"])
    assert shares.row(ids[3])["state"] == "PENDING"

    shares.run("fscancel", str(ids[0]))
    shares.await_state(ids[3], "RUNNING")
    within(60, lambda: rank_of(shares, ids[2])["within_quota"])  # no longer borrowed
    assert tenant(shares, "vision")["used"]["gpus"] == 24
    within(60, lambda: [start[0] for start in starts(*ids)] == ids)

    shares.run("fscancel", *map(str, ids))
    shares.await_end(*ids)
    assert tenant(shares, "vision")["used"] == {"gpus": 0, "cpus": 0}


def test_work_within_quota_starts_before_older_work_over_quota(shares: Running) -> None:
    shares.fill("cedar")
    older = shares.submit(traced(1), *WHOLE_SITE, user="nlp1")
    later = shares.submit(traced(1), *WHOLE_SITE, user="bio1")
    within(60, lambda: shares.row(later)["reason"]["code"] == "Resources")
    assert (rank_of(shares, older)["priority"], rank_of(shares, later)["priority"]) == (7, 4)
    assert rank_of(shares, later)["position"] == 1
    told = shares.run("federator", "explain", str(older)).stdout
    assert "over quota" in told
    at("cedar", "scancel", "--partition=local")
    rows = {row["id"]: row for row in shares.await_end(older, later, timeout_s=150)}
    assert {row["state"] for row in rows.values()} == {"COMPLETED"}
    assert rows[later]["started_at_s"] < rows[older]["started_at_s"]


def test_a_user_lowers_a_job_and_the_site_never_hears_of_it(shares: Running) -> None:
    shares.fill("cedar")
    lowered = shares.submit(traced(1), *WHOLE_SITE, "--fed-priority=6", "--nice=50", user="bio1")
    usual = shares.submit(traced(1), *WHOLE_SITE, user="bio1")
    within(60, lambda: shares.row(usual)["reason"]["code"] == "Resources")
    assert rank_of(shares, usual)["priority"] == 4
    refused = shares.run("fsbatch", "--uid=bio1", "--fed-priority=1", stdin="#!/bin/sh\ntrue\n")
    assert (refused.returncode, "can only lower" in refused.stderr) == (1, True)
    at("cedar", "scancel", "--partition=local")
    rows = {row["id"]: row for row in shares.await_end(lowered, usual, timeout_s=150)}
    assert rows[usual]["started_at_s"] < rows[lowered]["started_at_s"]
    assert {row["state"] for row in rows.values()} == {"COMPLETED"}
