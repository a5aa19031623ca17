"""Bad nodes and the federation: a workload that the gate sends away runs at another site."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from federator.testbed import inside, layout
from federator.testbed.layout import LOCAL_USER
from tests.slurm.federation import Running, at, within

pytestmark = pytest.mark.slurm

TESTBED = "/etc/federator/testbed"
WHOLE_SITE = ("--nodes=8", "--gpus-per-node=8", "--time=11")


@pytest.fixture
def bad(federation: Running) -> Iterator[None]:
    """One node of cedar has memory errors, one of alpine no network; boreal is busy."""
    port = f"{TESTBED}/sysfs/alpine-g1/class/infiniband/mlx5_0/ports/1"
    at(
        "alpine",
        "sh",
        "-ec",
        f"mkdir -p {port} {TESTBED}/expected; echo '1: DOWN' > {port}/state;"
        f' echo \'{{"ports": {{"mlx5_0/1": 200}}}}\' > {TESTBED}/expected/alpine-g1',
    )
    at("cedar", "sh", "-ec", f"echo ecc > {TESTBED}/gpus/cedar-g1")
    job = ["sbatch", "--partition=local", "--output=/dev/null", *WHOLE_SITE, "--wrap=sleep 600"]
    done = inside.execute(layout.site("boreal"), job, user=LOCAL_USER)
    assert done.exit_status == 0, done.stderr
    within(60, lambda: "RUNNING" in at("boreal", "squeue", "--noheader", "--format=%T"))
    try:
        yield
    finally:
        at("boreal", "scancel", f"--user={LOCAL_USER}")
        at("alpine", "rm", "-rf", f"{TESTBED}/sysfs", f"{TESTBED}/expected")
        at("alpine", "env", "SLURMD_NODENAME=alpine-g1", "/opt/federator/libexec/fed-gate", "clear")
        at("cedar", "rm", "-f", f"{TESTBED}/gpus/cedar-g1")
        at("cedar", "sh", "-c", "scontrol update nodename=cedar-g1 state=resume || true")


def test_a_workload_leaves_bad_nodes_and_their_sites_and_says_why(
    federation: Running, bad: None
) -> None:
    id_ = federation.submit("#!/bin/sh\nexit 0\n", *WHOLE_SITE)
    words = (
        "cedar-g1: fed-gate: ecc: GPU 0 has 2 volatile uncorrected ECC errors",
        "alpine-g1: takes jobs of one node only",
    )

    def told() -> bool:
        explained = federation.run("federator", "explain", str(id_)).stdout
        return all(why in explained for why in words)

    within(180, told)
    at("boreal", "scancel", f"--user={LOCAL_USER}")
    (row,) = federation.await_end(id_)
    assert (row["state"], row["site"]) == ("COMPLETED", "boreal")
    assert "drain" in at("cedar", "sinfo", "--noheader", "--nodes=cedar-g1", "--format=%T")
    shown = at("alpine", "sinfo", "--noheader", "--nodes=alpine-g1", "--format=%T %b")
    assert "drain" not in shown
    assert "fed_single_node" in shown
