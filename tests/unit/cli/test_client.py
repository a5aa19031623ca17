"""Was the daemon asked, or could it not be? A command must know which before it says anything."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.cli.client import NoAnswer, call
from federator.errors import SiteUnavailable
from federator.sites.calls import BANNER, SitesCall, SitesReply, frame
from federator.sites.replies import Reply

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
    path = tmp_path / "sock"
    if made:  # a process that was killed leaves its socket behind
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.bind(str(path))
    monkeypatch.setenv("FEDERATOR_SOCKET", str(path))
    with pytest.raises(SiteUnavailable) as failure:
        ask()
    assert not isinstance(failure.value, NoAnswer)
