"""Plans made from live snapshots, and what Slurm itself says of them, on three generations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, open_to_all, output_of, traced, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
JOBS = {
    "a gang": {"nodes": 4, "gpus_per_node": 8, "cpus_per_node": 8},
    "more than a rack": {"nodes": 6, "gpus_per_node": 8, "cpus_per_node": 4},
    "part of a node": {"nodes": 1, "gpus_per_node": 3, "cpus_per_node": 3},
    "a total": {"gpus": 20, "cpus_per_node": 1},
    "tensor-parallel groups": {"gpus": 12, "tensor_parallel": 4, "cpus_per_node": 1},
    "memory on each node": {"nodes": 2, "gpus_per_node": 1, "mem_mib_per_node": 2048},
    "capable GPUs": {"nodes": 2, "gpus_per_node": 2, "min_gpu_mem_gib": 80, "nvlink": True},
    "no GPUs": {"nodes": 2, "cpus_per_node": 4},
}
WOULD_START = re.compile(
    r"Job \d+ to start at (\S+)(?: a)? using \d+ processors on (?:nodes )?(\S+)"
)


@pytest.fixture
def fleet(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    enough = {"vision": {"quota": {"gpus": 512}, "limit": {}}}  # rank is by age alone
    yield from lasting(Running(tmp_path, tenants=enough, pass_interval_s=5.0))


def snapshot(running: Running, site: str) -> dict[str, Any]:
    told = running.run("federator", "snapshot", site, "--json")
    assert told.returncode == 0, told.stderr
    return dict(json.loads(told.stdout))


def offline_bid(
    running: Running, taken: dict[str, Any], job: dict[str, Any], **request: Any
) -> dict[str, Any]:
    """What ``federator bid`` says of a snapshot."""
    files = {"s.json": taken, "r.json": {"id": 9, "jobs": [{"name": "train", **job}], **request}}
    for name, content in files.items():
        (running.folder / name).write_text(json.dumps(content))
    told = running.run("federator", "bid", "--snapshot", "s.json", "--request", "r.json", "--json")
    assert told.returncode == 0, told.stderr
    return dict(json.loads(told.stdout))


def accepted(site: str, plan: dict[str, Any]) -> set[str]:
    """The nodes on which this site's own sbatch would start the plan."""
    nodes = plan["nodes"]
    gpus = {share["gpus"] for share in nodes.values()}
    cpus = max(share["cpus"] for share in nodes.values())
    options = [
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        f"-p{plan['partition']}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus}",
        "--wrap=true",
    ]
    if gpus != {0}:
        total = sum(share["gpus"] for share in nodes.values())
        each = f"--gpus-per-node={gpus.pop()}" if len(gpus) == 1 else f"--gpus={total}"
        options.append(each)
    done = inside.execute(layout.site(site), ["sbatch", "--test-only", *options], user="vision1")
    assert done.exit_status == 0, (plan, done.stderr)
    match = WOULD_START.search(done.stderr)
    assert match is not None, done.stderr
    return set(at(site, "scontrol", "show", "hostnames", match[2]).split())


def occupy(site: str, *options: str) -> None:
    """A local job that holds something, and has started."""
    id_ = at(
        site,
        "sbatch",
        "--parsable",
        "-plocal",
        "--output=/dev/null",
        "-n1",
        *options,
        "--wrap=sleep 900",
        user=layout.LOCAL_USER,
    ).strip()
    within(60, lambda: "RUNNING" in at(site, "squeue", "-h", f"-j{id_}", "-o%T"))


@pytest.mark.parametrize("site", SITES)
def test_plans_made_from_a_live_snapshot_are_what_slurm_would_start(
    fleet: Running, site: str
) -> None:
    """With local jobs on a node of each rack, one of them on part of it."""
    occupy(site, f"--nodelist={site}-g2", "--gres=gpu:5", "-t10")
    occupy(site, f"--nodelist={site}-g5", "--gres=gpu:8", "-t10")
    within(60, lambda: sum(n["gpus_alloc"] for n in snapshot(fleet, site)["nodes"]) == 13)
    taken = snapshot(fleet, site)
    with open_to_all(site):
        for what, job in JOBS.items():
            answer = offline_bid(fleet, taken, job)
            assert "bid" in answer, (what, answer)
            (plan,) = answer["bid"]["jobs"]
            assert accepted(site, plan) == set(plan["nodes"]), what


def test_a_snapshot_shows_racks_spine_gpus_and_when_what_runs_will_have_ended(
    fleet: Running,
) -> None:
    ours = fleet.submit(traced(290), "-N1", "--gres=gpu:h100:2", "-t5")
    fleet.await_state(ours, "RUNNING")
    occupy("cedar", "--nodelist=cedar-g7", "--gres=gpu:8", "-t10")

    def both() -> dict[str, Any] | None:
        taken = snapshot(fleet, "cedar")
        return taken if taken["running"] and taken["local"] else None

    taken = within(60, both)
    assert taken is not None
    assert taken["switches"] == {"rack1": "spine", "rack2": "spine"}
    assert {n["gpu_mem_gib"] for n in taken["nodes"] if n["gpus"]} == {80}
    (running,), (local,) = taken["running"], taken["local"]
    assert running["id"] == ours
    assert [share["gpus"] for share in running["nodes"].values()] == [2]
    assert 0 < running["ends_by_s"] - taken["now_s"] <= 5 * 60 + 5
    assert local["nodes"] == ["cedar-g7"]
    assert 5 * 60 < local["ends_by_s"] - taken["now_s"] <= 10 * 60 + 5
    told = fleet.run("federator", "snapshot", "cedar").stdout
    assert "running jobs: 1 of the federation, 1 other" in told
    assert "h100 GPUs: 54 of 64 free; 6 of 8 nodes whole" in told
    unknown = fleet.run("federator", "snapshot", "atlantis")
    assert unknown.returncode != 0
    assert "unknown site 'atlantis'; one of" in unknown.stderr


def test_a_blocked_gang_gets_its_room_and_only_shorter_jobs_run_there_before(
    fleet: Running,
) -> None:
    """cedar alone has h100: one node of its eight is taken for ten minutes, by a local user."""
    occupy("cedar", "--nodelist=cedar-g1", "--gres=gpu:8", "-t10")
    within(60, lambda: sum(n["gpus_alloc"] for n in snapshot(fleet, "cedar")["nodes"]) == 8)
    gang = fleet.submit(traced(1), "-N8", "--gres=gpu:h100:8", "-t1")
    within(60, lambda: fleet.row(gang)["refusals"])
    long = fleet.submit(traced(1700), "-N1", "--gres=gpu:h100:8", "-t30")
    short = fleet.submit(traced(1), "-N1", "--gres=gpu:h100:1", "-t2")
    within(20, lambda: "could start in" in fleet.run("fsqueue", "--why", str(gang)).stdout)
    (row,) = fleet.await_end(short)
    assert row["state"] == "COMPLETED"

    def why() -> tuple[str, str] | None:
        refusal = fleet.row(long)["refusals"].get("cedar")
        return (refusal["reasons"][0]["code"], refusal["reasons"][0]["detail"]) if refusal else None

    within(20, lambda: why() == ("FedReserved", str(gang)))
    at("cedar", "scancel", "--partition=local")  # it ends before its time
    (row,) = fleet.await_end(gang)
    assert row["state"] == "COMPLETED"
    fleet.await_state(long, "RUNNING")
    begun = {row["id"]: row["started_at_s"] for row in fleet.rows(short, gang, long)}
    assert begun[short] < begun[gang] < begun[long]


def test_test_only_shows_each_sites_bid_or_what_it_could_start_instead(fleet: Running) -> None:
    occupy("cedar", "--nodelist=cedar-g1", "--gres=gpu:8", "-t10")
    within(60, lambda: sum(n["gpus_alloc"] for n in snapshot(fleet, "cedar")["nodes"]) == 8)
    script = "#!/bin/sh\ntrue\n"
    options = ("--test-only", "-N8", "--gres=gpu:8", "--fed-gpu-types=h100", "--fed-gpu-mem=40G")
    told = fleet.run("fsbatch", *options, "--uid=vision1", stdin=script)
    assert told.returncode == 0, told.stderr
    assert "cedar" in told.stderr
    assert "needs 8 nodes with 8 GPUs of h100 with 40 GiB; free 7" in told.stderr
    assert "8 more GPUs in" in told.stderr
    assert "would start now: --nodes=7 --gpus-per-node=8" in told.stderr
    assert "no GPUs of that type: h100 with 40 GiB" in told.stderr  # the other sites
    answer = fleet.run("fsbatch", *options, "--json", "--uid=vision1", stdin=script)
    bids = {bid["site"]: bid for bid in json.loads(answer.stdout)["bids"]}
    assert bids["cedar"]["refusal"]["alternatives"][0]["nodes"] == 7


def test_behind_a_job_without_a_time_limit_the_start_is_unknown(fleet: Running) -> None:
    """Slurm's backfill gives a job without a limit one of 365 days; its main scheduler does not."""
    for site in SITES:
        occupy(site, f"--nodelist={site}-g1", "--gres=gpu:8")
        occupy(site, f"--nodelist={site}-g2", "--gres=gpu:8", "-t365-0")
    for site in SITES:
        within(60, partial(_local_ends, fleet, site, 2))
        assert _local_ends(fleet, site, 2) == [None, None]
    script = "#!/bin/sh\ntrue\n"
    said = fleet.run("fsbatch", "--test-only", "-N8", "--gres=gpu:8", "--uid=vision1", stdin=script)
    assert said.returncode == 0, said.stderr
    assert said.stderr.count("start time unknown") == len(SITES)
    assert "days" not in said.stderr
    gang = str(fleet.submit(traced(1), "-N8", "--gres=gpu:8", "-t1"))
    for command in (("fsqueue", "--why", gang), ("federator", "explain", gang)):
        assert "days" not in within(30, partial(_says, fleet, command, "start time unknown"))


def _local_ends(running: Running, site: str, count: int) -> list[float | None]:
    """The ends of the site's own jobs, once that many are seen."""
    ends = [job["ends_by_s"] for job in snapshot(running, site)["local"]]
    return ends if len(ends) == count else []


def _says(running: Running, command: tuple[str, ...], words: str) -> str:
    """What a command prints, once the words are in it."""
    printed = running.run(*command).stdout
    return printed if words in printed else ""


def test_a_job_sees_how_its_gpus_belong_together(fleet: Running) -> None:
    script = "#!/bin/sh\necho $FED_TP $FED_PP $FED_RAILS\nsleep 1\n"
    id_ = fleet.submit(script, "-N2", "--gres=gpu:8", "--fed-tp=8", "--fed-pp=2", "-t1")
    (row,) = fleet.await_end(id_)
    assert row["state"] == "COMPLETED"
    assert output_of(row).split() == ["8", "2", "8"]
