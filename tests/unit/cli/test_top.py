"""``federator top`` prints plainly where nobody looks at a terminal, and without its extra."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from click.testing import CliRunner

from federator.cli import top
from federator.errors import InvalidRequest
from federator.wire.client_protocol import Call, QueueCall, QueueReply, StatusCall
from tests.unit.cli.test_status import STATUS
from tests.unit.cli.test_top_feed import row

ROWS = (row(1, "RUNNING", site="alpine"), row(2, name="bad\x1b[31m"))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    made: list[Call] = []

    def answer(call: Call) -> object:
        made.append(call)
        if isinstance(call, StatusCall):
            return STATUS
        return QueueReply(rows=ROWS, now_s=1000.0, left_off=3)

    monkeypatch.setattr(top, "call", answer)
    return made


def run(*words: str) -> str:
    done = CliRunner().invoke(top.top, words, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_once_it_prints_sites_and_queue_plainly(calls: list[Call]) -> None:
    lines = run("--once").splitlines()
    assert lines[0] == "Federation demo: 1 of 2 sites up; policy mast; epoch 7"
    assert any(line.split()[:2] == ["1", "train1"] and "alpine" in line for line in lines)
    assert lines[-1] == "3 jobs are left off; ask for fewer (-u, -A, -M)"
    assert "\x1b" not in "".join(lines)
    assert len(calls) == 2


def test_it_asks_only_for_what_is_meant(calls: list[Call]) -> None:
    run("-u", "ada,bob", "-A", "nlp", "-M", "alpine")  # no terminal: as --once
    (question,) = [call for call in calls if isinstance(call, QueueCall)]
    assert question.users == ("ada", "bob")
    assert (question.tenants, question.clusters) == (("nlp",), ("alpine",))
    assert question.brief


def test_without_its_extra_it_says_how_to_get_it(
    calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "textual" else found(name)
    )
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(InvalidRequest, match=r"install federator\[top\]"):
        top.top.callback(None, False, None, None, 5.0, False)  # type: ignore[misc]
    assert calls == []
