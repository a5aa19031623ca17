"""Fixtures of the tests that need real Slurm: a clean testbed, and daemons on it.

``federation`` is shared by the tests of a module and meant for those that submit and look;
``alone`` is one test's own and may be killed. Never both in one module: a site has one agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from federator.testbed import cluster, layout
from federator.testbed.layout import StateDir
from tests.slurm.federation import AGENT, GO, Running, at, close_again, within
from tests.slurm.gate import Gate, restore

_CLEAR = f"""
scancel --partition=fed; scancel --partition=local
squeue --noheader; pgrep --list-full --exact --full '{AGENT}' || true
"""


@pytest.fixture(scope="session")
def testbed() -> StateDir:
    """The three sites, up; what a run that was killed left behind is mended."""
    state = StateDir.default()
    cluster.up(state, layout.SITES, lambda _site, _doing: None)
    for site in layout.SITES:
        restore(site.name)
        close_again(site.name)
    return state


def clear() -> None:
    """End every job at every site and wait until queues are empty and no agent is left."""

    def empty(site: str) -> None:
        within(120, lambda: not at(site, "sh", "-c", _CLEAR))

    with ThreadPoolExecutor(len(layout.SITES)) as pool:
        list(pool.map(empty, [site.name for site in layout.SITES]))


def lasting(running: Running) -> Iterator[Running]:
    """Start it, and leave no trace of it whatever happens meanwhile."""
    clear()
    try:
        running.start()
        yield running
    finally:
        try:
            running.tidy()
        finally:
            running.stop()
            clear()


@pytest.fixture(scope="module")
def shared(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from lasting(Running(tmp_path_factory.mktemp("shared")))


@pytest.fixture
def federation(shared: Running) -> Iterator[Running]:
    """The module's daemon; what a test leaves at work is cancelled."""
    yield shared
    shared.cancel_all()


@pytest.fixture
def alone(testbed: StateDir, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A daemon with an empty log. Its lease in seconds is the parameter, if a test waits for it."""
    lease_s = getattr(request, "param", 30.0)
    yield from lasting(Running(tmp_path, launch_lease_s=lease_s, pass_interval_s=10.0))


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.remove()


@pytest.fixture
def go(testbed: StateDir) -> Iterator[Callable[..., None]]:
    """Tells a word to the jobs of these sites, or of all, that wait for it (``until``)."""
    every = [site.name for site in layout.SITES]

    def tell(*sites: str, word: str = "end") -> None:
        for site in sites or every:
            at(site, "touch", f"{GO}/{word}")

    for site in every:
        at(site, "sh", "-c", f"rm -rf {GO} && mkdir -m 755 {GO}")
    yield tell
    for site in every:
        at(site, "rm", "-rf", GO)
