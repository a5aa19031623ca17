"""No two components of a het job get one node: what Slurm does, and that ours start all the same.

And what goes with it on real sites: work without GPUs stays off nodes with GPUs, and a site that is
down is no reason to call a job impossible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from federator.errors import SiteUnavailable
from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import LONG_S, Running, at, slurm_job, traced, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
LEASE_S = 60.0
ANY = ("sbatch", "--partition=local", "--output=/dev/null")
SHAPES = {
    "one task each": ["-n1", ":", "-n1"],
    "three components": ["-n1", ":", "-n1", ":", "-n2"],
    "a GPU each": ["-n1", "--gres=gpu:1", ":", "-n1", "--gres=gpu:1"],
    "a GPU and none": ["-n1", "--gres=gpu:1", ":", "-n1"],
    "none and a GPU": ["-n1", ":", "-n1", "--gres=gpu:1"],
    "a gang and one task": ["-N2", "--gres=gpu:8", ":", "-n1"],
    "totals": ["-n8", ":", "--gpus=4", "-n4"],
    "whole nodes": ["-N1", "--exclusive", ":", "-n1"],
}


@pytest.fixture(scope="module")
def shared(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With the lease that a federation has by default, not the testbed's of 20 s.

    Slurm starts het jobs in a cycle of its backfill alone, which comes late on a busy machine.
    """
    yield from lasting(Running(tmp_path_factory.mktemp("shared"), launch_lease_s=LEASE_S))


def nodes_of(site: str, site_job_id: int) -> list[list[str]]:
    """The nodes of each component, as Slurm tells them."""
    found = at(site, "scontrol", "-o", "show", "job", str(site_job_id))
    lists = re.findall(r" NodeList=(\S+)", found)
    return [at(site, "scontrol", "show", "hostnames", each).split() for each in lists]


# ---- what Slurm does ----


@pytest.mark.parametrize("site", SITES)
def test_slurm_gives_no_two_components_one_node(testbed: StateDir, site: str) -> None:
    every = at(site, "sinfo", "-h", "-N", "--partition=local", "-o%N").split()
    node, *others = dict.fromkeys(every)
    only_one = f"--exclude={','.join(others)}"
    here = ("-N1", "-n1", f"--nodelist={node}")
    user = layout.LOCAL_USER
    pinned = inside.execute(layout.site(site), (*ANY, *here, ":", *here, "--wrap=true"), user=user)
    assert "Invalid node name specified" in pinned.stderr
    submit = (*ANY, "--parsable")
    try:
        waits = at(site, *submit, "-n1", only_one, ":", "-n1", only_one, "--wrap=true", user=user)
        starts = at(site, *submit, "-n1", ":", "-n1", f"--wrap=sleep {LONG_S}", user=user)
        state = ("squeue", "-h", "-o%T")
        within(60, lambda: at(site, *state, f"-j{starts.strip()}").split() == ["RUNNING"] * 2)
        first, second = nodes_of(site, int(starts))
        assert first != second
        assert at(site, *state, f"-j{waits.strip()}").split() == ["PENDING"] * 2
        assert slurm_job(site, int(waits))["Reason"] == "Resources"
    finally:
        at(site, "scancel", f"--user={user}")


# ---- what we plan ----


@pytest.mark.parametrize("site", SITES)
def test_components_that_would_fit_on_one_node_start_on_different_ones_and_run_to_the_end(
    federation: Running, site: str
) -> None:
    with federation.closed(*(name for name in SITES if name != site)):
        ids = [federation.submit(traced(3), *options) for options in SHAPES.values()]
        rows = federation.await_end(*ids)
    for row in rows:
        assert (row["state"], row["site"], row["attempt"]) == ("COMPLETED", site, 1), row
        components = nodes_of(site, row["site_job_id"])
        assert len(components) == row["jobs"]
        names = [name for each in components for name in each]
        assert len(names) == len(set(names))
        assert sorted(names) == sorted(row["node_names"])


def test_components_that_no_site_has_different_nodes_for_are_refused_at_once(
    federation: Running,
) -> None:
    options = ["-N5", "--gres=gpu:h100:1", ":", "-N4", "--gres=gpu:h100:1"]
    done = federation.run("fsbatch", "--uid=vision1", *options, "--wrap=true")
    assert done.returncode == 1
    told = "wrap+0 and wrap+1 need 9 nodes, none of them shared; the site has 8"
    assert f"cedar: never: {told}" in done.stderr


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("options", [["-n128"], ["--exclusive", "-N2"]], ids=" ".join)
def test_work_without_gpus_takes_nodes_without_gpus_in_whatever_racks(
    federation: Running, site: str, options: list[str]
) -> None:
    """One such node is in each rack, between eight with GPUs."""
    with federation.closed(*(name for name in SITES if name != site)):
        id_ = federation.submit(traced(1), *options)
        (row,) = federation.await_end(id_)
    assert (row["state"], row["site"]) == ("COMPLETED", site)
    assert row["node_names"] == [f"{site}-c1", f"{site}-c2"]
    assert row["gpus"] == 0


def test_what_only_a_site_that_is_down_could_run_would_wait(
    testbed: StateDir, tmp_path: Path
) -> None:
    running = Running(tmp_path)
    settings = yaml.safe_load(running.config.read_text())
    settings["sites"]["cedar"]["ssh"]["port"] = 1  # nobody listens there
    running.config.write_text(yaml.safe_dump(settings))
    running.spawn()
    try:
        within(90, lambda: _are_up(running, "alpine", "boreal"))
        asked = ("--uid=vision1", "--gres=gpu:h100:1")
        tried = running.run("fsbatch", "--test-only", *asked, "--wrap=true")
        assert tried.returncode == 0, tried.stderr
        assert tried.stderr.splitlines()[-1] == (
            "fsbatch: would wait: cedar, which may be able to run it, is down"
        )
        id_ = running.submit("#!/bin/sh\n", *asked[1:])
        assert running.row(id_)["state"] == "PENDING"
        running.cancel_all()
    finally:
        running.stop()


def _are_up(running: Running, *sites: str) -> bool:
    with suppress(SiteUnavailable):
        return {site.name for site in running.sites() if site.up} >= set(sites)
    return False
