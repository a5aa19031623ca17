"""A service manager learns that the daemon is ready, alive and ending; a hung one is not alive."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path

import pytest

from federator.config import load_config
from federator.daemon.daemon import Daemon
from federator.daemon.edges import DaemonEdges
from federator.daemon.links import SiteLink
from federator.daemon.loop import Term
from federator.daemon.supervisor import Supervisor
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.message import Command, Tick
from federator.store.memory import MemoryStore
from tests.fakes.nowhere import Nowhere

CONFIG = """
federation: demo
store: "memory:"
socket: daemon.sock
regions: {west: {shared: /shared}}
sites:
  alpine:
    region: west
    ssh: {host: 127.0.0.1, port: 1, key: absent, known_hosts: absent}
    partitions: [gpu]
"""


class Manager:
    """Stands for systemd: the socket, and what was said to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def heard(self) -> list[str]:
        said = []
        while True:
            try:
                said.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    listening = Manager(str(tmp_path / "notify"))
    yield listening
    listening.close()


@pytest.fixture
def no_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(_link: SiteLink) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(SiteLink, "run", deaf)


async def at_once(call: Callable[..., object], *arguments: object) -> object:
    """Without a thread: virtual time would leap over what it has not done yet."""
    return call(*arguments)


def daemon_of(folder: Path, supervisor: Supervisor) -> Daemon:
    path = folder / "federation.yaml"
    path.write_text(CONFIG)
    edges = DaemonEdges(act=at_once, transport_of=lambda _site: Nowhere())
    return Daemon(load_config(path), MemoryStore(), supervisor, edges)


@pytest.mark.usefixtures("no_sites")
def test_the_manager_is_told_ready_alive_and_stopping(tmp_path: Path, manager: Manager) -> None:
    daemon = daemon_of(tmp_path, Supervisor(address=manager.address, watchdog_s=30.0))

    async def serve() -> None:
        running = asyncio.create_task(daemon.run())
        await asyncio.sleep(35.0)
        daemon.stop()
        await running

    run_virtual(VirtualClock(), serve())
    ready, *rest = manager.heard()
    assert ready.startswith("READY=1\nSTATUS=leads, epoch ")
    assert rest == [*["WATCHDOG=1"] * 3, "STOPPING=1"]


@pytest.mark.usefixtures("no_sites")
def test_a_daemon_whose_turn_hangs_does_not_say_that_it_is_alive(
    tmp_path: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = daemon_of(tmp_path, Supervisor(address=manager.address, watchdog_s=30.0))
    as_ever, mended = Term._carry_out, asyncio.Event()

    async def hang(term: Term, commands: Sequence[Command]) -> None:
        if any("READY=1" in said for said in manager.heard()):
            await mended.wait()
        await as_ever(term, commands)

    monkeypatch.setattr(Term, "_carry_out", hang)

    async def serve() -> list[str]:
        running = asyncio.create_task(daemon.run())
        await asyncio.sleep(1.0)
        assert daemon.term is not None
        daemon.term.inbox.put(Tick())
        await asyncio.sleep(120.0)
        said = manager.heard()
        mended.set()
        daemon.stop()
        await running
        return said

    assert run_virtual(VirtualClock(), serve()) == ["WATCHDOG=1"]  # before its patience was over


def test_what_the_daemon_starts_cannot_speak_for_it() -> None:
    environment = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "120000000", "HOME": "/"}
    taken = Supervisor.taken_from(environment, os.getpid())
    assert (taken.address, taken.watchdog_s) == ("/run/n", 120.0)
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-5"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
    ],
)
def test_a_watchdog_that_is_absent_odd_or_anothers_does_not_bind(
    environment: dict[str, str],
) -> None:
    assert Supervisor.taken_from(environment, 4711).watchdog_s == inf


def test_a_manager_in_the_abstract_namespace_is_reached() -> None:
    listening = Manager(f"@federator-test-{os.getpid()}")
    Supervisor(address=listening.address).tell("READY=1")
    assert listening.heard() == ["READY=1"]
    listening.close()


def test_a_manager_that_is_gone_is_no_reason_to_end(tmp_path: Path) -> None:
    Supervisor(address=str(tmp_path / "absent")).tell("READY=1")
    Supervisor().tell("READY=1")
