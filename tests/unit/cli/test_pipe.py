"""``fsqueue | head -1``: a command whose reader has gone ends quietly, as squeue does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from federator.cli import pipe
from federator.wire.client_protocol import QueueReply, QueueRow, SitesReply, TenantsReply
from federator.wire.replies import Reply
from tests.unit.cli.test_import_time import answering_once

ROWS = tuple(
    QueueRow(
        id=2**32 + k,
        name="n",
        user="u",
        tenant="t",
        priority=1,
        state="RUNNING",
        attempt=1,
        submitted_at_s=0.0,
    )
    for k in range(2_000)  # more than a pipe holds
)


def ends(program: str, words: list[str], reply: Reply, folder: Path) -> tuple[int, str]:
    """Exit status and stderr of a command that writes to a pipe which nobody reads."""
    path = folder / "sock"
    serving = answering_once(path, reply)
    read_end, write_end = os.pipe()
    os.close(read_end)
    main = "import sys; from federator.cli.{} import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", main.format(program), *words],
        check=False,
        env=os.environ | {"FEDERATOR_SOCKET": str(path)},
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(write_end)
    # A command that only helps asks nobody; after any other nobody listens any more.
    with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(ConnectionRefusedError):
        peer.connect(str(path))
    serving.join(10.0)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("program", "words", "reply"),
    [
        ("fsqueue", [], QueueReply(rows=ROWS, now_s=0.0)),
        ("fsqueue", [], QueueReply(rows=ROWS[:1], now_s=0.0)),  # all of it in Python's buffer
        ("fsqueue", ["--json"], QueueReply(rows=ROWS, now_s=0.0)),
        ("fsqueue", ["--help"], QueueReply(rows=(), now_s=0.0)),
        ("fsinfo", [], SitesReply(sites=())),
        ("fsbatch", ["--help"], SitesReply(sites=())),
        ("main", ["explain", "4294967296"], QueueReply(rows=ROWS[:1], now_s=0.0)),
        ("main", ["tenants"], TenantsReply(rows=(), now_s=0.0)),
        ("main", ["sites"], SitesReply(sites=())),
    ],
)
def test_a_reader_that_has_gone_ends_a_command_quietly(
    program: str, words: list[str], reply: Reply, tmp_path: Path
) -> None:
    assert ends(program, words, reply, tmp_path) == (-signal.SIGPIPE, "")


def test_an_agent_that_has_closed_its_channel_ends_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "channel").open("w") as channel:
        monkeypatch.setattr(sys, "stdout", channel)
    pipe.flush()
