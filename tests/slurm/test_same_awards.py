"""What a daemon awarded on three real Slurm clusters, and what the simulator makes of its log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest

from federator.config import load_config
from federator.model.event import decode_event
from federator.model.site import Snapshot
from federator.model.workload import SiteName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.sim.fleet import Fleet
from federator.sim.importers.log_scenario import Placement, scenario_of_log
from federator.sim.scenario import SimulatedSite
from federator.sim.trace import ReplayOptions
from federator.store.sqlite import SqliteStore
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import SOON_S, Running, until, within

pytestmark = pytest.mark.slurm
SHAPES = (
    ("--gres=gpu:1", "--nodes=1"),
    ("--gres=gpu:8", "--nodes=2"),
    ("--gres=gpu:3", "--nodes=1"),
    ("--gpus=20",),
    ("--gres=gpu:8", "--nodes=4"),
    ("--gres=gpu:2", "--nodes=1", "--cpus-per-task=4"),
)
EVERY_S = 2.0  # a submission, or an end; every site has been swept meanwhile


@pytest.fixture
def fleet(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    yield from lasting(Running(tmp_path))


def empty_site(running: Running, name: str) -> SimulatedSite:
    told = running.run("federator", "snapshot", name, "--json")
    assert told.returncode == 0, told.stderr
    snapshot = msgspec.json.decode(told.stdout, type=Snapshot)
    assert not snapshot.running
    assert not snapshot.local
    return SimulatedSite(name=SiteName(name), nodes=snapshot.nodes, switches=snapshot.switches)


def none_is_at_work(running: Running, ids: list[int]) -> bool:
    return {row["state"] for row in running.rows(*ids)} <= {"PENDING", "COMPLETED"}


def end_one_after_the_other(running: Running, go: Callable[..., None], ids: list[int]) -> None:
    """Each when what the end before has led to is over: a job that starts late ends at once."""
    for k in range(len(ids)):
        go(word=f"end-{k}")
        for _ in range(2):  # what waited may start now
            within(90, partial(none_is_at_work, running, ids[: k + 1]), SOON_S)
            time.sleep(EVERY_S / 2)


def test_the_simulator_gives_the_same_awards_for_the_daemons_log(
    fleet: Running, go: Callable[..., None]
) -> None:
    """No job ends before the last is submitted, and no two end together.

    What of an end and a submission came first, that were on their way together, is not in the log.
    """
    config = load_config(fleet.config)
    sites = tuple(empty_site(fleet, name) for name in config.sites)
    ids = []
    for k in range(18):
        began_s = time.monotonic()
        script = f"#!/bin/sh\n{until(f'end-{k}')}"
        ids.append(fleet.submit(script, "--time=20", *SHAPES[k % len(SHAPES)]))
        time.sleep(max(EVERY_S / 2, EVERY_S - (time.monotonic() - began_s)))
    end_one_after_the_other(fleet, go, ids)
    fleet.await_end(*ids)
    fleet.stop()
    with closing(SqliteStore(fleet.folder / "queue.db")) as store:
        events = [decode_event(record) for record in store.records()]
    lived = scenario_of_log(events, sites, tuple(config.tenancy().tenants))
    again = Fleet(lived.scenario, Mast(), Rules(), options=ReplayOptions(keep_awards=True))
    again.run()
    awards = sorted(again.awards, key=lambda award: award.attempt.workload)
    assert tuple(map(Placement.of, awards)) == lived.placements
    assert len({placement.site for placement in lived.placements}) > 1
