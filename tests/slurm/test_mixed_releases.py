"""Daemon and sites one release apart, on real Slurm of three generations, whichever is older.

Of the older release a site has all: agent, helper, and the hooks of its compute nodes.
``tests/unit/test_mixed_releases.py`` tries more of it, with programs that stand for Slurm's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import docker
import pytest

from federator import __version__
from federator.testbed import layout, package
from federator.testbed.layout import StateDir
from tests.fakes.releases import START, NoSuchCommit, unpack_previous
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, starts, traced, until, within

pytestmark = pytest.mark.slurm

SITES = tuple(site.name for site in layout.SITES)
# What a site gets of a tree, beside the package.
OF_SITES = ("containers", "job_submit", "prolog_epilog", "pyproject.toml", "slurm_plugins")
_INSTALL = """
from contextlib import closing
import docker
from federator.testbed import layout, package
with closing(docker.from_env()) as client:
    for site in layout.SITES:
        assert package.install(client.containers.get(site.container))
"""


class OfRelease(Running):
    """A federation whose daemon is of another tree, while there is one."""

    older: Path | None = None

    def spawn(self) -> None:
        if self.older is None:
            super().spawn()
            return
        start = self.folder / "start.py"
        start.write_text(START)
        words = (str(self.older), "", "main", "daemon", "--config", str(self.config))
        with (self.folder / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(start), *words, *self.options],
                env={**os.environ, "PYTHONPATH": str(self.older)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def ups(self) -> int:
        """How often a site came up."""
        return self.log().count('"site_up"')


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the release before this one."""
    try:
        folder = tmp_path_factory.mktemp("previous")
        return unpack_previous(folder, *OF_SITES, "tests/data/nvidia_smi")
    except NoSuchCommit as error:
        pytest.skip(f"the release before this one is not in this checkout: {error}")


@pytest.fixture
def running(testbed: StateDir, tmp_path: Path) -> Iterator[OfRelease]:
    """Not started; at its end the sites are of this release."""
    made = OfRelease(tmp_path, pass_interval_s=10.0)
    try:
        yield made
    finally:
        install_new()


def install_new() -> None:
    """Have the sites be of this release."""

    def install(site: layout.SiteLayout) -> None:
        with closing(docker.from_env()) as client:
            package.install(client.containers.get(site.container))

    with ThreadPoolExecutor(len(SITES)) as pool:
        list(pool.map(install, layout.SITES))


def install_old(tree: Path) -> None:
    """Have the sites be of another tree."""
    argv = [sys.executable, "-P", "-c", _INSTALL]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr


def running_at_each(running: OfRelease, number: int) -> list[list[int]]:
    """Jobs that run, as many at each site."""
    found = []
    for site in SITES:
        with running.closed(*(other for other in SITES if other != site)):
            script = f"{traced()}{until()}"
            found.append([running.submit(script, "-N1", "--gres=gpu:1") for _ in range(number)])
            for id_ in found[-1]:
                assert running.await_state(id_, "RUNNING")["site"] == site
    return found


def live_through(running: OfRelease, upgrade: Callable[[], None], go: Callable[..., None]) -> None:
    """Jobs at every site run, are cancelled, are evicted, and see the older side upgraded."""
    run, cancelled, evicted = zip(*running_at_each(running, 3), strict=True)
    assert running.run("fscancel", *map(str, cancelled)).returncode == 0
    assert running.run("fscontrol", "requeue", ",".join(map(str, evicted))).returncode == 0
    assert {row["state"] for row in running.await_end(*cancelled)} == {"CANCELLED"}

    def again() -> bool:
        rows = running.rows(*evicted)
        return all((row["state"], row["attempt"]) == ("RUNNING", 2) for row in rows)

    within(90, again)
    upgrade()
    assert {row["state"] for row in running.rows(*run, *evicted)} == {"RUNNING"}
    later = [id_ for ids in running_at_each(running, 1) for id_ in ids]
    go()
    ended = running.await_end(*run, *evicted, *later)
    assert {row["state"] for row in ended} == {"COMPLETED"}
    begun = [(id_, attempt) for id_, attempt, *_ in starts(*run, *cancelled, *evicted, *later)]
    once = [(id_, 1) for id_ in (*run, *cancelled, *evicted, *later)]
    assert begun == sorted([*once, *((id_, 2) for id_ in evicted)])
    assert '"link_fault"' not in running.log()


def test_sites_of_the_release_before_serve_this_daemon_and_are_upgraded_under_running_jobs(
    old: Path, running: OfRelease, go: Callable[..., None]
) -> None:
    install_old(old)

    def upgrade() -> None:
        running.kill()
        running.start()  # the sites are the older ones yet
        before = running.ups()
        install_new()
        within(90, lambda: running.ups() >= before + len(SITES) and running.all_up())
        assert {site.agent_release for site in running.sites()} == {__version__}

    for _ in lasting(running):
        live_through(running, upgrade, go)


def test_a_daemon_of_the_release_before_is_served_by_these_sites_and_is_upgraded(
    old: Path, running: OfRelease, go: Callable[..., None]
) -> None:
    running.older = old

    def upgrade() -> None:
        running.kill()
        running.start()
        running.kill()
        running.older = None
        running.start()

    for _ in lasting(running):
        live_through(running, upgrade, go)
