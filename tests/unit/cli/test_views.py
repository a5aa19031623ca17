"""fsqueue, fsinfo and fscancel show and ask what they should."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from federator.cli import client, fscancel, fsinfo, fsqueue
from federator.cli.job_states import CODES, NAMES, asked_states, workload_states
from federator.cli.queue_table import render
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.partition import PartitionSummary
from federator.model.reason import Reason, ReasonCode
from federator.wire.client_protocol import (
    Call,
    CancelCall,
    CancelReply,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SiteRow,
    SitesReply,
)
from federator.wire.replies import Reply

LIVE = {state.value for state in WorkloadState if state not in TERMINAL}
COMMANDS = {"fsqueue": fsqueue, "fsinfo": fsinfo, "fscancel": fscancel}
Run = Callable[..., tuple[int, list[Call]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against one answer; return its exit status and what it asked."""

    def command(module: ModuleType, words: list[str], reply: Reply) -> tuple[int, list[Call]]:
        asked: list[Call] = []

        def call(message: Call) -> Reply:
            asked.append(message)
            return reply

        monkeypatch.setattr(module, "call", call, raising=False)
        monkeypatch.setattr(client, "call", call)
        monkeypatch.setattr(sys, "argv", ["command", *words])
        with pytest.raises(SystemExit) as ended:
            module.main()
        return int(ended.value.code or 0), asked

    return command


def row(state: str = "RUNNING", **changes: Any) -> QueueRow:
    base: dict[str, Any] = {
        "id": 2**32,
        "name": "n",
        "user": "u",
        "tenant": "t",
        "priority": 1,
        "state": state,
        "attempt": 1,
        "submitted_at_s": 0.0,
    }
    return QueueRow(**{**base, **changes})


def queue(*rows: QueueRow) -> QueueReply:
    return QueueReply(rows=rows, now_s=100.0)


# ---- fsqueue ----


@pytest.mark.parametrize("state", WorkloadState)
def test_every_state_has_a_code(state: WorkloadState) -> None:
    assert CODES[NAMES[state.value]]


@pytest.mark.parametrize(
    ("words", "shown", "ended"),
    [
        ([], LIVE, False),
        (["-t", "all"], {state.value for state in WorkloadState}, True),
        (["-t", "PD"], {"PENDING", "INELIGIBLE", "HELD"}, False),
        (["-t", "cf"], {"AWARDED", "LAUNCHING"}, False),
        (["-t", "pending,F"], {"PENDING", "INELIGIBLE", "HELD", "FAILED"}, True),
    ],
)
def test_states_are_chosen_by_name_or_code(
    run: Run, capsys: pytest.CaptureFixture[str], words: list[str], shown: set[str], ended: bool
) -> None:
    rows = [row(state.value, name=state.value) for state in WorkloadState]
    status, asked = run(fsqueue, ["-h", *words], queue(*rows))
    states = workload_states(asked_states(words[1])) if words else ()
    expected = QueueCall(ended=ended, collapsed=True, brief=True, codes=True, states=states)
    assert (status, asked) == (0, [expected])
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[1] for line in lines} == shown


def test_a_state_that_does_not_exist_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(fsqueue, ["-t", "XX"], queue())[0] == 1
    said = capsys.readouterr().err
    assert said.startswith("fsqueue: error: Invalid job state specified: XX; valid are pending,")


def test_a_state_of_a_later_release_is_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fsqueue, ["-h"], queue(row("STAGING")))[0] == 0
    assert " ? " in capsys.readouterr().out


@pytest.mark.parametrize(
    "hostile",
    [
        {"node_names": ("n\x1b[2J",)},
        {"node_names": ("a", "b", "c", "n[1-999999999999]", "[", "\x9b")},
        {"state": "FAILED", "site_state": "\x1b]0;x\x07", "node_names": ("n1",)},
        {"site": "s\x1b[1m"},
        {"user": "u\r", "tenant": "t\b"},
        {
            "state": "PENDING",
            "reason": Reason(code=ReasonCode.LAUNCH_REFUSED, job="j\x1b", detail="\x1b[2J"),
        },
    ],
)
def test_what_a_site_says_reaches_the_terminal_without_control_characters(
    run: Run, capsys: pytest.CaptureFixture[str], hostile: dict[str, Any]
) -> None:
    assert run(fsqueue, ["--why", "-t", "all"], queue(row(**hostile)))[0] == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


def test_many_nodes_are_folded() -> None:
    names = tuple(f"n{k}" for k in range(1, 9))
    assert "n[1-8]" in render([row(node_names=names)], 0.0, header=False, why=False)


# ---- fsinfo ----


def test_what_a_site_is_called_reaches_the_terminal_without_control_characters(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    part = PartitionSummary(partition="p\x1b[2J", gpu_type="a\x07")
    up = SiteRow(name="a", region="r", up=True, slurm_version="2\x1b", partitions=(part,))
    down = SiteRow(name="b", region="r", up=False, slurm_version="2\x1b")
    assert run(fsinfo, [], SitesReply(sites=(up, down)))[0] == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


# ---- fscancel ----


def test_ids_and_users_are_asked_for(run: Run) -> None:
    _, asked = run(fscancel, ["1,2", "3_4", "-u", "ada"], CancelReply(ids=(1,)))
    assert asked == [CancelCall(ids=("1", "2", "3_4"), users=("ada",))]


def test_an_empty_id_does_not_cancel_everything_of_mine(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    status, asked = run(fscancel, ["", "--me"], CancelReply(ids=()))
    assert (status, asked) == (1, [])
    assert "Invalid job id" in capsys.readouterr().err


def test_errors_of_the_daemon_are_printable(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fscancel, ["1"], CancelReply(ids=(), errors=("no\x1b[2J",)))[0] == 1
    assert capsys.readouterr().err == "fscancel: error: Kill job error: no?[2J\n"


# ---- all ----


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_to_another_question_is_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words = ["1"] if name == "fscancel" else []
    reply: Reply = CancelReply(ids=()) if name != "fscancel" else queue()
    assert run(COMMANDS[name], words, reply)[0] == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"{name}: error: the daemon gave an unexpected answer")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_refusal_is_one_printable_line(
    run: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words = ["1"] if name == "fscancel" else []
    assert run(COMMANDS[name], words, ErrorReply(message="no\x1b"))[0] == 1
    assert capsys.readouterr().err == f"{name}: error: no?\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fsqueue", ["\udce9"]),
        ("fsqueue", ["-u", "\udce9"]),
        ("fsqueue", ["-t", "\udce9"]),
        ("fscancel", ["\udce9"]),
        ("fscancel", ["-u", "\udce9"]),
    ],
)
def test_words_that_are_not_utf8_are_refused_in_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], name: str, words: list[str]
) -> None:
    status, asked = run(COMMANDS[name], words, queue())
    assert (status, asked) == (1, [])
    assert "not UTF-8" in capsys.readouterr().err
