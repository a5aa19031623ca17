"""Users and nodes that there are not, as squeue and scancel answer to their names."""

from __future__ import annotations

import os
import sys

import pytest

from federator.cli import fscancel, fsqueue, unknown_names
from federator.wire.client_protocol import (
    Call,
    NodesReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SiteNodesRow,
)
from federator.wire.node_rows import NodeRow, SiteNodes, packed_nodes
from federator.wire.replies import Reply

ROW = QueueRow(
    id=7,
    name="a",
    user="elsewhere",
    tenant="t",
    state="PENDING",
    priority=1,
    attempt=0,
    submitted_at_s=0.0,
)
LISTED = SiteNodesRow(
    site="alpine",
    nodes=packed_nodes(SiteNodes(at_s=0.0, nodes=(NodeRow(name="n1", state="idle"),))),
)


def asked(monkeypatch: pytest.MonkeyPatch, words: list[str], nodes: NodesReply) -> int:
    def call(message: Call) -> Reply:
        is_queue = isinstance(message, QueueCall)
        return QueueReply(rows=(ROW,), now_s=0.0) if is_queue else nodes

    monkeypatch.setattr(fsqueue, "call", call)
    monkeypatch.setattr(unknown_names, "call", call)
    monkeypatch.setattr(sys, "argv", ["fsqueue", "-h", "-o", "%i", *words])
    with pytest.raises(SystemExit) as ended:
        fsqueue.main()
    return int(ended.value.code or 0)


NODES = NodesReply(sites=(LISTED,))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-u", "nosuch-user"], "fsqueue: error: Invalid user: nosuch-user\n"),
        (["-u", "root,nosuch-user,4000000000"],
         "fsqueue: error: Invalid user: nosuch-user\nfsqueue: error: Invalid user: 4000000000\n"),
        (["-u", "root"], ""),
        (["-u", "elsewhere"], ""),  # of another site: this host need not know it
    ],
)  # fmt: skip
def test_a_user_whom_nobody_is_is_said_and_the_rest_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """As squeue 22.05 to 26.05, with status 0."""
    assert asked(monkeypatch, words, NODES) == 0
    assert capsys.readouterr() == ("7\n", said)


def test_a_node_that_no_site_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As squeue 22.05 to 26.05, with status 1."""
    assert asked(monkeypatch, ["-w", "n[1-2]"], NODES) == 1
    assert capsys.readouterr() == ("", "fsqueue: error: Invalid node name n2\n")


def test_a_site_that_has_not_listed_its_nodes_may_have_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = NodesReply(sites=(LISTED, SiteNodesRow(site="cedar", detail="not heard")))
    newer = NodesReply(sites=(LISTED, SiteNodesRow(site="cedar", nodes=b"\xc1")))
    for nodes in (silent, newer):
        assert asked(monkeypatch, ["-w", "n2"], nodes) == 0
    assert asked(monkeypatch, ["-w", "n1"], NODES) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["-s", "7.0"], ["-s", "7.batch,7.1"], ["--steps=7.0"]])
def test_what_follows_steps_are_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Squeue reads what follows ``-s`` as steps, with a blank between or not."""
    assert asked(monkeypatch, words, NODES) == 0
    assert capsys.readouterr().err == ""


def test_a_user_whom_nobody_is_has_nothing_to_cancel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(unknown_names, "call", lambda _: QueueReply(rows=(), now_s=0.0))
    monkeypatch.setattr(sys, "argv", ["fscancel", "-u", "nosuch-user", "7"])
    with pytest.raises(SystemExit) as ended:
        fscancel.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "fscancel: error: Invalid user name: nosuch-user\n"


def test_a_user_of_another_site_who_has_jobs_is_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[Call] = []

    def call(message: Call) -> Reply:
        asked_for.append(message)
        return QueueReply(rows=(ROW,), now_s=0.0)

    monkeypatch.setattr(unknown_names, "call", call)
    assert unknown_names.with_jobs(["elsewhere"]) == {"elsewhere"}
    assert asked_for == [QueueCall(users=("elsewhere",), brief=True)]
