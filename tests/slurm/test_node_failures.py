"""A job whose node dies, or whose prolog fails, goes on: three generations of Slurm.

It runs again elsewhere, at once, without that node, and its place in the queue is that of its
submission. Each test drains or kills nodes of real sites, and mends them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import (
    LONG_S,
    STARTS,
    Running,
    at,
    federation_jobs,
    killed_slurmd,
    starts,
    within,
)

pytestmark = pytest.mark.slurm
GANG = ("--gres=gpu:8", "--nodes=2", "--time=60")
SITES = [site.name for site in layout.SITES]
CONF = "/etc/slurm/slurm.conf"
WHY = "fed-gate: nvlink: GPU 3 link 5 is down (17 of 18, expected 18)"
PROLOG = "/etc/slurm/prolog.d/10-of-tests"
LEASE_S = 120.0  # what is found when it has run out, is not found at once

RUNS_UNTIL_IT_FAILS = (
    f'#!/bin/sh\necho "$FED_JOB_ID $FED_ATTEMPT $SLURM_JOB_ID" >>"$HOME/{STARTS}"\n'
    f'if [ "$FED_ATTEMPT" = 1 ]; then sleep {LONG_S}; fi\nsleep 3\n'
)


@pytest.fixture(scope="module")
def shared(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from lasting(Running(tmp_path_factory.mktemp("shared"), launch_lease_s=LEASE_S))


@contextmanager
def failing_prolog(site: str, node: str, *, held: bool) -> Iterator[None]:
    """A gate that refuses one node and says why; its job is held, or may start elsewhere."""
    fails = (
        f'#!/bin/sh\n[ "$SLURMD_NODENAME" != {node} ] && exit 0\n'
        f"/usr/bin/scontrol update nodename={node} state=drain reason='{WHY}'\nexit 1\n"
    )
    at(site, "sh", "-c", f"cat >{PROLOG}; chmod 755 {PROLOG}; cp {CONF} {CONF}.kept", stdin=fails)
    try:
        if held:
            at(site, "sed", "-i", "s/,nohold_on_prolog_fail//", CONF)
            reconfigure(site)
        yield
    finally:
        at(site, "sh", "-c", f"mv {CONF}.kept {CONF}; rm {PROLOG}")
        if held:
            reconfigure(site)
        restart_slurmd(site, node)
        at(site, "sh", "-c", f"scontrol update nodename={node} state=resume || true")


def restart_slurmd(site: str, node: str) -> None:
    """Have it forget the failed prolog.

    Where a job may not be requeued, and has ended before slurmd tells of its prolog, 22.05 goes on
    telling: every 15 s, for ever, and each time the node is drained again.
    """
    at(site, "sh", "-c", f"{killed_slurmd(node)}; slurmd -N {node}")


def reconfigure(site: str) -> None:
    """Later generations start slurmctld anew, and do not answer for a moment."""
    at(site, "scontrol", "reconfigure")
    within(60, lambda: "Prolog" in at(site, "sh", "-c", "scontrol show config || true"))
    time.sleep(2)  # until every slurmd has read it


def idle(site: str, node: str) -> bool:
    """Tell whether a node is up and idle."""
    state = at(site, "sinfo", "--noheader", f"--nodes={node}", "--format=%T", "--partition=fed")
    return state.strip() == "idle"


def nodes_of(site: str, id_: int, attempt: int) -> str:
    (job,) = (j for j in federation_jobs(site) if j["Comment"] == f"fed:{id_}:{attempt}")
    return job["ReqNodeList"]


@pytest.mark.parametrize("site", SITES)
def test_a_job_whose_node_dies_runs_again_without_that_node(federation: Running, site: str) -> None:
    """SIGKILL of one slurmd: Slurm takes the node for down after SlurmdTimeout, 10 s here."""
    with federation.first_is(site):
        id_ = federation.submit(RUNS_UNTIL_IT_FAILS, *GANG)
        first = federation.await_state(id_, "RUNNING")
        assert (first["site"], first["attempt"]) == (site, 1)
        within(60, lambda: starts(id_))  # RUNNING is said before its prolog has ended
        *_, dies = first["node_names"]
        at(site, "sh", "-c", killed_slurmd(dies))
        try:
            (row,) = federation.await_end(id_)
        finally:
            at(site, "slurmd", "-N", dies)
            within(90, lambda: idle(site, dies))
    assert (row["state"], row["attempt"]) == ("COMPLETED", 2)
    assert dies not in row["node_names"]
    assert row["submitted_at_s"] == first["submitted_at_s"]
    assert [start[:2] for start in starts(id_)] == [(id_, 1), (id_, 2)]


@pytest.mark.parametrize("held", [False, True], ids=["requeued", "held"])
@pytest.mark.parametrize("site", SITES)
def test_a_job_whose_prolog_fails_starts_at_once_without_that_node(
    federation: Running, site: str, held: bool
) -> None:
    """Slurm puts the job back, by default held for an admin. Why is told in the gate's words."""
    bad = f"{site}-g1"
    with federation.first_is(site), failing_prolog(site, bad, held=held):
        within(60, federation.all_up)
        id_ = federation.submit(RUNS_UNTIL_IT_FAILS.replace("= 1", "= 0"), *GANG)
        within(90, lambda: federation.row(id_)["attempt"] == 2)
        federation.await_state(id_, "RUNNING", "COMPLETED")
        why = f"a node failed: {bad} ({bad}: {WHY})"
        told = federation.run("federator", "explain", str(id_)).stdout
        assert f"Setback at {site}" in told
        assert why in told
        assert why in federation.run("fsqueue", "-t", "all", "--why", "-j", str(id_)).stdout
        (row,) = federation.await_end(id_)
        assert nodes_of(site, id_, 1) == f"{site}-g[1-2]"
    assert (row["state"], row["attempt"]) == ("COMPLETED", 2)
    assert bad not in row["node_names"]
    assert row["started_at_s"] - row["submitted_at_s"] < LEASE_S / 2
    assert [start[:2] for start in starts(id_)] == [(id_, 2)]
    first = [j for j in federation_jobs(site) if j["Comment"] == f"fed:{id_}:1"]
    assert [j["JobState"] for j in first] == ["CANCELLED"]


def test_a_job_that_may_not_be_requeued_fails_on_account_of_the_node(federation: Running) -> None:
    """Slurm calls it CANCELLED, or FAILED as if it had exited with 1: whichever comes first."""
    site = SITES[0]
    bad = f"{site}-g1"
    with federation.first_is(site), failing_prolog(site, bad, held=False):
        id_ = federation.submit(RUNS_UNTIL_IT_FAILS, *GANG, "--no-requeue")
        (row,) = federation.await_end(id_)
    within(60, lambda: idle(site, bad))
    assert (row["state"], row["attempt"], row["site"]) == ("FAILED", 1, site)
    told = row["reason"] or {}
    assert row["site_state"] in ("CANCELLED", "FAILED")
    assert told.get("code") == "FedNodeFail"
    assert told["detail"] == f"{bad} ({bad}: {WHY})"
    assert starts(id_) == []
