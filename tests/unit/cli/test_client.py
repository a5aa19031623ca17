"""A command knows whether the daemon was asked or could not be, before it says anything."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.cli import client
from federator.cli.client import NoAnswer, call
from federator.errors import SiteUnavailable
from federator.faults.clock import VirtualClock
from federator.wire.client_protocol import (
    BANNER,
    ErrorKind,
    ErrorReply,
    QueueCall,
    QueueReply,
    SitesCall,
    SitesReply,
    frame,
)
from federator.wire.replies import Reply

SAID = frame(SitesReply(sites=()))


class Peer:
    """Listens, takes one call, says something and hangs up."""

    def __init__(self, path: Path) -> None:
        self.says = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        peer, _ = self._socket.accept()
        with peer:
            peer.recv(2**16)
            peer.sendall(self.says)

    def close(self) -> None:
        self._thread.join(5.0)
        self._socket.close()


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    path = tmp_path / "sock"
    monkeypatch.setenv("FEDERATOR_SOCKET", str(path))
    listening = Peer(path)
    yield listening
    listening.close()


def ask() -> Reply:
    return call(SitesCall(), timeout_s=5.0)


def test_an_answer_is_an_answer(peer: Peer) -> None:
    peer.says = BANNER + SAID
    assert ask() == SitesReply(sites=())


@pytest.mark.parametrize("says", [b"", BANNER[:3], BANNER, BANNER + SAID[:-1]])
def test_a_connection_that_breaks_before_the_answer_leaves_it_open(peer: Peer, says: bytes) -> None:
    peer.says = says
    with pytest.raises(NoAnswer):
        ask()


@pytest.mark.parametrize("made", [False, True])
def test_where_nobody_listens_nothing_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    path = tmp_path / "agent.sock"
    if made:  # a process that was killed leaves its socket behind
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.bind(str(path))
    monkeypatch.setenv("FEDERATOR_SOCKET", str(path))
    with pytest.raises(SiteUnavailable) as failure:
        ask()
    assert not isinstance(failure.value, NoAnswer)
    assert str(failure.value).startswith("The federation's agent on this host is away")
    assert "running jobs run on" in str(failure.value)


def test_a_daemon_that_is_away_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDERATOR_SOCKET", str(tmp_path / "daemon.sock"))
    with pytest.raises(SiteUnavailable, match="The federation's daemon is away"):
        ask()


@pytest.mark.parametrize(
    ("installed", "words"),
    [(True, "agent on this host is away"), (False, "it is not installed here")],
)
def test_away_for_now_is_told_from_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool, words: str
) -> None:
    folder = tmp_path / "federator"
    if installed:
        folder.mkdir()
    monkeypatch.delenv("FEDERATOR_SOCKET", raising=False)
    monkeypatch.setattr(client, "SOCKETS", (f"{folder}/agent.sock", f"{folder}/daemon.sock"))
    with pytest.raises(SiteUnavailable, match=words):
        ask()


BUSY = frame(ErrorReply(message="busy", kind=ErrorKind.BUSY))


class Turnstile:
    """Turns some callers away before they are read, and answers the next."""

    def __init__(self, path: Path, busy: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(1)
        self._busy = busy
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for _ in range(self._busy):
            peer, _ = self._socket.accept()
            with peer:
                peer.sendall(BANNER + BUSY)
        peer, _ = self._socket.accept()
        with peer:
            peer.recv(2**16)
            peer.sendall(BANNER + frame(QueueReply(rows=(), now_s=0.0)))

    def close(self) -> None:
        self._thread.join(5.0)
        self._socket.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    virtual = VirtualClock()
    monkeypatch.setattr("time.sleep", virtual.advance)
    monkeypatch.setattr("time.monotonic", virtual)
    return virtual


@pytest.mark.parametrize("size", [1, 4 * 2**20])
def test_who_is_turned_away_asks_again_until_there_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: VirtualClock, size: int
) -> None:
    path = tmp_path / "sock"
    monkeypatch.setenv("FEDERATOR_SOCKET", str(path))
    turnstile = Turnstile(path, busy=3)
    began_s = clock.now_s
    assert call(QueueCall(ids=("x" * size,)), timeout_s=20.0) == QueueReply(rows=(), now_s=0.0)
    assert 0.5 < clock.now_s - began_s < 10.0
    turnstile.close()


def test_who_is_turned_away_for_too_long_knows_that_nothing_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: VirtualClock
) -> None:
    path = tmp_path / "sock"
    monkeypatch.setenv("FEDERATOR_SOCKET", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as full:
        full.bind(str(path))
        full.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first:
            first.connect(str(path))  # and nobody accepts it
            with pytest.raises(SiteUnavailable, match="too many others wait") as failure:
                call(SitesCall(), timeout_s=0.05)
    assert not isinstance(failure.value, NoAnswer)
