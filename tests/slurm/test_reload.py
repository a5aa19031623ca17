"""A federation on real clusters goes by a changed federation.yaml; jobs and queue stay."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.testbed.layout import StateDir
from federator.wire.client_protocol import PassesCall, PassesReply
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, starts, traced, until, within

pytestmark = pytest.mark.slurm

NODE = ("-N1", "--gres=gpu:8")
LASTS = f"#!/bin/sh\n{until()}"
BRIEF = "#!/bin/sh\ntrue\n"


@pytest.fixture
def running(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(
        Running(tmp_path, tenants={"bio": {"quota": {"gpus": 8}, "limit": {"gpus": 8}}})
    )


def change(running: Running, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit federation.yaml, as an admin does."""
    settings = yaml.safe_load(running.config.read_text())
    edit(settings)
    running.config.write_text(yaml.safe_dump(settings, sort_keys=False))


def reload(running: Running) -> str:
    done = running.run("federator", "reload")
    assert done.returncode == 0, done.stderr
    return done.stdout


def limit(gpus: int) -> Callable[[dict[str, Any]], object]:
    return lambda settings: settings["tenants"]["bio"]["limit"].update(gpus=gpus)


def polled_every(seconds: float) -> Callable[[dict[str, Any]], object]:
    """Make the channels to all sites anew."""

    def edit(settings: dict[str, Any]) -> None:
        for site in settings["sites"].values():
            site["poll_interval_s"] = seconds

    return edit


def counted_over(hours: float) -> Callable[[dict[str, Any]], object]:
    """Change a knob of the policy: the span over which usage counts."""
    return lambda settings: settings["policy"].update(credit={"usage_window_h": hours})


def up(running: Running, site: str) -> bool:
    sites = json.loads(running.run("federator", "sites", "--json").stdout)["sites"]
    return any(each["name"] == site and each["up"] for each in sites)


def test_a_raised_limit_lets_a_job_start_and_a_wrong_file_changes_nothing(
    running: Running, go: Callable[..., None]
) -> None:
    first = running.submit(LASTS, *NODE, user="bio1")
    second = running.submit(BRIEF, *NODE, user="bio1")
    running.await_state(first, "RUNNING")
    change(running, lambda settings: settings["tenants"]["bio"]["limit"].update(gpus="many"))
    done = running.run("federator", "reload")
    assert done.returncode == os.EX_CONFIG
    assert "tenants.bio.limit.gpus: expected a whole number" in done.stderr
    assert running.row(second)["state"] == "PENDING"
    change(running, limit(16))
    diff = running.run("federator", "config", "diff").stdout
    assert diff.startswith("tenants.bio.limit.gpus: 8 -> 16\n")
    assert running.row(second)["state"] == "PENDING"
    assert "1 change; the daemon goes by it" in reload(running)
    (row,) = running.await_end(second)
    assert row["state"] == "COMPLETED"
    go()
    (row,) = running.await_end(first)
    assert (row["state"], row["attempt"]) == ("COMPLETED", 1)


INTERVAL_S = 5.0  # between two passes


@pytest.fixture
def often(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(Running(tmp_path, pass_interval_s=INTERVAL_S))


def test_no_pass_is_missed_while_it_is_reloaded_under_load(often: Running) -> None:
    """One that were missed would leave two intervals between its neighbours."""
    began_s = time.time()
    ids: list[int] = []
    for number in range(10):
        array = often.submit("#!/bin/sh\ntrue\n", "-N1", "--gres=gpu:1", "--array=0-9")
        ids += [row["id"] for row in often.rows(array)]
        change(often, counted_over(100.0 + number))
        reload(often)
    within(4 * INTERVAL_S, lambda: time.time() > began_s + 4 * INTERVAL_S)
    reply = often.ask(PassesCall())
    assert isinstance(reply, PassesReply)
    seen = [each.began_s for each in reply.passes if each.began_s > began_s - INTERVAL_S]
    gaps_s = [after - before for before, after in pairwise([*seen, reply.now_s])]
    print(f"{len(seen)} passes, at most {max(gaps_s):.1f} s apart")
    assert len(seen) >= 4
    assert max(gaps_s) < 2 * INTERVAL_S
    assert {row["state"] for row in often.await_end(*ids)} == {"COMPLETED"}


def test_a_site_leaves_when_it_is_empty_and_comes_again(
    running: Running, go: Callable[..., None]
) -> None:
    for other in ("alpine", "boreal"):
        assert running.run("federator", "cordon", other).returncode == 0
    id_ = running.submit(LASTS, *NODE, user="bio1")
    assert running.await_state(id_, "RUNNING")["site"] == "cedar"
    before: dict[str, Any] = {}

    def leave(settings: dict[str, Any]) -> None:
        before.update(sites=settings["sites"].pop("cedar"), storage=settings["storage"].pop("east"))

    def come(settings: dict[str, Any]) -> None:
        settings["sites"]["cedar"], settings["storage"]["east"] = before["sites"], before["storage"]

    change(running, leave)
    done = running.run("federator", "reload")
    assert done.returncode == os.EX_CONFIG
    assert "live workloads at site 'cedar'" in done.stderr
    go("cedar")
    running.await_end(id_)
    assert "sites.cedar.region" in reload(running)
    assert not up(running, "cedar")
    change(running, come)
    reload(running)
    within(60, lambda: up(running, "cedar"))
    (row,) = running.await_end(running.submit(BRIEF, *NODE, user="bio1"))
    assert (row["state"], row["site"]) == ("COMPLETED", "cedar")


def test_jobs_are_neither_lost_nor_doubled_while_channels_are_made_anew(
    running: Running,
) -> None:
    """An agent may end between the note of an sbatch and the sbatch: then another attempt runs."""
    change(running, limit(1000))
    reload(running)
    ids = []
    for number in range(4):
        ids += [running.submit(traced(), "-N1", "--gres=gpu:1", user="bio1") for _ in range(6)]
        change(running, polled_every(3.0 + number))
        assert "poll_interval_s" in reload(running)
    rows = running.await_end(*ids)
    assert {row["state"] for row in rows} == {"COMPLETED"}
    told = sorted((row["id"], row["attempt"], row["site"], row["site_job_id"]) for row in rows)
    assert starts(*ids, user="bio1") == told
    assert "cannot" not in (running.folder / "daemon.log").read_text()
