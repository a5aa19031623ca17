"""``fsqueue --complete`` tells a shell what there is, quickly, or nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from federator.cli import completion_words, fsqueue
from federator.errors import SiteUnavailable
from federator.model.partition import PartitionSummary
from federator.wire.client_protocol import (
    Call,
    ErrorReply,
    NodesReply,
    QueueReply,
    QueueRow,
    SiteNodesRow,
    SiteRow,
    SitesReply,
    TenantRow,
    TenantsReply,
)
from federator.wire.node_rows import NodeRow, SiteNodes, packed_nodes
from federator.wire.replies import Reply


def row(id_: int, name: str = "train", user: str = "ada", **more: object) -> QueueRow:
    fields = {"tenant": "vision", "priority": 1, "state": "RUNNING", "attempt": 1}
    return QueueRow(id=id_, name=name, user=user, submitted_at_s=1.0, **(fields | more))  # type: ignore[arg-type]


ROWS = (
    row(7),
    row(9, name="$(reboot)", user="bob", state="PENDING"),
    row(11, array_id=11, array_index=0, name="sweep"),
    row(12, array_id=11, array_index=1, name="sweep", tasks=5, state="PENDING"),
)
STRANGE = "9\t$(reboot) PENDING"
REPLIES: dict[str, Reply] = {
    "queue": QueueReply(rows=ROWS, now_s=5.0),
    "sites": SitesReply(
        sites=(
            SiteRow(
                name="alpine",
                region="west",
                up=True,
                partitions=(
                    PartitionSummary(partition="gpu", gpu_type="a100"),
                    PartitionSummary(partition="gpu", gpu_type=""),
                ),
            ),
        )
    ),
    "tenants": TenantsReply(
        rows=(
            TenantRow(
                name="vision", priority=1, limit={}, used={}, used_own={}, borrowed={}, lent={}
            ),
        ),
        now_s=5.0,
    ),
    "nodes": NodesReply(
        sites=(
            SiteNodesRow(
                site="alpine",
                nodes=packed_nodes(SiteNodes(at_s=1.0, nodes=(NodeRow(name="g1", state="idle"),))),
            ),
            SiteNodesRow(site="boreal", detail="away"),
        )
    ),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    calls: list[Call] = []

    def call(message: Call, timeout_s: float) -> Reply:
        calls.append(message)
        assert timeout_s <= 1.0
        return REPLIES[type(message).__struct_config__.tag]  # type: ignore[index]

    monkeypatch.setattr(completion_words, "call", call)
    return calls


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("jobs", ["12\tsweep PENDING", "11_0\tsweep RUNNING", STRANGE, "7\ttrain RUNNING"]),
        ("names", ["sweep", "train"]),
        ("users", ["ada", "bob"]),
        ("accounts", ["vision"]),
        ("sites", ["alpine\twest"]),
        ("partitions", ["gpu\talpine"]),
        ("gpu-types", ["a100\talpine"]),
        ("nodes", ["g1\talpine"]),
    ],
)
def test_words_that_no_shell_expands_are_told_once(
    kind: str, lines: list[str], asked: list[Call], capsys: pytest.CaptureFixture[str]
) -> None:
    assert completion_words.say(kind) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_own_and_ended_jobs_are_asked_for(asked: list[Call]) -> None:
    for kind in ("own-jobs", "ended-jobs"):
        assert completion_words.say(kind) == 0
    own, ended = asked
    assert own.users == ended.users != ()  # type: ignore[union-attr]
    assert (own.ended, ended.ended) == (False, True)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", completion_words.WORDS)
@pytest.mark.parametrize("refused", [True, False])
def test_nothing_is_said_of_a_daemon_that_is_away(
    kind: str, refused: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(message: Call, timeout_s: float) -> Reply:
        if refused:
            return ErrorReply(message="no")
        raise SiteUnavailable("away")

    monkeypatch.setattr(completion_words, "call", call)
    assert completion_words.say(kind) == 0
    assert capsys.readouterr() == ("", "")


def test_a_daemon_that_does_not_answer_is_waited_for_briefly(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        before = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "federator.cli.fsqueue", "--complete=jobs"],
            env={"FEDERATOR_SOCKET": str(path), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert time.monotonic() - before < 30.0


def test_an_unknown_kind_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fsqueue", "--complete=moons"])
    with pytest.raises(SystemExit) as ended:
        fsqueue.main()
    assert ended.value.code == 1
    assert "--complete=moons: expected one of jobs, own-jobs" in capsys.readouterr().err
