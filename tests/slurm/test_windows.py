"""Reservations and partition states of real clusters: heard within 2 s, and kept to.

What takes minutes at one site takes them at all three at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import msgspec
import pytest

from federator.testbed.layout import StateDir
from federator.wire.client_protocol import SitesCall, SitesReply
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, within

pytestmark = pytest.mark.slurm

SITES = ("alpine", "boreal", "cedar")
BRIEF = ("-N1", "--gres=gpu:8", "--time=1")
LONG = ("-N1", "--gres=gpu:8", "--time=30")
DONE = "#!/bin/sh\ntrue\n"
HEARD_S = 2.0
ENDS_IN_S = 10  # what was known to last for long
ROUNDS = 4  # one at least is not disturbed by others that use the machine


REOPEN = """
for r in fw-1 fw-2; do scontrol delete reservation=$r; done
scontrol update PartitionName=fed State=UP
"""


@pytest.fixture(scope="module")
def lasting_run(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from lasting(Running(tmp_path_factory.mktemp("windows"), pass_interval_s=10.0))


@pytest.fixture
def running(lasting_run: Running) -> Iterator[Running]:
    """The module's; every site is open again when a test is over."""
    try:
        yield lasting_run
    finally:
        for site in SITES:
            at(site, "sh", "-c", REOPEN)
        lasting_run.cancel_all()


def everywhere(act: Callable[[str], None]) -> None:
    with ThreadPoolExecutor(len(SITES)) as pool:
        list(pool.map(act, SITES))


def reserve(site: str, name: str, *words: str, nodes: str = "") -> None:
    at(
        site,
        "scontrol",
        "create",
        "reservation",
        f"reservationname={name}",
        "users=root",
        f"nodes={nodes or f'{site}-g[1-8]'}",
        *words,
    )


def listed(running: Running, site: str) -> dict[str, Any]:
    """The row of ``fsinfo --json``, without the time that the command takes to start."""
    reply = running.ask(SitesCall())
    assert isinstance(reply, SitesReply), reply
    found: dict[str, Any] = msgspec.to_builtins(next(r for r in reply.sites if r.name == site))
    return found


def idle_nodes(running: Running, site: str) -> int:
    return sum(p["nodes_idle"] for p in listed(running, site)["partitions"])


def heard_after(condition: Any) -> float:
    began_s = time.monotonic()
    within(20, condition)
    return time.monotonic() - began_s


def test_nothing_starts_that_would_run_into_a_maintenance(running: Running) -> None:
    def one(site: str) -> None:
        def heard_in_time() -> bool:
            reserve(site, "fw-1", "starttime=now+10minutes", "duration=60", "flags=maint")
            took_s = heard_after(lambda: listed(running, site)["windows"])
            print(f"{site}: heard after {took_s:.2f} s")
            return took_s < 2 * HEARD_S

        for _ in range(ROUNDS):
            if heard_in_time():
                break
            at(site, "scontrol", "delete", "reservation=fw-1")
            within(20, lambda: not listed(running, site)["windows"])
        else:
            pytest.fail(f"{site}: each time heard after {2 * HEARD_S:g} s or later")
        (window,) = listed(running, site)["windows"]
        assert (window["name"], window["maintenance"], len(window["nodes"])) == ("fw-1", True, 8)
        here = f"--nodelist={site}-g1"
        long, endless = (running.submit(DONE, here, *words) for words in (LONG, BRIEF[:2]))
        brief = running.submit(DONE, here, *BRIEF)
        (row,) = running.await_end(brief)
        assert (row["state"], row["site"]) == ("COMPLETED", site)
        for waiting in (long, endless):
            assert running.row(waiting)["state"] == "PENDING"
            said = running.run("fsqueue", "--why", str(waiting)).stdout
            assert "Slurm reservation fw-1 keeps 8 nodes from" in said
        assert "maintenance fw-1: " in running.run("federator", "sites").stdout
        at(site, "scontrol", "delete", "reservation=fw-1")
        gone_s = time.monotonic()
        for waiting in (long, endless):
            (row,) = running.await_end(waiting)
            assert row["state"] == "COMPLETED"
        over_s = time.monotonic() - gone_s
        print(f"{site}: over {over_s:.1f} s after deletion")

    everywhere(one)


def test_jobs_start_again_when_a_maintenance_is_over(running: Running) -> None:
    """One on, one to come that overlaps it and is moved away meanwhile."""

    def one(site: str) -> None:
        reserve(site, "fw-1", "starttime=now", "duration=60", "flags=maint")
        reserve(site, "fw-2", "starttime=now+30minutes", "duration=60", "flags=daily,overlap")
        within(10, lambda: len(listed(running, site)["windows"]) == 2)
        within(10, lambda: idle_nodes(running, site) == 2)
        here = f"--nodelist={site}-g1"
        brief = running.submit(DONE, here, *BRIEF)
        told = ("fsqueue", "--why", str(brief))
        within(20, lambda: "fw-1 keeps 8 nodes" in running.run(*told).stdout)
        long = running.submit(DONE, here, *LONG)
        ends_at_s = int(time.time()) + ENDS_IN_S
        end = at(site, "date", f"--date=@{ends_at_s}", "+%Y-%m-%dT%H:%M:%S").strip()
        at(site, "scontrol", "update", "reservation=fw-1", f"endtime={end}")
        (row,) = running.await_end(brief)
        assert row["state"] == "COMPLETED"
        assert row["started_at_s"] >= ends_at_s
        over_s = time.time() - ends_at_s
        print(f"{site}: the brief one was over {over_s:.1f} s after the maintenance")
        assert running.row(long)["state"] == "PENDING"
        at(site, "scontrol", "update", "reservation=fw-2", "starttime=now+5hours")
        (row,) = running.await_end(long)
        assert row["state"] == "COMPLETED"

    everywhere(one)


@pytest.mark.parametrize("site", SITES)
def test_a_partition_s_state_is_heard_within_two_seconds(running: Running, site: str) -> None:
    def one_round() -> bool:
        took = {}
        for state in ("DOWN", "DRAIN", "INACTIVE"):
            at(site, "scontrol", "update", "PartitionName=fed", f"State={state}")
            took[state] = heard_after(lambda: idle_nodes(running, site) == 0)
            at(site, "scontrol", "update", "PartitionName=fed", "State=UP")
            took[f"UP after {state}"] = heard_after(lambda: idle_nodes(running, site) == 10)
        print(f"{site}: {', '.join(f'{state} {s:.2f} s' for state, s in took.items())}")
        return median(took.values()) < HEARD_S and max(took.values()) < 2 * HEARD_S

    within(20, lambda: idle_nodes(running, site) == 10)
    assert any(one_round() for _ in range(ROUNDS))
