"""A small job moves on a real cluster, so that a gang fits that had enough GPUs, and no two nodes.

Three nodes of cedar are left: one is free, two are half used. The two halves go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Row, Running, at, take_all, until, within
from tests.slurm.guests import preemption, resumed, saver, start_of, steps_of

pytestmark = pytest.mark.slurm

SITE, REGION = "cedar", "east"  # only it has h100
SMALL, SMALL_USER = ("-N1", "--gres=gpu:h100:4", "--time=60"), "vision2"
GANG = ("-N2", "--gres=gpu:h100:8", "--time=60")
LEFT = 3  # of the nodes; local users have the others


@pytest.fixture
def moving(testbed: StateDir, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A federation with ``policy.defragment.mode`` as the parameter says."""
    running = Running(
        tmp_path,
        pass_interval_s=10.0,
        preemption=preemption(grace_s=30.0, cooldown_s=600.0),
        defragment={"mode": request.param},
    )
    for _ in lasting(running):
        take_all(SITE, f"--nodes={layout.GPU_NODES.count - LEFT}")
        within(90, lambda: at(SITE, "squeue", "--noheader", "--states=R", "--partition=local"))
        yield running


def has_begun(id_: int) -> bool:
    return len(steps_of(id_, REGION, SMALL_USER)) > 1


def halves(running: Running) -> tuple[Row, Row]:
    """Two jobs at work, each on half of a node of its own: who shared these has ended."""
    ids = [running.submit(saver(), *SMALL, user=SMALL_USER) for _ in range(4)]
    rows = [running.await_state(id_, "RUNNING") for id_ in ids]
    by_node = {row["node_names"][0]: row for row in rows}
    assert len(by_node) == 2, rows  # the tightest places: two on each
    first, second = by_node.values()
    others = [str(id_) for id_ in ids if id_ not in (first["id"], second["id"])]
    for row in (first, second):
        within(60, partial(has_begun, row["id"]))
    running.run("fscancel", *others)
    running.await_end(*map(int, others))
    return first, second


@pytest.mark.parametrize("moving", ["on"], indirect=True)
def test_two_halves_of_nodes_go_together_so_that_a_gang_starts(
    moving: Running, go: Callable[..., None], record_property: Callable[[str, object], None]
) -> None:
    small = {row["id"]: row["node_names"] for row in halves(moving)}
    gang = moving.submit(f"#!/bin/sh\n{until()}", *GANG, user="vision1")
    row, waited_s = start_of(moving, gang)
    (mover,) = [row["id"] for row in moving.rows(*small) if has_left(row)]
    (stayer,) = small.keys() - {mover}

    moved = moving.await_state(mover, "RUNNING")
    assert moved["node_names"] == small[stayer]  # beside the other
    assert small[mover][0] in row["node_names"]
    resumed(mover, REGION, SMALL_USER)  # no step lost, none twice
    stayed = moving.row(stayer)
    assert (stayed["state"], stayed["attempt"]) == ("RUNNING", 1)
    for each in moving.rows(gang, mover, stayer):  # as Slurm has it
        asked = ("squeue", "--noheader", f"--jobs={each['site_job_id']}", "--format=%N")
        there = at(SITE, "scontrol", "show", "hostnames", at(SITE, *asked).strip())
        assert sorted(there.split()) == sorted(each["node_names"])
    record_property("waited_s", waited_s)
    print(f"the gang started after {waited_s:.1f} s")
    go(SITE)
    moving.await_end(gang)


@pytest.mark.parametrize("moving", ["advisory"], indirect=True)
def test_advice_names_the_move_and_nobody_moves(moving: Running) -> None:
    small = [row["id"] for row in halves(moving)]
    gang = moving.submit(f"#!/bin/sh\n{until()}", *GANG, user="vision1")
    said = within(60, lambda: told(moving, gang, "moved to other nodes"))
    assert SITE in said
    assert moving.row(gang)["state"] == "PENDING"
    assert not any(has_left(row) for row in moving.rows(*small))


def told(running: Running, id_: int, word: str) -> str:
    said = running.run("federator", "explain", str(id_)).stdout
    return said if word in said else ""


def has_left(row: Row) -> bool:
    return bool(row["attempt"] > 1 or row["state"] != "RUNNING")
