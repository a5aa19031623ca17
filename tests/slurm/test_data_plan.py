"""A planner sees from real use where data should be; the mover brings it there, and a job runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.slurm.federation import BIN, Running, at, output_of, within

pytestmark = pytest.mark.slurm

READS = '#!/bin/sh\necho "$FED_SITE"\ncat "$FED_DATASET_PLAN_BOOKS"/* | sha256sum\n'
LOOKS = '#!/bin/sh\nls "$FED_DATASET_PLAN_NOTES"\n'
WEST, EAST = "/shared/west/plans-of-tests", "/shared/east/plans-of-tests"
BOOKS_MIB, LARGE_MIB, QUOTA_GIB = 64, 300, 0.25
ONLY_EAST = ("--gres=gpu:h100:1", "-t", "2")


def data(running: Running, *words: str) -> str:
    done = running.run("federator", "data", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plan_of(running: Running) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data(running, "plan", "--json"))
    return found


def configure(running: Running, planning: str) -> None:
    settings = yaml.safe_load(running.config.read_text())
    settings["data"] = {"planning": planning, "move_quota_gib_per_day": QUOTA_GIB}
    settings["storage"]["east"]["keep_free_gib"] = 1
    running.config.write_text(yaml.safe_dump(settings))
    done = running.run("federator", "reload")
    assert done.returncode == 0, done.stderr


def make_sets() -> None:
    """Data sets of vision1: two in the west, one of them larger than a day's quota; one east."""
    for site, folder in (("alpine", WEST), ("cedar", EAST)):
        at(site, "sh", "-c", f"rm -rf {folder}; install -d -o vision1 -m 755 {folder}")
    books = f"mkdir {WEST}/books; head -c {BOOKS_MIB}M /dev/urandom >{WEST}/books/one; "
    large = f"mkdir {WEST}/large; truncate -s {LARGE_MIB}M {WEST}/large/zeros"
    at("alpine", "sh", "-c", books + large, user="vision1")
    notes = f"mkdir {EAST}/notes; head -c 1M /dev/urandom >{EAST}/notes/one"
    at("cedar", "sh", "-c", notes, user="vision1")


def seal_sets(alone: Running) -> None:
    for name, site, place in (
        ("plan/books", "alpine", f"west:{WEST}/books"),
        ("plan/large", "alpine", f"west:{WEST}/large"),
        ("plan/notes", "cedar", f"east:{EAST}/notes"),
    ):
        data(alone, "add", name, "--owner", "vision1", "--at", place)
        verify = ("/opt/federator/bin/federator", "data", "verify", name)
        assert "is sealed" in at(site, *verify, user="vision1")


@pytest.fixture
def ends() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the test."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def test_an_advised_move_is_made_once_an_admin_says_so_and_the_job_then_runs(
    alone: Running, ends: list[subprocess.Popen[bytes]]
) -> None:
    make_sets()
    seal_sets(alone)
    configure(alone, "advisory")
    (row,) = alone.await_end(alone.submit(LOOKS, *ONLY_EAST, "--fed-dataset=plan/notes"))
    assert (row["state"], row["site"]) == ("COMPLETED", "cedar"), row
    waits = alone.submit(READS, *ONLY_EAST, "--fed-dataset=plan/books,plan/notes")
    too_much = alone.submit(LOOKS, *ONLY_EAST, "--fed-dataset=plan/large,plan/notes")

    with (alone.folder / "planner.log").open("ab") as log:
        words = [str(BIN / "federator"), "planner", "--config", str(alone.config)]
        ends.append(subprocess.Popen(words, stderr=log))
    within(60, lambda: plan_of(alone)["plan"])
    told = data(alone, "plan")
    assert "advisory" in told, told
    (line,) = [each for each in told.splitlines() if each.startswith("plan/books@1: west -> east")]
    assert " east: saves " in line, told
    assert "/day of remote reads for vision" in line, told
    assert "67.1 MB to move" in line, told
    assert "moves that wait for quota: " in told, told
    assert "east" not in data(alone, "where", "plan/books")
    assert alone.row(waits)["state"] == "PENDING"
    assert plan_of(alone)["moved_bytes"] == 0

    configure(alone, "automatic")
    (row,) = alone.await_end(waits)
    assert (row["state"], row["site"]) == ("COMPLETED", "cedar")
    digest = at("alpine", "sh", "-c", f"cat {WEST}/books/* | sha256sum").strip()
    assert output_of(row).splitlines() == ["cedar", digest]
    within(30, lambda: "[done]" in data(alone, "plan"))
    found = plan_of(alone)
    assert found["moved_bytes"] == BOOKS_MIB * 2**20 <= found["quota_bytes"]
    (shown,) = json.loads(data(alone, "show", "plan/books", "--json"))["data_sets"]
    assert shown["home"] == "east"
    assert [each.get("state", "ready") for each in shown["replicas"]] == ["ready", "ready"]
    assert at("cedar", "ls", "-A", EAST).split() == ["books", "notes"]
    assert alone.row(too_much)["state"] == "PENDING"  # larger than the quota: never moved
    check_what_is_told(alone, waits, too_much)


def check_what_is_told(alone: Running, moved: int, waits: int) -> None:
    """Where each could run, where it ran, and how many were not collocated."""
    told = alone.run("federator", "explain", str(waits)).stdout
    assert "it would fit (cedar), if somebody has its data copied there: 300.0 MiB" in told, told
    told = alone.run("federator", "explain", str(moved)).stdout
    assert "it has run there" in told, told
    report = json.loads(data(alone, "report", "--json"))
    assert (report["candidates"], report["ran_in"]) == ({"0": 1}, {"1": 2})
    assert {word: each["workloads"] for word, each in report["starts"].items()} == {
        "there": 1,
        "staged": 1,
    }
