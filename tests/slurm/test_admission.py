"""What a site's hooks find in the spool while attempts come and go, on three generations of Slurm.

The gate of the tests stands where sbatch would be called, so that what is there then can be seen.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from federator.testbed import layout
from federator.testbed.layout import SPOOL_DIR
from tests.slurm.federation import LONG_S, Running, at, slurm_job, until, within
from tests.slurm.gate import Gate

pytestmark = pytest.mark.slurm
SITES = [site.name for site in layout.SITES]


def leases(site: str) -> dict[str, str]:
    """The lease files of a site, by name."""
    text = at(site, "sh", "-c", f"cd {SPOOL_DIR}/leases && grep -H . * || true")
    return dict(line.split(":", 1) for line in text.splitlines())


def tickets(site: str, id_: int) -> dict[str, str]:
    """A workload's tickets at a site, by token; only root and the agent can list them."""
    text = at(site, "sh", "-c", f"cd {SPOOL_DIR}/tickets && grep -H . * || true")
    all_ = dict(line.split(":", 1) for line in text.splitlines())
    return {token: ticket for token, ticket in all_.items() if ticket.startswith(f"fed:{id_}:")}


def one_at_each_site(federation: Running, gate: Gate, script: str) -> dict[str, int]:
    """Submit jobs for all GPU nodes of a site; their ids by site, when sbatch is to be called."""
    gate.close(*SITES)
    size = (f"--nodes={layout.GPU_NODES.count}", "--gres=gpu:8", "--time=5")
    exports = ("ALL", "NONE", "NIL")  # with what is exported a ticket travels in different ways
    ids = {federation.submit(script, *size, f"--export={kind}") for kind in exports}

    def held() -> dict[str, int] | None:
        found = {site: {int(a.split(":")[1]) for a in gate.held(site)} & ids for site in SITES}
        return {s: min(of) for s, of in found.items()} if all(found.values()) else None

    placed = within(60, held)
    assert placed is not None
    return placed


def test_ticket_and_lease_are_there_for_sbatch_and_the_lease_until_the_end(
    federation: Running, gate: Gate, go: Callable[..., None]
) -> None:
    ids = one_at_each_site(federation, gate, f"#!/bin/sh\n{until()}")

    def check(site: str) -> None:
        id_ = ids[site]
        ((token, ticket),) = tickets(site, id_).items()
        of, user, expires_at_s = ticket.split()
        assert (of, user) == (f"fed:{id_}:1", "vision1")
        written_at_s = at(site, "stat", "--format=%Y", f"{SPOOL_DIR}/tickets/{token}")
        assert 60 < int(expires_at_s) - int(written_at_s) <= 121
        assert json.loads(leases(site)[f"{id_}.1"])["user"] == "vision1"
        ls = f"ls {SPOOL_DIR}/tickets 2>&1 || true"
        assert "Permission denied" in at(site, "sh", "-c", ls, user="vision2")
        at(site, "cat", f"{SPOOL_DIR}/tickets/{token}", user="vision2")  # who has it may read it
        gate.open(site)
        row = federation.await_state(id_, "RUNNING")
        within(20, lambda: tickets(site, id_) == {})
        assert f"{id_}.1" in leases(site)
        comment = slurm_job(site, row["site_job_id"])["Comment"]
        assert comment.split()[0] == f"fed:{id_}:1"
        go(site)
        (ended,) = federation.await_end(id_)
        assert ended["state"] == "COMPLETED"
        within(30, lambda: f"{id_}.1" not in leases(site))

    with ThreadPoolExecutor(len(SITES)) as pool:
        list(pool.map(check, SITES))


def test_an_attempt_that_is_cancelled_before_sbatch_leaves_no_lease(
    federation: Running, gate: Gate
) -> None:
    """What sbatch makes of it all the same is ended."""
    ids = one_at_each_site(federation, gate, f"#!/bin/sh\nsleep {LONG_S}\n")

    def check(site: str) -> None:
        federation.run("fscancel", str(ids[site]))
        gate.open(site)
        (row,) = federation.await_end(ids[site])
        assert row["state"] == "CANCELLED"
        within(30, lambda: f"{ids[site]}.1" not in leases(site))
        within(20, lambda: tickets(site, ids[site]) == {})

    with ThreadPoolExecutor(len(SITES)) as pool:
        list(pool.map(check, SITES))


def test_sites_are_told_what_tenants_may_have_and_have(federation: Running) -> None:
    """In admission.tsv of each, a moment after the daemon has come up."""

    def figures(site: str) -> list[list[str]] | None:
        """Once they are there, and new."""
        text = at(site, "sh", "-c", f"cat {SPOOL_DIR}/admission.tsv || true")
        lines = [line.split("\t") for line in text.splitlines()]
        is_new = lines and time.time() - 700 < int(lines[0][2]) <= time.time() + 5
        return lines if is_new else None

    for site in SITES:
        lines = within(20, partial(figures, site))
        assert lines is not None
        assert lines[0][:2] == ["federator-admission", "1"]
        assert ["gpu", "a100", "80", "1"] in lines
        assert {line[1] for line in lines if line[0] == "tenant"} >= {"vision", "nlp", "bio"}
