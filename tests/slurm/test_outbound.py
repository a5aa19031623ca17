"""A site that nobody reaches from outside dials the daemon, and dials again when it is cut off."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.daemons_host import DaemonsHost
from tests.slurm.federation import Running, at, until, within

pytestmark = pytest.mark.slurm

SITE = "alpine"
PLACE = "/tmp/tests-dial"  # at the site: the key, the pinned host key, agent.yaml


class Dialled(Running):
    """A federation of which one site dials."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, pass_interval_s=10.0)
        settings = yaml.safe_load(self.config.read_text())
        del settings["sites"][SITE]["ssh"]
        settings["sites"][SITE]["connect"] = "outbound"
        self.config.write_text(yaml.safe_dump(settings))
        self.host: DaemonsHost | None = None
        self._dialler: subprocess.Popen[bytes] | None = None
        self._pid_file = ""

    def spawn(self) -> None:
        super().spawn()
        self.host = DaemonsHost(self.folder / "host", self.folder / "daemon.sock", SITE)
        self._dial(self.host)

    def _dial(self, host: DaemonsHost) -> None:
        """Start the site's service, as an admin sets it up."""
        settings = yaml.safe_load(at(SITE, "cat", layout.AGENT_CONFIG))
        self._pid_file = f"{settings['state_dir']}/dial.{at(SITE, 'hostname').strip()}"
        daemon = {"host": host.address, "port": host.port}
        paths = {"key": f"{PLACE}/key", "known_hosts": f"{PLACE}/known_hosts"}
        settings["daemons"] = [daemon | paths]
        files = {
            "key": host.key,
            "known_hosts": host.known_hosts,
            "agent.yaml": yaml.safe_dump(settings),
        }
        make = f"rm -rf {PLACE} {self._pid_file}; umask 077; mkdir {PLACE}"
        at(SITE, "sh", "-c", make, user="federator")
        for name, text in files.items():
            put = ("sh", "-c", f"umask 077; cat >{PLACE}/{name}")
            at(SITE, *put, user="federator", stdin=text)
        service = ("agent", "--dial", "--config", f"{PLACE}/agent.yaml")
        argv = ("/opt/federator/bin/federator", *service)
        self._dialler = subprocess.Popen(
            inside.exec_argv(layout.site(SITE), argv, user="federator")
        )

    def tidy(self) -> None:
        """End the site's service first: it would start one agent after the other."""
        try:
            if self._dialler is not None:
                at(SITE, "sh", "-c", f"kill $(cat {self._pid_file}); rm -rf {PLACE}")
                self._dialler.wait(60)
        finally:
            if self.host is not None:
                self.host.close()
            super().tidy()

    def ups(self) -> int:
        """How often a channel to the site came up."""
        lines = self.log().splitlines()
        return sum('"site_up"' in line and f'"{SITE}"' in line for line in lines)


@pytest.fixture
def running(testbed: StateDir, tmp_path: Path) -> Iterator[Dialled]:
    dialled = Dialled(tmp_path)
    for _ in lasting(dialled):
        yield dialled


def test_a_job_of_a_site_that_dials_runs_on_there_while_its_connection_is_cut(
    running: Dialled, go: Callable[..., None]
) -> None:
    script = f"#!/bin/sh\n{until()}"
    command = ("fsbatch", "--parsable", "-N1", "--gres=gpu:1", "--time=5")
    with running.first_is(SITE):
        id_ = int(at(SITE, *command, user="vision1", stdin=script))
        assert running.await_state(id_, "RUNNING")["site"] == SITE
    assert running.host is not None
    before = running.ups()
    running.host.cut()
    within(60, lambda: running.ups() > before and running.all_up())
    go(SITE)
    (row,) = running.await_end(id_)
    assert (row["state"], row["attempt"]) == ("COMPLETED", 1)
