"""Countable gres beside GPUs: planned from what the nodes have, on three generations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, slurm_job, traced, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
NODES = [f"g{number}" for number in layout.NIC_NODES]


@pytest.fixture
def fleet(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(Running(tmp_path, pass_interval_s=5.0))


def take_nics(site: str, *nodes: str) -> None:
    """A local job on each of these nodes holds all that it has."""
    for node in nodes:
        at(
            site,
            "sbatch",
            "-plocal",
            "--output=/dev/null",
            "-n1",
            "-t30",
            "--wrap=sleep 900",
            f"--nodelist={site}-{node}",
            f"--gres=nic:{layout.NICS}",
            user=layout.LOCAL_USER,
        )


def nics_in_use(fleet: Running, site: str) -> dict[str, int]:
    """By node, as the federation sees it."""
    told = fleet.run("federator", "snapshot", site, "--json")
    assert told.returncode == 0, told.stderr
    nodes: list[dict[str, Any]] = json.loads(told.stdout)["nodes"]
    return {n["name"]: dict(n["gres_alloc"]).get("nic", 0) for n in nodes if n["gres"]}


@pytest.mark.parametrize("site", SITES)
def test_a_job_goes_where_its_gres_is_and_waits_while_others_hold_it(
    fleet: Running, site: str
) -> None:
    for other in SITES:
        take_nics(other, *(NODES if other != site else NODES[:1]))
    for other in SITES:
        taken = [layout.NICS] * 2 if other != site else [layout.NICS, 0]
        within(60, lambda o=other, t=taken: list(nics_in_use(fleet, o).values()) == t)  # type: ignore[misc]
    ids = [fleet.submit(traced(600), "--gres=nic:1", "-t20") for _ in range(layout.NICS)]
    rows = [fleet.await_state(id_, "RUNNING") for id_ in ids]
    assert Counter(name for row in rows for name in row["node_names"]) == {
        f"{site}-{NODES[1]}": layout.NICS
    }
    assert {slurm_job(site, row["site_job_id"])["NodeList"] for row in rows} == {
        f"{site}-{NODES[1]}"
    }
    both = fleet.submit(traced(600), "--gres=gpu:1,nic:1", "-t20")
    within(60, lambda: "nic" in fleet.run("federator", "explain", str(both)).stdout)
    assert fleet.row(both)["state"] == "PENDING"
    assert fleet.run("fscancel", str(ids[0])).returncode == 0
    row = fleet.await_state(both, "RUNNING")
    assert row["node_names"] == [f"{site}-{NODES[1]}"]


def test_what_no_node_has_and_parts_of_gpus_are_refused_by_name(fleet: Running) -> None:
    script = "#!/bin/sh\ntrue\n"
    for gres, words in (
        ("nic:3", "needs nic:3 on one node, the largest has nic:2"),
        ("fpga:1", "needs fpga:1 on one node, the largest has none"),
        ("shard:1", "--gres=shard is not supported"),
    ):
        done = fleet.run("fsbatch", "--uid=vision1", f"--gres={gres}", stdin=script)
        assert done.returncode == 1, gres
        assert words in done.stderr, (gres, done.stderr)
    assert fleet.rows() == []
