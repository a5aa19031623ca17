"""Where no prolog of ours is installed, a script's own start consumes its attempt's lease."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from federator.testbed import layout
from federator.testbed.layout import AGENT_CONFIG, SPOOL_DIR, StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import (
    Running,
    at,
    open_to_all,
    slurm_job,
    starts,
    traced,
    until,
    within,
)

pytestmark = pytest.mark.slurm
GANG = (f"--nodes={layout.GPU_NODES.count}", "--gres=gpu:8", "--time=10")
NODE_JSON = "/etc/federator/node.json"
WITH_GATE = "cedar"  # the others have none; both together must do no harm
TRACED_PYTHON = """#!/usr/bin/python3 -u
import os, pathlib
line = " ".join(os.environ[n] for n in ("FED_JOB_ID", "FED_ATTEMPT", "SLURM_JOB_ID"))
with (pathlib.Path.home() / "starts-of-tests").open("a") as file:
    file.write(line + "\\n")
"""


@pytest.fixture
def wrapped(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """A federation whose sites' scripts consume the leases."""
    kept = {site.name: at(site.name, "cat", NODE_JSON) for site in layout.SITES}
    agents = {name: at(name, "cat", AGENT_CONFIG) for name in kept}
    try:
        for name, text in kept.items():
            wrapper = yaml.safe_load(agents[name]) | {"consume_lease": "wrapper"}
            at(name, "sh", "-c", f"cat >{AGENT_CONFIG}", stdin=yaml.safe_dump(wrapper))
            if name != WITH_GATE:
                settings = json.loads(text)
                settings["gate"]["lease"]["dir"] = None
                at(name, "sh", "-c", f"cat >{NODE_JSON}", stdin=json.dumps(settings))
        yield from lasting(Running(tmp_path))
    finally:
        for name, text in kept.items():
            at(name, "sh", "-c", f"cat >{AGENT_CONFIG}", stdin=agents[name])
            at(name, "sh", "-c", f"cat >{NODE_JSON}", stdin=text)


def duplicate(site: str, job_id: str, comment: str) -> str:
    """The same script, with the same attempt in its comment, submitted once more; its job id."""
    script = at(site, "scontrol", "write", "batch_script", job_id, "-")
    said = at(
        site,
        "sbatch",
        "--parsable",
        "--partition=local",
        f"--comment={comment}",
        "--nodes=1",
        "--output=/tmp/dup-%j.out",
        stdin=script,
        user="vision1",
    )
    return said.strip()


def test_a_duplicate_ends_before_user_code_and_every_script_starts_once(
    wrapped: Running, go: Callable[..., None]
) -> None:
    gangs = [wrapped.submit(traced() + until(), *GANG) for _ in layout.SITES]
    rows = [wrapped.await_state(id_, "RUNNING") for id_ in gangs]
    assert {row["site"] for row in rows} == {site.name for site in layout.SITES}
    within(60, lambda: len(starts(*gangs)) == len(gangs))
    with open_to_all(*(site.name for site in layout.SITES)):  # their rules would see through it
        copies = {
            r["site"]: duplicate(r["site"], str(r["site_job_id"]), f"fed:{r['id']}:1") for r in rows
        }
    for site, copy in copies.items():
        within(60, partial(_has_ended, site, int(copy)))
        if site != WITH_GATE:
            assert slurm_job(site, int(copy))["ExitCode"] == "75:0"
            said = at(site, "cat", f"/tmp/dup-{copy}.out")
            assert "does not start: the attempt has started as job" in said
            assert at(site, "cat", f"{SPOOL_DIR}/leases/{_of(rows, site)}.1.job").startswith(site)
    go()
    others = [
        wrapped.submit(TRACED_PYTHON, "--gres=gpu:1"),
        wrapped.submit(TRACED_PYTHON, "--cpus-per-task=1", "--export=NONE"),
        wrapped.submit(
            "#!/bin/bash\n#SBATCH --gres=gpu:8\n#SBATCH hetjob\n"
            "#SBATCH --gres=gpu:8\n" + traced(0).split("\n", 1)[1]
        ),
    ]
    ended_rows = wrapped.await_end(*gangs, *others, timeout_s=150)
    assert {row["state"] for row in ended_rows} == {"COMPLETED"}
    told = sorted((r["id"], r["attempt"], r["site"], r["site_job_id"]) for r in ended_rows)
    assert starts(*gangs, *others) == told
    for name in copies:
        within(60, partial(_has_no_starts, name))


def _has_ended(site: str, job_id: int) -> bool:
    return slurm_job(site, job_id)["JobState"] in {"FAILED", "CANCELLED"}


def _has_no_starts(site: str) -> bool:
    return not at(site, "find", f"{SPOOL_DIR}/starts", "-type", "f")


def _of(rows: list[dict[str, object]], site: str) -> object:
    return next(row["id"] for row in rows if row["site"] == site)
