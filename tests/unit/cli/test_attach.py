"""``federator site attach`` joins a site that has dialled to the daemon of its host."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli import attach as module
from federator.cli.attach import attach
from federator.errors import SiteUnavailable
from federator.wire.attaching import ATTACHED, door_beside

COMMAND = (sys.executable, "-c", "from federator.cli.attach import attach; attach()")


@pytest.fixture
def door(tmp_path: Path) -> Iterator[socket.socket]:
    """A daemon listens; what it does with who comes is the test's business."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(door_beside(tmp_path / "d")))
        door.listen()
        door.settimeout(60.0)
        yield door


def outcome(folder: Path) -> str:
    """Why a site is not attached."""
    done = CliRunner().invoke(attach, ["alpine", "--socket", str(folder / "d")])
    assert isinstance(done.exception, SiteUnavailable), done.output
    return str(done.exception)


def test_what_the_site_says_goes_to_the_daemon_and_back_until_either_ends(
    door: socket.socket, tmp_path: Path
) -> None:
    argv = (*COMMAND, "alpine", "--socket", str(tmp_path / "d"))
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        daemon, _ = door.accept()
        with daemon, daemon.makefile("rb") as heard:
            assert heard.readline() == b"alpine\n"
            daemon.sendall(ATTACHED + b"\x00welcome\n")  # whatever follows at once is the channel's
            assert process.stdout.readline() == ATTACHED
            assert process.stdout.readline() == b"\x00welcome\n"
            process.stdin.write(b"hello\n")
            process.stdin.flush()
            assert heard.readline() == b"hello\n"
            process.stdin.close()  # the site hangs up; the daemon may still have something to say
            assert heard.read() == b""
            daemon.sendall(b"bye\n")
            daemon.shutdown(socket.SHUT_WR)
            assert process.stdout.read() == b"bye\n"
        assert process.wait(60) == 0


def test_a_host_without_a_daemon_that_leads_says_so(tmp_path: Path) -> None:
    assert "no daemon that leads answers at" in outcome(tmp_path)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"sites.alpine.connect is not outbound here\n", "not outbound here"),
        (b"", "the daemon hung up"),
        (b"x" * 10_000, "xxx"),
    ],
)
def test_the_daemon_s_refusal_is_passed_on(
    door: socket.socket, tmp_path: Path, answer: bytes, says: str
) -> None:
    def refuse() -> None:
        peer, _ = door.accept()
        with peer, peer.makefile("rb") as asked:
            asked.readline()
            peer.sendall(answer)

    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(refuse)
        assert says in outcome(tmp_path)
        refused.result()


def test_a_daemon_that_hangs_is_not_waited_for(
    door: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANSWERS_WITHIN_S", 0.01)
    assert "timed out" in outcome(tmp_path)
