"""What a site knows of the last checkpoints of jobs that may be evicted, on three generations."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
SAVES_ONCE = """#!/bin/sh
mkdir -p "$FED_CHECKPOINT_DIR/.fed" && : >"$FED_CHECKPOINT_DIR/.fed/checkpointed"
sleep 600
"""


@pytest.fixture
def evicting(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(
        Running(
            tmp_path,
            tenants={"bio": {"quota": {"gpus": 0}}},
            pass_interval_s=5.0,
            preemption={"budget_frac": 1.0},
        )
    )


def job_at(running: Running, site: str, id_: int) -> dict[str, Any]:
    """A running workload, as its site bids on it."""
    told = running.run("federator", "snapshot", site, "--json")
    assert told.returncode == 0, told.stderr
    (job,) = [job for job in json.loads(told.stdout)["running"] if job["id"] == id_]
    return dict(job)


@pytest.mark.parametrize("site", SITES)
def test_the_last_checkpoint_of_a_job_that_may_be_evicted_is_known_to_its_site(
    evicting: Running, site: str
) -> None:
    began_s = time.time()
    with evicting.only_room_at(site):
        id_ = evicting.submit(SAVES_ONCE, "--gres=gpu:1", "-t20", user="bio1")
        assert evicting.await_state(id_, "RUNNING")["site"] == site
        # So each site is asked, and told who may be evicted.
        evicting.submit("#!/bin/sh\ntrue\n", "-N8", "--gres=gpu:8", "-t20", user="bio1")
        within(60, lambda: job_at(evicting, site, id_)["preemptible"])
        within(60, lambda: job_at(evicting, site, id_)["saved_at_s"] >= began_s - 5)
