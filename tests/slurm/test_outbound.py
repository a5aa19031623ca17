"""A site that nobody reaches from outside dials the daemon, and dials again when it is cut off."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.dialled import SITE, Dialled
from tests.slurm.federation import at, starts, traced, until, within
from tests.slurm.gate import Gate
from tests.slurm.login_nodes import OTHER, login_node, up_from

pytestmark = pytest.mark.slurm


@pytest.fixture
def running(testbed: StateDir, tmp_path: Path) -> Iterator[Dialled]:
    dialled = Dialled(tmp_path)
    for _ in lasting(dialled):
        yield dialled


def test_a_job_of_a_site_that_dials_runs_on_there_while_its_connection_is_cut(
    running: Dialled, go: Callable[..., None]
) -> None:
    script = f"#!/bin/sh\n{until()}"
    command = ("fsbatch", "--parsable", "-N1", "--gres=gpu:1", "--time=5")
    with running.first_is(SITE):
        id_ = int(at(SITE, *command, user="vision1", stdin=script))
        assert running.await_state(id_, "RUNNING")["site"] == SITE
    assert running.host is not None
    before = running.ups()
    running.host.cut()
    within(60, lambda: running.ups() > before and running.all_up())
    go(SITE)
    (row,) = running.await_end(id_)
    assert (row["state"], row["attempt"]) == ("COMPLETED", 1)


@pytest.fixture
def doubled(testbed: StateDir, tmp_path: Path) -> Iterator[Dialled]:
    """The site dials from two login nodes, of which one stands by."""
    if os.geteuid() != 0:
        pytest.skip("only root gives a process a host name of its own")
    dialled = Dialled(tmp_path, both=True)
    for _ in lasting(dialled):
        within(60, lambda: dialled.became(OTHER, "stands by"))
        yield dialled


def signal_all(dialler: int, name: str) -> None:
    """To what a login node has of the federation: its service, the ssh and the agent of that."""
    at(SITE, "sh", "-c", f"kill -{name} {dialler} $(pgrep -P {dialler})")


def test_the_login_node_that_stands_by_takes_over_with_launches_in_flight(
    doubled: Dialled, gate: Gate
) -> None:
    """The one that stood still wakes up while its sbatch is still to be called, and stands by."""
    first = login_node(doubled, SITE)
    assert first not in ("", OTHER)
    gate.close(SITE)
    with doubled.first_is(SITE):
        ids = [doubled.submit(traced(), "--gres=gpu:1", "--nodes=1") for _ in range(4)]
        within(60, lambda: gate.held(SITE))
        stopped, stood_by = doubled.dialler(first), doubled.became(first, "stands by")
        signal_all(stopped, "STOP")
        began_s = float(at(SITE, "date", "+%s.%N"))
        try:
            within(60, lambda: up_from(doubled, SITE, OTHER))
        finally:
            signal_all(stopped, "CONT")
            gate.open(SITE)
        took_s = (up_from(doubled, SITE, OTHER) or 0.0) - began_s
        print(f"served from {OTHER} {took_s:.1f} s after the first login node stood still")
        rows = doubled.await_end(*ids)
    assert {row["state"] for row in rows} == {"COMPLETED"}
    assert [start[0] for start in starts(*ids)] == sorted(ids)  # each once
    assert login_node(doubled, SITE) == OTHER
    within(60, lambda: doubled.became(first, "stands by") > stood_by)


def test_a_lost_log_is_built_anew_from_a_site_that_dials_from_two_login_nodes(
    doubled: Dialled, go: Callable[..., None]
) -> None:
    script, config = f"{traced()}{until()}", str(doubled.config)
    export = str(doubled.folder / "queue.jsonl")  # so that jobs of other tests are older
    done = doubled.run("federator", "log", "export", "--config", config, "--out", export)
    assert done.returncode == 0, done.stderr
    with doubled.first_is(SITE):
        runs = doubled.submit(script, "--gres=gpu:1", "--time=10")
        assert doubled.await_state(runs, "RUNNING")["site"] == SITE
    before = doubled.row(runs)
    doubled.kill()
    for file in doubled.folder.glob("queue.db*"):
        file.unlink()
    recover = ("recover", "--config", config, "--export", export, "--json")
    told = doubled.run("federator", *recover)
    assert told.returncode == 0, told.stderr
    result = json.loads(told.stdout)
    assert (result["at_sites"], result["from_sites"], result["unknown"]) == (1, 1, [])
    doubled.start()
    after = doubled.row(runs)
    for key in ("state", "site", "site_job_id", "attempt", "user"):
        assert after[key] == before[key], key
    go(SITE)
    (row,) = doubled.await_end(runs)
    assert (row["state"], row["attempt"]) == ("COMPLETED", 1)
    assert [start[:3] for start in starts(runs)] == [(runs, 1, SITE)]
    assert {site.name for site in doubled.sites()} == {site.name for site in layout.SITES}
