"""The audit of a daemon on real clusters, and a site that may not speak for users of another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, until, within

pytestmark = pytest.mark.slurm

ONE_GPU = ("-N1", "--gres=gpu:1", "--time=5")


@pytest.fixture
def running(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path, pass_interval_s=10.0)
    settings = yaml.safe_load(running.config.read_text())
    settings["sites"]["alpine"]["users"] = ["@vision"]
    running.config.write_text(yaml.safe_dump(settings))
    yield from lasting(running)


def audit(running: Running, *options: str) -> Any:
    done = running.run("federator", "audit", "--config", str(running.config), *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(running: Running, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(audit(running, "--json", *options))["lines"]
    return found


def test_what_was_done_and_awarded_is_in_the_audit_though_the_daemon_is_killed(
    running: Running,
) -> None:
    ids = [running.submit("#!/bin/sh\ntrue\n", *ONE_GPU) for _ in range(4)]
    assert running.run("federator", "cordon", "cedar", "--reason", "fans").returncode == 0
    running.kill()
    running.start()
    ids.append(running.submit("#!/bin/sh\ntrue\n", *ONE_GPU))
    assert running.run("federator", "resume", "cedar").returncode == 0
    running.await_end(*ids)
    awards = within(20, lambda: (found := lines(running, "--act", "award"))[4:] and found)
    assert sorted({int(each["on"].split(":")[1]) for each in awards}) == sorted(ids)
    acts = [each["act"] for each in lines(running)]
    assert acts.count("lead") == 2
    assert [act for act in acts if act in ("cordon", "resume")] == ["cordon", "resume"]
    assert "sound" in audit(running, "--verify")
    for id_ in ids[-1:]:
        done = running.run("federator", "log", "decide", str(id_), "--config", str(running.config))
        assert done.returncode == 0, done.stderr
        assert "bit for bit" in done.stdout
        print(done.stdout)


def test_a_site_s_root_cannot_submit_or_cancel_for_a_user_of_another_site(
    running: Running,
) -> None:
    """At alpine only the users of vision are its own; root there can be anybody there."""
    asked = ("fsbatch", "--parsable", *ONE_GPU, "--wrap", "true")
    as_bio = inside.execute(layout.site("alpine"), asked, user="bio1")
    assert as_bio.exit_status != 0
    assert "site alpine may not speak for bio1: sites.alpine.users says for whom" in as_bio.stderr
    as_vision = inside.execute(layout.site("alpine"), asked, user="vision1")
    assert as_vision.exit_status == 0, as_vision.stderr
    at_home = inside.execute(layout.site("cedar"), (*asked, "--hold"), user="bio1")
    assert at_home.exit_status == 0, at_home.stderr
    forged = inside.execute(
        layout.site("alpine"), ("fscancel", at_home.stdout.strip()), user="bio1"
    )
    assert forged.exit_status != 0
    assert "site alpine may not speak for bio1" in forged.stderr
    release = ("fscontrol", "release", at_home.stdout.strip())
    assert inside.execute(layout.site("cedar"), release, user="bio1").exit_status == 0
    refused = within(10, lambda: lines(running, "--who", "bio1"))
    acts = [(each["act"], each["via"]) for each in refused if each.get("refused")]
    assert sorted(acts) == [("cancel", "alpine"), ("submit", "alpine")]
    rows = running.await_end(int(as_vision.stdout), int(at_home.stdout))
    assert [row["state"] for row in rows] == ["COMPLETED", "COMPLETED"]


def test_a_site_s_root_cannot_end_a_job_that_runs_elsewhere(
    running: Running, go: Callable[..., None]
) -> None:
    """As root, as its owner, and as a user of the site's own map; the job runs on, once."""
    with running.first_is("cedar"):
        id_ = running.submit(f"#!/bin/sh\n{until()}", *ONE_GPU, user="bio1")
        assert running.await_state(id_, "RUNNING")["site"] == "cedar"
    commands = (
        ("fscancel", str(id_)),
        ("fscontrol", "hold", str(id_)),
        ("fscontrol", "requeue", str(id_)),
        ("fscontrol", "update", f"JobId={id_}", "TimeLimit=1"),
    )
    for words in commands:
        for user in ("root", "bio1"):
            done = inside.execute(layout.site("alpine"), words, user=user)
            assert done.exit_status != 0, (words, user)
            assert f"site alpine may not speak for {user}" in done.stderr, (words, user)
    # vision1 is of alpine's map, and the job is another's.
    assert inside.execute(layout.site("alpine"), commands[0], user="vision1").exit_status != 0

    def noted() -> bool:
        refused = [each for each in lines(running) if each.get("refused")]
        seen = {(each["act"], each["by"]) for each in refused if each["via"] == "alpine"}
        return {(act, user) for act in ("cancel", "control") for user in ("root", "bio1")} <= seen

    within(10, noted)
    go("cedar")
    (row,) = running.await_end(id_)
    assert (row["state"], row["attempt"]) == ("COMPLETED", 1)
