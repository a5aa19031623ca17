"""What the daemon's log tells of jobs on three generations of Slurm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, traced, within

pytestmark = pytest.mark.slurm
ONE_GPU = ("-N1", "--gres=gpu:1", "-t2")


@pytest.fixture
def fleet(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(Running(tmp_path, pass_interval_s=5.0))


def told_of(running: Running, id_: int) -> list[dict[str, Any]]:
    """The lines about one workload."""
    lines = [json.loads(line) for line in running.log().split("\n")[:-1]]  # the last may be in part
    return [line for line in lines if line.get("workload") == id_]


@pytest.mark.parametrize("site", [site.name for site in layout.SITES])
def test_a_job_is_told_from_submission_to_end(fleet: Running, site: str) -> None:
    with fleet.first_is(site):
        good = fleet.submit(traced(1), *ONE_GPU)
        bad = fleet.submit("#!/bin/sh\nexit 3\n", *ONE_GPU)
        (row, failed) = fleet.await_end(good, bad)
        cancelled = fleet.submit(traced(300), *ONE_GPU)
        fleet.await_state(cancelled, "RUNNING")
        assert fleet.run("fscancel", "--user=vision1", str(cancelled)).returncode == 0
        fleet.await_end(cancelled)
    life = ["submitted", "awarded", "launch_accepted", "started", "ended"]
    within(10, lambda: [line["event"] for line in told_of(fleet, good)] == life)
    assert {line["site"] for line in told_of(fleet, good)[1:]} == {site}
    *_, started, ended = told_of(fleet, good)
    assert started["job_id"] == ended["job_id"] == row["site_job_id"]
    assert (ended["state"], ended["exit_code"], ended["user"]) == ("COMPLETED", 0, "vision1")
    *_, ended = told_of(fleet, bad)
    assert (ended["state"], ended["exit_code"]) == ("FAILED", failed["exit_code"])
    assert failed["exit_code"] == 3
    whole = [*life[:-1], "cancel_asked", "ended"]  # whose end is seen before it is in the log
    within(10, lambda: [line["event"] for line in told_of(fleet, cancelled)] == whole)
    assert told_of(fleet, cancelled)[-1]["state"] == "CANCELLED"
