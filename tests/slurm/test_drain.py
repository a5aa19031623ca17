"""Sites are drained on real clusters: jobs save, leave by the deadline, and go on elsewhere."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from federator.site_installer.templates import STATE_DIR
from federator.testbed.layout import LOCAL_USER, NETWORK, SPOOL_DIR, StateDir, site
from tests.slurm.conftest import lasting
from tests.slurm.federation import (
    Running,
    at,
    federation_jobs,
    slurm_job,
    starts,
    traced,
    until,
    within,
)
from tests.slurm.guests import preemption, resumed, saver, steps_of

pytestmark = pytest.mark.slurm

GRACE_S = 15.0
LEAVE_S = 75.0  # of which the daemon may be away some, and GRACE_S are for leaving
NODE = ("-N1", "--gres=gpu:8")
ALIVE = {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED"}


@pytest.fixture
def running(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    settings = preemption(grace_s=GRACE_S)
    yield from lasting(Running(tmp_path, pass_interval_s=10.0, preemption=settings))


def operate(running: Running, *words: str) -> str:
    done = running.run("federator", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def started_at(running: Running, site: str, number: int) -> list[int]:
    """Savers that run at one site, since the others are cordoned for as long."""
    others = [name for name in ("alpine", "boreal", "cedar") if name != site]
    for other in others:
        operate(running, "cordon", other)
    ids = [running.submit(saver(), *NODE, user="bio1") for _ in range(number)]
    for id_ in ids:
        assert running.await_state(id_, "RUNNING")["site"] == site
    within(60, lambda: all(len(steps_of(id_, "west")) > 1 for id_ in ids))
    for other in others:
        operate(running, "resume", other)
    return ids


def alive_at(site: str) -> list[str]:
    return [job["JobId"] for job in federation_jobs(site) if job["JobState"] in ALIVE]


def test_a_drained_site_is_empty_at_its_deadline_though_the_daemon_is_killed(
    running: Running,
) -> None:
    ids = started_at(running, "alpine", 3)
    until_s = int(time.time() + LEAVE_S)
    said = operate(running, "drain", "alpine", "--deadline", f"uts{until_s}", "--reason", "test")
    assert said.startswith("alpine is drained: 3 workloads running")
    running.kill()
    running.start()
    time.sleep(max(0.0, until_s - time.time()))
    assert alive_at("alpine") == []
    for id_ in ids:
        row = running.await_state(id_, "RUNNING")
        assert (row["site"], row["attempt"]) == ("boreal", 2)  # of the same region
        resumed(id_, "west")
    (alpine, *_) = json.loads(operate(running, "sites", "--json"))["sites"]
    (drain,) = alpine["drains"]
    assert (drain["reason"], drain.get("left", 0)) == ("test", 0)


@pytest.fixture
def paced(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """A tenant with a long queue starts a few at a time: the machine has few cores."""
    limits = {"vision": {"quota": {"gpus": 8}, "limit": {"gpus": 8}}}
    settings = preemption(grace_s=GRACE_S)
    yield from lasting(Running(tmp_path, tenants=limits, pass_interval_s=10.0, preemption=settings))


def test_of_fifty_running_and_two_hundred_queued_jobs_a_drain_loses_none(paced: Running) -> None:
    """The fifty leave by the deadline and go on elsewhere, and each job starts as often as told."""
    running = paced
    for other in ("boreal", "cedar"):
        operate(running, "cordon", other)
    one_gpu = ("-N1", "--gres=gpu:1")
    array = running.submit(saver(), *one_gpu, "--array=0-49", user="bio1")
    runs = [row["id"] for row in running.rows(array)]
    within(90, lambda: {row["state"] for row in running.rows(array)} == {"RUNNING"})
    within(60, lambda: all(len(steps_of(id_, "west")) > 1 for id_ in runs))
    operate(running, "cordon", "alpine")
    queue = running.submit(traced(), *one_gpu, "--array=0-199")
    assert [row["state"] for row in running.rows(queue)] == ["PENDING"] * 200
    waits = [row["id"] for row in running.rows(queue)]
    until_s = int(time.time() + LEAVE_S)
    operate(running, "drain", "alpine", "--deadline", f"uts{until_s}", "--reason", "test")
    for other in ("boreal", "cedar"):
        operate(running, "resume", other)
    time.sleep(max(0.0, until_s - time.time()))
    assert alive_at("alpine") == []
    within(90, lambda: {row["state"] for row in running.rows(array)} == {"RUNNING"})
    moved = running.rows(array)
    assert {(row["site"], row["attempt"]) for row in moved} == {("boreal", 2)}  # of its region
    for id_ in runs:
        resumed(id_, "west")
    ended = running.await_end(*waits)
    assert {row["state"] for row in ended} == {"COMPLETED"}
    told = sorted((row["id"], row["attempt"], row["site"], row["site_job_id"]) for row in ended)
    assert starts(*waits) == told


def test_nothing_starts_on_drained_nodes_until_they_are_resumed(running: Running) -> None:
    operate(running, "cordon", "boreal", "--reason", "test")
    operate(running, "cordon", "cedar", "--reason", "test")
    operate(running, "drain", "alpine:alpine-g[1-8]", "--reason", "test")
    id_ = running.submit("#!/bin/sh\ntrue\n", *NODE)
    within(30, lambda: "FedDrained" in running.run("fsqueue", "--json", "-j", str(id_)).stdout)
    assert running.row(id_)["state"] == "PENDING"
    again = running.run("federator", "drain", "alpine:alpine-g3")
    assert again.returncode != 0
    assert "alpine-g4,alpine-g5 and 3 more is drained already" in again.stderr
    operate(running, "resume", "alpine:alpine-g3")
    (row,) = running.await_end(id_)
    assert (row["state"], row["site"], row["node_names"]) == ("COMPLETED", "alpine", ["alpine-g3"])


def test_what_a_site_that_was_written_off_still_runs_is_ended_when_it_is_back(
    running: Running, go: Callable[..., None]
) -> None:
    """Its job runs twice while the site is cut off, and once to its end."""
    cedar = site("cedar").container
    for other in ("alpine", "boreal"):
        operate(running, "cordon", other)
    id_ = running.submit(traced() + until(), "--gres=gpu:1", "--time=10")
    first = running.await_state(id_, "RUNNING")
    assert first["site"] == "cedar"
    for other in ("alpine", "boreal"):
        operate(running, "resume", other)
    lived = running.run("federator", "write-off", "cedar", "--reason", "fire")
    assert lived.returncode != 0
    assert "site cedar is in contact" in lived.stderr
    subprocess.run(["docker", "network", "disconnect", NETWORK, cedar], check=True)
    try:
        within(120, lambda: not running.run("federator", "write-off", "cedar").returncode, 2.0)
        second = running.await_state(id_, "RUNNING")
        assert (second["site"] != "cedar", second["attempt"]) == (True, 2)
        assert slurm_job("cedar", first["site_job_id"])["JobState"] == "RUNNING"
    finally:
        subprocess.run(["docker", "network", "connect", NETWORK, cedar], check=True)
    within(90, lambda: '"site_returned"' in running.log())
    assert slurm_job("cedar", first["site_job_id"])["JobState"] == "CANCELLED"
    go()
    (row,) = running.await_end(id_)
    assert (row["state"], row["attempt"]) == ("COMPLETED", 2)
    ran = [(each["attempt"], each["site"], each["site_job_id"]) for each in (first, second)]
    assert starts(id_) == [(id_, *attempt) for attempt in ran]
    for other in ("alpine", "boreal"):
        operate(running, "cordon", other)
    (row,) = running.await_end(running.submit(traced(), "--gres=gpu:1", "--time=10"))
    assert (row["site"], row["state"]) == ("cedar", "COMPLETED")


def test_a_drill_leaves_a_site_to_its_own_users_and_comes_back(
    running: Running, go: Callable[..., None]
) -> None:
    """While it lasts nothing of the federation is there, and its users' sbatch works as ever."""
    ids = started_at(running, "alpine", 3)
    own = ("--parsable", "--partition=local", "--gres=gpu:1", "--output=/dev/null")
    words = ("shadow", "drill", "alpine", "--config", str(running.config))

    def alpine() -> dict[str, object]:
        (found, *_) = json.loads(operate(running, "sites", "--json"))["sites"]
        assert isinstance(found, dict)
        return found

    def is_left() -> bool:
        return alpine()["mode"] == "shadow" and alpine()["up"] is True

    with ThreadPoolExecutor() as pool:
        drill = pool.submit(running.run, "federator", *words, "--deadline", "now+60seconds")
        within(90, lambda: is_left() or drill.done())
        job_id = int(at("alpine", "sbatch", *own, f"--wrap={until()}", user=LOCAL_USER))
        limits = at("alpine", "sh", "-c", f"cat {SPOOL_DIR}/admission.tsv")
        assert "vision" not in limits
        assert alive_at("alpine") == []
        within(60, lambda: slurm_job("alpine", job_id)["JobState"] == "RUNNING")
        done = drill.result()
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "alpine holds: leave drill: " in done.stdout
    assert (alpine()["mode"], alpine()["drains"]) == ("enforced", [])
    go("alpine")
    within(60, lambda: slurm_job("alpine", job_id)["JobState"] == "COMPLETED")
    for id_ in ids:
        row = running.await_state(id_, "RUNNING")
        assert (row["site"], row["attempt"]) == ("boreal", 2)  # of the same region
        resumed(id_, "west")
    for other in ("boreal", "cedar"):
        operate(running, "cordon", other)
    (row,) = running.await_end(running.submit("#!/bin/sh\ntrue\n", "--gres=gpu:1"))
    assert (row["site"], row["state"]) == ("alpine", "COMPLETED")
    asked = ("audit", "--config", str(running.config), "--act", "leave-drill", "--json")
    (line,) = json.loads(operate(running, *asked))["lines"]
    assert (line["on"], line["effect"]["workloads"]) == ("alpine", 3)
    assert 0 < line["effect"]["took_s"] <= 300


def test_nodes_that_a_site_says_are_revoked_are_left_at_once(running: Running) -> None:
    (id_,) = started_at(running, "alpine", 1)
    (node,) = running.row(id_)["node_names"]
    file = f"{STATE_DIR}/revoked"
    notice = f"{node} {time.time() + 2 * GRACE_S:.0f} spot notice"
    at("alpine", "sh", "-c", f"umask 022; echo '{notice}' >{file}")
    try:
        within(60, lambda: running.row(id_)["attempt"] == 2)
        assert running.await_state(id_, "RUNNING")["node_names"] != [node]
        resumed(id_, "west")
        (alpine, *_) = json.loads(operate(running, "sites", "--json"))["sites"]
        (drain,) = alpine["drains"]
        assert (drain["nodes"], drain["by"], drain["reason"]) == ([node], "the site", "spot notice")
    finally:
        at("alpine", "rm", "-f", file)
