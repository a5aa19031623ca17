"""A job's data set comes to the region that can run it, whoever is killed on the way."""

from __future__ import annotations

import pytest
import yaml

from federator.testbed import inside, layout
from tests.slurm.federation import Running, at, output_of, within
from tests.slurm.weather import kill_agents

pytestmark = pytest.mark.slurm

READS = '#!/bin/sh\necho "$FED_SITE"\ncd "$FED_DATASET_TEXT_BOOKS" && cat * | sha256sum\n'
SETS = "/shared/{}/copies-of-tests"
MIB = 96
SLOW_MIB_PER_S = 1  # so that it can be killed on its way


def data(running: Running, *words: str) -> str:
    done = running.run("federator", "data", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def configure(running: Running, stage: str, mib_per_s: int) -> None:
    """Bound copies, and say whether jobs may have them."""
    settings = yaml.safe_load(running.config.read_text())
    settings["data"] = {"stage": stage, "removal_grace_h": 0}
    east = {"copy_mib_per_s": mib_per_s, "keep_free_gib": 1, "copy_streams": 3}
    settings["storage"]["east"] |= east
    running.config.write_text(yaml.safe_dump(settings))


def go_by(running: Running, stage: str) -> None:
    configure(running, stage, SLOW_MIB_PER_S)
    done = running.run("federator", "reload")
    assert done.returncode == 0, done.stderr


def why(running: Running, id_: int) -> str:
    return running.run("fsqueue", "--why", "-j", str(id_)).stdout


def digest_at(site: str, path: str) -> str:
    return at(site, "sh", "-c", f"cd {path} && cat * | sha256sum").strip()


def test_a_data_set_comes_to_the_job_though_mover_agents_and_daemon_are_killed(
    alone: Running,
) -> None:
    here, there = SETS.format("west"), SETS.format("east")
    for site, folder in (("alpine", here), ("cedar", there)):
        at(site, "sh", "-c", f"rm -rf {folder}; install -d -o vision1 -m 755 {folder}")
    make = f"mkdir {here}/books; cd {here}/books; head -c {MIB // 2}M /dev/urandom >one; "
    at("alpine", "sh", "-c", make + f"head -c {MIB // 2}M /dev/urandom >two", user="vision1")
    data(alone, "add", "text/books", "--owner", "vision1", "--at", f"west:{here}/books")
    verify = ("/opt/federator/bin/federator", "data", "verify", "text/books")
    assert "is sealed" in at("alpine", *verify, user="vision1")
    go_by(alone, "off")
    id_ = alone.submit(READS, "--gres=gpu:h100:1", "-t", "2", "--fed-dataset=text/books")
    within(30, lambda: "waits for data sets that are not here" in why(alone, id_))
    assert "east" not in data(alone, "show", "text/books")
    go_by(alone, "auto")
    within(60, lambda: " % copied" in data(alone, "show", "text/books"))
    assert "being copied to east" in why(alone, id_)
    inside.execute(layout.site("cedar"), ("pkill", "-KILL", "-u", "vision1"))
    alone.kill()
    kill_agents("alpine", "cedar")
    listed = at("cedar", "ls", there)
    assert "books" not in listed, listed
    configure(alone, "auto", MIB)
    alone.spawn()
    within(90, alone.all_up)
    (row,) = alone.await_end(id_)
    assert (row["state"], row["site"]) == ("COMPLETED", "cedar")
    assert output_of(row).splitlines() == ["cedar", digest_at("alpine", f"{here}/books")]
    assert at("cedar", "ls", "-A", there).split() == ["books"]
    assert "ready, sealed" in data(alone, "show", "text/books")
    at("cedar", "sh", "-c", f"echo torn >{there}/books/one", user="vision1")
    done = inside.execute(layout.site("cedar"), verify, user="vision1")
    assert "is lost" in done.stdout, done
    data(alone, "copy", "text/books", "--to", "east")
    within(60, lambda: "east" in data(alone, "where", "text/books") and is_whole(alone))
    assert digest_at("cedar", f"{there}/books") == digest_at("alpine", f"{here}/books")
    data(alone, "rm", "text/books", "--at", "east", "--files")
    within(60, lambda: "east" not in data(alone, "show", "text/books"))
    assert at("cedar", "ls", "-A", there).split() == []
    last = alone.run("federator", "data", "rm", "text/books", "--at", "west", "--files")
    assert "no other sealed replica would be left" in last.stderr, last
    assert at("alpine", "ls", "-A", here).split() == ["books"]


def is_whole(running: Running) -> bool:
    return data(running, "show", "text/books").count("ready, sealed") == 2
