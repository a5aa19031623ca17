"""Colours are where a person looks, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from io import StringIO

import pytest

from federator.cli import explain, fsinfo, fsqueue, status
from federator.cli.colour import Colour, of_job, of_site, painted
from federator.wire.client_protocol import QueueReply, QueueRow, SiteRow, SitesReply, StatusReply
from federator.wire.status_rows import BudgetRow, DrainRow

DRAIN = DrainRow(reason="new switch", by="root", since_s=900.0, left=3)
SITES = (
    SiteRow(name="alpine", region="west", up=True),
    SiteRow(name="boreal", region="west", up=True, drains=(DRAIN,)),
    SiteRow(name="cedar", region="west", up=False),
)


def job(state: str, unknown_since_s: float = 0.0) -> QueueRow:
    return QueueRow(
        id=2**32,
        name="train\x1b[31m",
        user="ada",
        tenant="vision",
        priority=1,
        state=state,
        attempt=0,
        submitted_at_s=0.0,
        unknown_since_s=unknown_since_s,
    )


class Terminal(StringIO):
    """A terminal that keeps what it is given."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def test_a_line_is_painted_on_a_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", terminal)
    assert painted("down", Colour.RED) == "\x1b[31mdown\x1b[0m"
    assert painted("up", None) == "up"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "")])
def test_a_user_who_wants_none_has_none(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv(name, value)
    assert painted("down", Colour.RED) == "down"


def test_a_pipe_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", StringIO())
    assert painted("down", Colour.RED) == "down"


def test_what_runs_waits_and_goes_wrong_is_told_apart() -> None:
    rows = [job("RUNNING"), job("PENDING"), job("FAILED"), job("RUNNING", 5.0), job("COMPLETED")]
    assert [of_job(row) for row in rows] == [
        Colour.GREEN,
        Colour.YELLOW,
        Colour.RED,
        Colour.RED,
        None,
    ]
    assert [of_site(site) for site in SITES] == [None, Colour.YELLOW, Colour.RED]


def _fsqueue() -> None:
    sys.argv[1:] = []
    with pytest.raises(SystemExit):
        fsqueue.main()


def _fsqueue_as_squeue() -> None:
    sys.argv[1:] = ["-o", "%i %T"]
    with pytest.raises(SystemExit):
        fsqueue.main()


def _fsinfo() -> None:
    fsinfo.show(header=True, as_json=False)


def _status() -> None:
    status.status.callback(False)  # type: ignore[misc]


def _explain() -> None:
    explain.explain.callback("1", False)  # type: ignore[misc]


REPLIES = {
    fsqueue: QueueReply(rows=(job("RUNNING"), job("PENDING")), now_s=1000.0),
    explain: QueueReply(rows=(job("FAILED"),), now_s=1000.0),
    fsinfo: SitesReply(sites=SITES),
    status: StatusReply(
        federation="demo",
        now_s=1000.0,
        policy="mast",
        epoch=7,
        sites=SITES,
        queue={},
        budget=BudgetRow(window_s=600.0),
    ),
}


def _answer(reply: object, _message: object) -> object:
    return reply


@pytest.mark.parametrize(
    ("command", "painted_lines"),
    [(_fsqueue, 2), (_fsqueue_as_squeue, 0), (_fsinfo, 2), (_status, 2), (_explain, 1)],
)
def test_a_command_paints_whole_lines_and_a_pipe_gets_the_same_words(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[[], None],
    painted_lines: int,
) -> None:
    for module, reply in REPLIES.items():
        monkeypatch.setattr(module, "call", partial(_answer, reply))
    monkeypatch.setattr(sys, "argv", ["x"])
    monkeypatch.setattr(sys, "stdout", terminal)
    command()
    shown = terminal.getvalue()
    marks = [line for line in shown.splitlines() if "\x1b" in line]
    assert len(marks) == painted_lines
    assert all(line.startswith("\x1b[3") and line.count("\x1b") == 2 for line in marks)
    piped = StringIO()
    monkeypatch.setattr(sys, "stdout", piped)
    command()
    assert "\x1b" not in piped.getvalue()
    plain = shown.replace("\x1b[0m", "")
    for each in Colour:
        plain = plain.replace(f"\x1b[{each.value}m", "")
    assert plain == piped.getvalue()
