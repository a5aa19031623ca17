"""The audit of a daemon on real clusters, and a site that may not speak for users of another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, within

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
