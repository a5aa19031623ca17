"""Evictions on real clusters: how many guests may go, and an owner's rights.

``bio`` has no quota here, so whatever it runs may be evicted for ``vision`` and ``nlp``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import LONG_S, SOON_S, Row, Running, until, within
from tests.slurm.guests import (
    BUSY_S,
    GRACE_S,
    NODE,
    TENANTS,
    fill,
    preemption,
    resumed,
    saver,
    start_of,
    steps_of,
)

pytestmark = pytest.mark.slurm

STAYS = f"#!/bin/sh\nsleep {LONG_S}\n"
ENDS = f"#!/bin/sh\n{until()}"  # when it is told to


@pytest.fixture
def thrifty(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """Of its 192 GPUs 17 may be evicted in an hour: two nodes."""
    settings = preemption(budget_frac=0.09, budget_window_s=3600.0)
    yield from lasting(
        Running(tmp_path, tenants=TENANTS, pass_interval_s=10.0, preemption=settings)
    )


def test_a_storm_of_submissions_evicts_no_more_than_the_budget(thrifty: Running) -> None:
    def running(ids: list[int]) -> int:
        return sum(row["state"] == "RUNNING" for row in thrifty.rows(*ids))

    guests = fill(thrifty, saver())
    firsts = [thrifty.submit(STAYS, *NODE, "--array=1-5", user="nlp1") for _ in range(10)]
    storm = [first + task for first in firsts for task in range(5)]
    within(90, lambda: running(storm) == 2)
    time.sleep(15)  # a pass or two later
    assert (running(storm), running(guests)) == (2, 6)


WINDOW_S = 40.0


@pytest.fixture
def staged(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """Two of cedar's nodes may be evicted in each window of 40 s."""
    settings = preemption(budget_frac=0.09, budget_window_s=WINDOW_S)
    yield from lasting(
        Running(tmp_path, tenants=TENANTS, pass_interval_s=10.0, preemption=settings)
    )


def test_a_large_gang_gets_its_nodes_back_from_many_guests_over_several_windows(
    staged: Running, go: Callable[..., None]
) -> None:
    guests = fill(staged, saver())
    began_s = time.monotonic()
    gang = staged.submit(ENDS, "-N6", "--gres=gpu:h100:8", user="nlp1")
    within(
        30, lambda: "come free for it at cedar" in staged.run("fsqueue", "--why", str(gang)).stdout
    )

    def two_have_left() -> bool:
        return [row["state"] for row in staged.rows(*guests)].count("RUNNING") == 6

    within(30, two_have_left, SOON_S)
    assert staged.row(gang)["state"] == "PENDING"  # nobody is on their nodes
    staged.kill()  # the claim is in the log
    staged.start()
    row, _ = start_of(staged, gang, 2 * WINDOW_S + 90.0)
    assert time.monotonic() - began_s <= 2 * WINDOW_S + GRACE_S + BUSY_S
    assert len(row["node_names"]) == 6
    go("cedar")
    within(90, lambda: all(r["state"] == "RUNNING" for r in staged.rows(*guests)))
    evicted = [id_ for id_ in guests if staged.row(id_)["attempt"] > 1]
    assert len(evicted) == 6
    for id_ in evicted:
        resumed(id_)


def test_a_guest_larger_than_the_budget_leaves_and_is_paid_for_in_the_windows_that_follow(
    staged: Running, go: Callable[..., None]
) -> None:
    guest = staged.submit(saver(), "-N8", "--gres=gpu:h100:8", user="bio1")
    staged.await_state(guest, "RUNNING")
    within(60, lambda: len(steps_of(guest)) > 1)
    gang = staged.submit(ENDS, "-N6", "--gres=gpu:h100:8", user="nlp1")
    _, waited_s = start_of(staged, gang)
    assert waited_s <= GRACE_S + BUSY_S
    shown = staged.run("federator", "status").stdout
    assert "1 with 64 GPUs" in shown
    assert "0 of 17.28 GPUs of the budget left, all in" in shown
    go("cedar")
    staged.await_state(guest, "RUNNING", timeout_s=90.0)
    resumed(guest)


@pytest.fixture
def in_time(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """The budget of ten minutes is two of cedar's nodes; nlp is to start within a minute."""
    settings = preemption(budget_frac=0.09, budget_window_s=600.0)
    tenants: dict[str, Row] = {**TENANTS, "nlp": {"start_within_s": 60}}
    yield from lasting(
        Running(tmp_path, tenants=tenants, pass_interval_s=10.0, preemption=settings)
    )


def test_an_owner_with_a_start_objective_has_its_nodes_back_beyond_the_budget(
    in_time: Running, go: Callable[..., None]
) -> None:
    guests = fill(in_time, saver())
    gang = in_time.submit(ENDS, "-N6", "--gres=gpu:h100:8", user="nlp1")
    row, waited_s = start_of(in_time, gang)
    assert waited_s < 60.0 + BUSY_S  # of ten minutes, were it for the budget
    assert len(row["node_names"]) == 6
    assert "32 GPUs beyond it for start objectives" in in_time.run("federator", "status").stdout
    go("cedar")
    within(90, lambda: all(r["state"] == "RUNNING" for r in in_time.rows(*guests)))
    evicted = [id_ for id_ in guests if in_time.row(id_)["attempt"] > 1]
    assert len(evicted) == 6
    for id_ in evicted:
        resumed(id_)


@pytest.fixture
def with_homes(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """nlp owns cedar, vision the west, though its priority is higher."""
    homes = {
        "nlp": {"quota": {"gpus": 64}, "home": ["cedar"]},
        "vision": {"quota": {"gpus": 64}, "home": ["alpine", "boreal"]},
    }
    yield from lasting(
        Running(tmp_path, tenants=homes, pass_interval_s=10.0, preemption=preemption())
    )


def test_an_owner_has_its_home_back_from_work_within_the_quota_of_others(
    with_homes: Running, go: Callable[..., None]
) -> None:
    guests = [with_homes.submit(saver(), *NODE, user="vision1") for _ in range(8)]
    for id_ in guests:
        with_homes.await_state(id_, "RUNNING")
    within(60, lambda: all(len(steps_of(id_, user="vision1")) > 1 for id_ in guests))
    gang = with_homes.submit(ENDS, "-N2", "--gres=gpu:h100:8", user="nlp1")
    row, waited_s = start_of(with_homes, gang)
    assert row["site"] == "cedar"
    assert waited_s < GRACE_S + BUSY_S
    go("cedar")
    within(90, lambda: all(r["state"] == "RUNNING" for r in with_homes.rows(*guests)))
    evicted = [id_ for id_ in guests if with_homes.row(id_)["attempt"] > 1]
    assert len(evicted) == 2
    for id_ in evicted:
        resumed(id_, user="vision1")
