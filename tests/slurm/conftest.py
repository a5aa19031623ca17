"""Fixtures of the tests that need real Slurm: a clean testbed and a daemon on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.testbed import cluster, layout
from federator.testbed.layout import StateDir
from tests.slurm.federation import Running, at, within


@pytest.fixture(scope="session")
def testbed() -> StateDir:
    """The three sites, up."""
    state = StateDir.default()
    cluster.up(state, layout.SITES, lambda _site, _doing: None)
    return state


def clear() -> None:
    """End every job at every site and wait until the nodes are idle again."""
    for site in layout.SITES:
        for partition in ("fed", "local"):
            at(site.name, "scancel", f"--partition={partition}")
    for site in layout.SITES:
        within(30, lambda name=site.name: not at(name, "squeue", "--noheader"))  # type: ignore[misc]


@pytest.fixture
def federation(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    """A daemon with an empty log; a short lease, so that withdrawing can be waited for."""
    clear()
    running = Running(tmp_path, launch_lease_s=6.0, pass_interval_s=10.0)
    running.start()
    yield running
    running.stop()
    clear()
