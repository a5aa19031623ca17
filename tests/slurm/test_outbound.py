"""A site that nobody reaches from outside dials the daemon, and dials again when cut off."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncssh
import docker
import pytest
import yaml

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import BIN, Running, at, until, within

pytestmark = pytest.mark.slurm

PLACE = "/tmp/tests-dial"  # at the site: the key, the pinned host key, agent.yaml
PID = "/var/lib/federator/dial"


class DaemonsHost:
    """sshd on the daemon's host, with one key whose forced command attaches alpine."""

    def __init__(self, socket: Path) -> None:
        self._attach = (str(BIN / "federator"), "site", "attach", "alpine", "--socket", str(socket))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._open: set[Any] = set()
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.address = self._gateway()
        self.port = self._run(self._listen())

    def _gateway(self) -> str:
        network = docker.from_env().networks.get(layout.NETWORK)
        address: str = network.attrs["IPAM"]["Config"][0]["Gateway"]
        return address

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> int:
        self._server = await asyncssh.listen(
            self.address,
            0,
            server_host_keys=[self.host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(
                self.key.export_public_key().decode()
            ),
            process_factory=self._serve,
            encoding=None,
        )
        port: int = self._server.get_port()
        return port

    async def _serve(self, session: asyncssh.SSHServerProcess[bytes]) -> None:
        connection = session.get_extra_info("connection")
        self._open.add(connection)
        pipe = asyncio.subprocess.PIPE
        attach = await asyncio.create_subprocess_exec(
            *self._attach, stdin=pipe, stdout=pipe, stderr=pipe
        )
        await session.redirect(attach.stdin, attach.stdout, attach.stderr)
        status = await attach.wait()
        self._open.discard(connection)
        with contextlib.suppress(OSError):
            session.exit(status)

    async def _cut(self) -> None:
        for connection in list(self._open):
            connection.abort()

    def cut(self) -> None:
        """Break every connection, without a word to anybody."""
        self._run(self._cut())

    async def _close(self) -> None:
        self._server.close()
        await self._cut()

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)


class Dialled(Running):
    """A federation whose alpine dials."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, pass_interval_s=10.0)
        settings = yaml.safe_load(self.config.read_text())
        del settings["sites"]["alpine"]["ssh"]
        settings["sites"]["alpine"]["connect"] = "outbound"
        self.config.write_text(yaml.safe_dump(settings))
        self.host = DaemonsHost(folder / "daemon.sock")
        self._dialler: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        super().spawn()
        self._dialler = dial(self.host)

    def tidy(self) -> None:
        """End the site's service first: it would start one agent after the other."""
        if self._dialler is not None:
            at("alpine", "sh", "-c", f"kill $(cat {PID}); rm -rf {PLACE}")
            self._dialler.wait(60)
        self.host.close()
        super().tidy()


@pytest.fixture
def running(testbed: StateDir, tmp_path: Path) -> Iterator[Dialled]:
    dialled = Dialled(tmp_path)
    for _ in lasting(dialled):
        yield dialled


def dial(host: DaemonsHost) -> subprocess.Popen[bytes]:
    """Start the site's service, as an admin sets it up."""
    settings = yaml.safe_load(at("alpine", "cat", layout.AGENT_CONFIG))
    settings["daemons"] = [
        {
            "host": host.address,
            "port": host.port,
            "user": "federator",
            "key": f"{PLACE}/key",
            "known_hosts": f"{PLACE}/known_hosts",
        }
    ]
    known = f"[{host.address}]:{host.port} {host.host_key.export_public_key().decode()}"
    files = {
        "key": host.key.export_private_key().decode(),
        "known_hosts": known,
        "agent.yaml": yaml.safe_dump(settings),
    }
    make = f"rm -rf {PLACE}; umask 077; mkdir {PLACE}"
    at("alpine", "sh", "-c", make, user="federator")
    for name, text in files.items():
        put = ("sh", "-c", f"umask 077; cat >{PLACE}/{name}")
        at("alpine", *put, user="federator", stdin=text)
    command = ("/opt/federator/bin/federator", "agent", "--dial", "--config", f"{PLACE}/agent.yaml")
    return subprocess.Popen(inside.exec_argv(layout.site("alpine"), command, user="federator"))


def ups(running: Running) -> int:
    return sum('"site_up"' in line and '"alpine"' in line for line in running.log().splitlines())


def test_a_job_runs_at_a_site_that_dials_though_its_link_is_cut_meanwhile(
    running: Dialled, go: Callable[..., None]
) -> None:
    id_ = running.submit(
        f"#!/bin/sh\n{until()}\n", "-N1", "--gres=gpu:1", "--clusters=alpine", "--time=5"
    )
    assert running.await_state(id_, "RUNNING")["site"] == "alpine"
    before = ups(running)
    running.host.cut()
    within(60, lambda: ups(running) > before)
    assert '"replaces": true' not in running.log()  # the cut one had ended by then
    go("alpine")
    (row,) = running.await_end(id_)
    assert (row["state"], row["attempt"]) == ("COMPLETED", 1)
    asked = ("fsbatch", "--parsable", "-N1", "--wrap", "true")
    there = inside.execute(layout.site("alpine"), asked, user="vision1")
    assert there.exit_status == 0, there.stderr
    running.await_end(int(there.stdout))
