"""A site has two login nodes; the one that serves it stands still with launches in flight."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest
import yaml

from federator.testbed.entry import entry_to
from federator.testbed.layout import NETWORK, StateDir, site
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, agents, at, starts, traced, within
from tests.slurm.gate import Gate
from tests.slurm.login_nodes import OTHER, login_node, up_from

pytestmark = pytest.mark.slurm

SITE = "alpine"
PORT = 2222
PID_FILE = "/run/sshd-login2.pid"
# Files and Slurm are the site's.
_BEGIN = f"""
grep -q {OTHER} /etc/hosts || echo 127.0.0.1 {OTHER} >>/etc/hosts
exec unshare --uts sh -c 'hostname {OTHER}; exec /usr/sbin/sshd -p {PORT} -o PidFile={PID_FILE}'
"""
_END = f"[ ! -e {PID_FILE} ] || kill $(cat {PID_FILE})"


class TwoLoginNodes(Running):
    """A federation one site of which has a second login node."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, pass_interval_s=10.0)
        settings = yaml.safe_load(self.config.read_text())
        ssh = settings["sites"][SITE]["ssh"]
        address = _address(SITE)
        key = at(SITE, "cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[:2]
        known = folder / "known_hosts"
        known.write_text(
            Path(ssh["known_hosts"]).read_text() + f"[{address}]:{PORT} {' '.join(key)}\n"
        )
        ssh |= {"standbys": [f"{address}:{PORT}"], "known_hosts": str(known)}
        self.config.write_text(yaml.safe_dump(settings))

    def spawn(self) -> None:
        if entry_to(site(SITE).container) is not None:  # as root, who may rename what is unshared
            at(SITE, "sh", "-ec", _BEGIN)
        else:
            argv = ("docker", "exec", "--privileged", site(SITE).container, "sh", "-ec", _BEGIN)
            subprocess.run(argv, check=True, timeout=120)
        super().spawn()

    def tidy(self) -> None:
        try:
            super().tidy()
        finally:
            at(SITE, "sh", "-c", _END)


def signal_all(agent: int, name: str) -> None:
    """To what the first login node has of the federation: its sshd, which lets in, and an agent."""
    at(SITE, "sh", "-c", f"kill -{name} {agent} $(cat /run/sshd.pid)")


def _address(name: str) -> str:
    with closing(docker.from_env()) as client:
        networks = client.containers.get(site(name).container).attrs["NetworkSettings"]["Networks"]
    address: str = networks[NETWORK]["IPAddress"]
    return address


@pytest.fixture
def running(testbed: StateDir, tmp_path: Path) -> Iterator[TwoLoginNodes]:
    federation = TwoLoginNodes(tmp_path)
    for _ in lasting(federation):
        yield federation


def test_another_login_node_takes_over_with_launches_in_flight_and_nothing_runs_twice(
    running: TwoLoginNodes, gate: Gate
) -> None:
    """The agent that stood still wakes up while its sbatch is still to be called."""
    first = login_node(running, SITE)
    assert first not in ("", OTHER)
    gate.close(SITE)
    ids = [running.submit(traced(), "--gres=gpu:1", "--nodes=1") for _ in range(4)]
    within(60, lambda: gate.held(SITE))
    (stopped,) = agents(SITE)
    signal_all(stopped, "STOP")
    began_s = float(at(SITE, "date", "+%s.%N"))
    try:
        within(60, lambda: up_from(running, SITE, OTHER))
    finally:
        signal_all(stopped, "CONT")
        gate.open(SITE)
    took_s = (up_from(running, SITE, OTHER) or 0.0) - began_s
    print(f"served from {OTHER} {took_s:.1f} s after the agent was stopped")
    rows = running.await_end(*ids)
    assert {row["state"] for row in rows} == {"COMPLETED"}
    assert [start[0] for start in starts(*ids)] == sorted(ids)  # each once
    assert login_node(running, SITE) == OTHER
    within(30, lambda: stopped not in agents(SITE))  # it has found out
