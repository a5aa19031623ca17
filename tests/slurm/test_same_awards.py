"""What a daemon awarded on three real Slurm clusters, and what the simulator makes of its log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
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
from tests.slurm.federation import Running, until

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


@contextmanager
def at_least(seconds: float) -> Iterator[None]:
    """What takes less time is waited for as long."""
    began_s = time.monotonic()
    yield
    time.sleep(max(seconds / 2, seconds - (time.monotonic() - began_s)))


def test_the_simulator_gives_the_same_awards_for_the_daemons_log(
    fleet: Running, go: Callable[..., None]
) -> None:
    """Jobs end one by one, when all are submitted, each when it is told to.

    What of two that were on their way together came first is not in the log.
    """
    config = load_config(fleet.config)
    sites = tuple(empty_site(fleet, name) for name in config.sites)
    ids = []
    for k in range(18):
        script = f"#!/bin/sh\n{until(f'end-{k}')}"
        with at_least(EVERY_S):
            ids.append(fleet.submit(script, "--time=30", *SHAPES[k % len(SHAPES)]))
    for k, id_ in enumerate(ids):
        row = fleet.await_state(id_, "RUNNING")
        with at_least(EVERY_S):
            go(row["site"], word=f"end-{k}")
            (ended,) = fleet.await_end(id_)
            assert ended["state"] == "COMPLETED"
    fleet.stop()
    with closing(SqliteStore(fleet.folder / "queue.db")) as store:
        events = [decode_event(record) for record in store.records()]
    lived = scenario_of_log(events, sites, tuple(config.tenancy().tenants))
    again = Fleet(lived.scenario, Mast(), Rules(), options=ReplayOptions(keep_awards=True))
    again.run()
    awards = sorted(again.awards, key=lambda award: award.attempt.workload)
    assert tuple(map(Placement.of, awards)) == lived.placements
    assert len({placement.site for placement in lived.placements}) > 1
