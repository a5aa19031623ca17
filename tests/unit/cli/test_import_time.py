"""The short commands import little: half of their time would go into modules they never use."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from federator.wire.accounting_rows import AccountingRow
from federator.wire.client_protocol import (
    BANNER,
    AccountingReply,
    CancelReply,
    ControlReply,
    QueueReply,
    SitesReply,
    SubmitReply,
    TenantsReply,
    frame,
)
from federator.wire.replies import Reply

# Not inspect: msgspec imports typing_extensions where there is one (no site has it), and that it.
HEAVY = frozenset(
    {
        "ClusterShell",
        "argparse",
        "asyncio",
        "asyncssh",
        "click",
        "concurrent",
        "dataclasses",
        "docker",
        "json",
        "logging",
        "numpy",
        "pathlib",
        "pydantic",
        "redis",
        "rich",
        "shlex",
        "shutil",
        "ssl",
        "structlog",
        "subprocess",
        "tempfile",
        "threading",
        "yaml",
    }
)
OURS = frozenset(
    {
        "federator.model.workload",
        "federator.model.site",
        "federator.model.plan",
        "federator.wire.agent_protocol",
        "federator.wire.replies",
        "federator.slurm.options.interpret",
    }
)
ENDED = AccountingRow(id=7, name="x", user="ada", tenant="vision", submitted_at_s=1.0)
PROGRAM = """
import sys
from federator.cli import {command}
try:
    {command}.main()
finally:
    print("imported", *sys.modules, file=sys.stderr)
"""


def answering_once(path: Path, reply: Reply) -> threading.Thread:
    """An agent that answers one call, whatever it asks."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()

    def serve() -> None:
        with listening, listening.accept()[0] as peer, contextlib.suppress(OSError):
            peer.sendall(BANNER)
            peer.recv(2**20)
            peer.sendall(frame(reply))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("command", "words", "reply"),
    [
        ("fsbatch", ["--parsable", "--wrap=true"], SubmitReply(id=2**32, federation="demo")),
        ("fsqueue", ["--me"], QueueReply(rows=(), now_s=0.0)),
        ("fscancel", ["4294967296"], CancelReply(ids=(2**32,))),
        ("fsinfo", [], SitesReply(sites=())),
        ("fsprio", ["-h"], QueueReply(rows=(), now_s=0.0)),
        ("fscontrol", ["hold", "7"], ControlReply(ids=(7,))),
        ("fsshare", ["-h"], TenantsReply(rows=(), now_s=0.0)),
        ("fseff", ["7"], AccountingReply(rows=(ENDED,), now_s=0.0, federation="demo")),
        ("fsacct", ["-X"], AccountingReply(rows=(), now_s=0.0, federation="demo")),
    ],
)
def test_a_short_command_imports_little(
    command: str, words: list[str], reply: Reply, tmp_path: Path
) -> None:
    path = tmp_path / "sock"
    serving = answering_once(path, reply)
    # Without site, which imports what the environment's own .pth files want.
    argv = [sys.executable, "-S", "-c", PROGRAM.format(command=command), *words]
    environment = {"FEDERATOR_SOCKET": str(path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        argv, check=False, env=environment, capture_output=True, text=True, timeout=60
    )
    serving.join(10.0)
    assert done.returncode == 0, done.stderr
    modules = set(done.stderr.split("imported", 1)[1].split())
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    assert modules & OURS == set()
