"""What the federation promises when sites, agents or the daemon fail, or others are quicker.

Each test has a daemon of its own. Jobs note their starts themselves, so "once" is counted in what
ran, not in what anybody says of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from federator.testbed.layout import NETWORK, SPOOL_DIR, StateDir, site
from tests.slurm.conftest import lasting
from tests.slurm.federation import (
    Running,
    agents,
    at,
    federation_jobs,
    fill,
    slurm_job,
    starts,
    take_all,
    traced,
    until,
    within,
)
from tests.slurm.gate import Gate

pytestmark = pytest.mark.slurm
GANG = ("--gres=gpu:a100:8", "--nodes=2")


def jobs_of(site: str, id_: int) -> list[dict[str, str]]:
    """What Slurm remembers of a workload at a site."""
    return [j for j in federation_jobs(site) if j["Comment"].startswith(f"fed:{id_}:")]


@pytest.mark.parametrize("alone", [11.0], indirect=True)
def test_nodes_taken_as_sbatch_is_called_send_the_job_elsewhere(alone: Running, gate: Gate) -> None:
    """alpine has bid and its agent calls sbatch; before Slurm hears of it, local users are in."""
    gate.close("alpine")
    id_ = alone.submit(traced(2), *GANG)
    within(30, lambda: gate.held("alpine"))
    assert (alone.row(id_)["state"], alone.row(id_)["site"]) == ("AWARDED", "alpine")
    fill("alpine")
    gate.open("alpine")
    row = alone.await_state(id_, "LAUNCHING")
    waits = slurm_job("alpine", row["site_job_id"])
    assert (waits["JobState"], waits["Partition"]) == ("PENDING", "fed")
    assert waits["Reason"] in {"Resources", "Priority", "None"}
    (row,) = alone.await_end(id_, timeout_s=120)
    assert (row["state"], row["site"], row["attempt"]) == ("COMPLETED", "boreal", 2)
    (withdrawn,) = jobs_of("alpine", id_)
    assert withdrawn["JobState"] == "CANCELLED"
    assert starts(id_) == [(id_, 2, "boreal", row["site_job_id"])]


@pytest.fixture
def patient(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """Its passes wait for a bid as long as a link may be silent."""
    yield from lasting(Running(tmp_path, pass_interval_s=10.0, bid_timeout_s=20.0))


def test_nodes_taken_before_the_order_comes_are_seen_by_the_agent(patient: Running) -> None:
    """boreal's agent is stopped, so the pass waits for its bid while alpine's grows old."""
    taken = take_all("alpine", "--hold")
    (stopped,) = agents("boreal")
    at("boreal", "kill", "-STOP", str(stopped))
    try:
        id_ = patient.submit(traced(2), *GANG)
        at("alpine", "scontrol", "release", taken)  # quicker than a submission
        within(40, lambda: "launch_declined" in patient.log())
    finally:
        at("boreal", "kill", "-CONT", str(stopped))
    (declined,) = [line for line in patient.log().splitlines() if "launch_declined" in line]
    assert "node alpine-g1 was taken" in declined
    (row,) = patient.await_end(id_, timeout_s=120)
    assert (row["state"], row["site"], row["attempt"]) == ("COMPLETED", "boreal", 2)
    assert jobs_of("alpine", id_) == []  # sbatch was never called
    assert starts(id_) == [(id_, 2, "boreal", row["site_job_id"])]


def test_daemon_killed_at_work_loses_nothing_and_doubles_nothing(
    alone: Running, gate: Gate, go: Callable[..., None]
) -> None:
    """SIGKILL while jobs run, others are inside sbatch, and others wait for their turn at it."""
    running = [alone.submit(traced() + until(), "--gres=gpu:4") for _ in range(4)]
    for id_ in running:
        alone.await_state(id_, "RUNNING")
    gate.close("alpine", "boreal")
    first = alone.submit(traced(1), "--gres=gpu:a100:1", "--array=0-11")
    launching = list(range(first, first + 12))
    within(60, lambda: {row["state"] for row in alone.rows(*launching)} == {"AWARDED"})
    held = within(30, lambda: {**gate.held("alpine"), **gate.held("boreal")})
    alone.kill()
    alone.spawn()
    within(40, lambda: alone.run("fsqueue").returncode == 0)
    assert {row["state"] for row in alone.rows(*launching)} == {"AWARDED"}
    still = {**gate.held("alpine"), **gate.held("boreal")}
    assert held.items() <= still.items()
    assert starts(*launching) == []
    gate.open("alpine", "boreal")
    go()
    rows = alone.await_end(*running, *launching, timeout_s=150)
    assert {row["state"] for row in rows} == {"COMPLETED"}
    told = [(row["id"], row["attempt"], row["site"], row["site_job_id"]) for row in rows]
    assert starts(*running, *launching) == sorted(told)
    assert len(told) == 16


def test_agent_killed_inside_sbatch_doubles_nothing(alone: Running, gate: Gate) -> None:
    """SIGKILL of the agent. One sbatch outlives it and is found; the other dies with it.

    For the second the new agent cannot know that; it looks until no sbatch can be left
    (``INTENT_HORIZON_S``), and only then submits it anew.
    """
    gate.close("alpine")
    outlives, dies = (alone.submit(traced(1), "--gres=gpu:a100:1") for _ in range(2))
    within(30, lambda: len(gate.held("alpine")) == 2)
    held = gate.held("alpine")
    assert {row["state"] for row in alone.rows(outlives, dies)} == {"AWARDED"}
    (agent,) = agents("alpine")
    at("alpine", "kill", "-KILL", str(agent), str(held[f"fed:{dies}:1"]))
    within(60, lambda: [a for a in agents("alpine") if a != agent] and alone.all_up())
    assert {row["state"] for row in alone.rows(outlives, dies)} == {"AWARDED"}
    gate.open("alpine")
    (first,) = alone.await_end(outlives)
    assert (first["state"], first["attempt"]) == ("COMPLETED", 1)
    assert alone.row(dies)["state"] == "AWARDED"
    (second,) = alone.await_end(dies, timeout_s=120)
    assert second["state"] == "COMPLETED"
    told = [(row["id"], row["attempt"], row["site"], row["site_job_id"]) for row in (first, second)]
    assert starts(outlives, dies) == sorted(told)


def test_agent_cut_off_inside_sbatch_leaves_its_site_within_reach(
    alone: Running, gate: Gate
) -> None:
    """The next agent cancels another job while the sbatch hangs; then it finds that one's job."""
    other = alone.submit(traced() + until(), "--gres=gpu:a100:1")
    assert alone.await_state(other, "RUNNING")["site"] == "alpine"
    gate.close("alpine")
    id_ = alone.submit(traced(1), "--gres=gpu:a100:1")
    held = within(30, lambda: gate.held("alpine"))
    (agent,) = agents("alpine")
    at("alpine", "kill", "-TERM", str(agent))
    alone.run("fscancel", str(other))
    (cancelled,) = alone.await_end(other, timeout_s=30)  # while the gate holds, as is seen below
    assert cancelled["state"] == "CANCELLED"
    assert agent not in agents("alpine")
    assert gate.held("alpine") == held  # nobody has ended it
    assert alone.row(id_)["state"] == "AWARDED"
    gate.open("alpine")
    (row,) = alone.await_end(id_)
    assert (row["state"], row["attempt"]) == ("COMPLETED", 1)
    assert starts(id_) == [(id_, 1, "alpine", row["site_job_id"])]


@pytest.mark.parametrize("cut", ["pause", "network"])
def test_unreachable_site_does_not_stop_the_others(
    alone: Running, go: Callable[..., None], cut: str
) -> None:
    id_ = alone.submit(f"#!/bin/sh\n{until()}", "--gres=gpu:h100:2")
    alone.await_state(id_, "RUNNING")
    cedar = site("cedar").container
    lost, found = {
        "pause": (["pause", cedar], ["unpause", cedar]),
        "network": (
            ["network", "disconnect", NETWORK, cedar],
            ["network", "connect", NETWORK, cedar],
        ),
    }[cut]
    subprocess.run(["docker", *lost], check=True)
    try:
        within(40, lambda: alone.row(id_)["unknown_since_s"])
        other = alone.submit("#!/bin/sh\ntrue\n", "--gres=gpu:1")
        (row,) = alone.await_end(other)
        assert row["state"] == "COMPLETED"
        assert alone.row(id_)["state"] == "RUNNING"
        assert "unknown for" in alone.run("fsqueue").stdout
    finally:
        subprocess.run(["docker", *found], check=True)
    go("cedar")
    (row,) = alone.await_end(id_, timeout_s=120)
    assert row["state"] == "COMPLETED"
    assert row["attempt"] == 1
    assert row["unknown_since_s"] == 0


def test_an_agent_may_be_a_local_process(testbed: StateDir, tmp_path: Path) -> None:
    for running in lasting(Running(tmp_path, local=("alpine",))):
        id_ = running.submit("#!/bin/sh\ntrue\n", "--gres=gpu:a100:1")
        (row,) = running.await_end(id_)
        assert (row["site"], row["state"]) == ("alpine", "COMPLETED")


def leases_of(site: str) -> str:
    """What lies in the site's spool for prolog scripts to find."""
    return at(site, "ls", f"{SPOOL_DIR}/leases")


def test_a_lease_outlives_the_daemon_and_a_requeue(alone: Running) -> None:
    """While nobody is there to renew anything, a job that Slurm puts back may start again."""
    id_ = alone.submit(traced(600), "--gres=gpu:1", "--time=20")
    row = alone.await_state(id_, "RUNNING")
    within(60, lambda: starts(id_))  # RUNNING is said before its prolog has ended
    site = row["site"]
    alone.kill()
    within(60, lambda: not agents(site))
    at(site, "scontrol", "requeue", str(row["site_job_id"]))
    within(60, lambda: slurm_job(site, row["site_job_id"])["Restarts"] == "1")
    assert f"{id_}.1" in leases_of(site)
    alone.start()
    alone.run("fscancel", str(id_))
    alone.await_end(id_)
    within(30, lambda: not leases_of(site))
