"""``federator drain``, ``cordon`` and ``resume``: what is asked, and what is printed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from federator.cli import drain
from federator.errors import InvalidRequest, NotAllowed
from federator.wire.client_protocol import (
    Call,
    DrainCall,
    DrainReply,
    ErrorKind,
    ErrorReply,
    ResumeCall,
    WriteOffCall,
)
from federator.wire.replies import Reply

Run = Callable[..., tuple[Call, str]]
TAKEN = DrainReply(site="alpine", running=3, withdrawn=2, not_requeued=1)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against one answer; return what it asks, and what it prints."""

    def command(which: click.Command, reply: Reply, *words: str) -> tuple[Call, str]:
        asked: list[Call] = []

        def call(message: Call) -> Reply:
            asked.append(message)
            return reply

        monkeypatch.setattr(drain, "call", call)
        ended = CliRunner().invoke(which, [*words])
        if ended.exception is not None:
            raise ended.exception
        return asked[0], ended.output

    return command


def test_a_drain_says_what_runs_there_and_what_goes_elsewhere(run: Run) -> None:
    asked, text = run(drain.drain, TAKEN, "alpine", "--reason", "new switch", "--migrate")
    assert asked == DrainCall(site="alpine", reason="new switch", migrate=True)
    assert text == (
        "alpine is drained: 3 workloads running; 2 workloads not yet started there can start "
        "elsewhere\n"
    )


def test_a_clock_that_has_passed_is_the_next_days(run: Run) -> None:
    passed = time.strftime("%H:%M:%S", time.localtime(time.time() - 120))
    asked, _ = run(drain.drain, TAKEN, "alpine", "--deadline", passed)
    assert isinstance(asked, DrainCall)
    assert asked.deadline_s == pytest.approx(time.time() + 86_280, abs=3_700)  # summer time


def test_a_deadline_is_read_as_slurm_reads_times(run: Run) -> None:
    asked, text = run(drain.drain, TAKEN, "alpine", "--deadline", "now+2hours")
    assert isinstance(asked, DrainCall)
    assert asked.deadline_s == pytest.approx(time.time() + 7200, abs=60)
    assert "1 may not be requeued, and end there before the deadline" in text
    with pytest.raises(InvalidRequest, match="Invalid time specification"):
        run(drain.drain, TAKEN, "alpine", "--deadline", "soon")


def test_a_revocation_is_passed_on(run: Run) -> None:
    words = ("alpine:n7", "--revoked", "--deadline", "now+2minutes")
    asked, _ = run(drain.drain, TAKEN, *words)
    assert isinstance(asked, DrainCall)
    assert asked.revoked
    assert asked.nodes == ("n7",)


def test_nodes_are_named_as_slurm_names_them(run: Run) -> None:
    asked, text = run(drain.cordon, TAKEN, "alpine:n[08-10],x")
    assert asked == DrainCall(site="alpine", nodes=("n08", "n09", "n10", "x"), cordon=True)
    assert text.startswith("alpine:n[08-10],x is cordoned: 3 workloads running")
    for wrong in (":n1", "alpine:", "alpine:n[1-"):
        with pytest.raises(InvalidRequest):
            run(drain.cordon, TAKEN, wrong)


def test_a_site_is_resumed(run: Run) -> None:
    asked, text = run(drain.resume, DrainReply(site="alpine"), "alpine")
    assert asked == ResumeCall(site="alpine")
    assert text == "alpine takes new work again\n"


def test_json_has_the_numbers(run: Run) -> None:
    _, text = run(drain.drain, TAKEN, "alpine", "--json")
    assert json.loads(text) == {
        "schema": 1,
        "site": "alpine",
        "running": 3,
        "withdrawn": 2,
        "not_requeued": 1,
    }


def test_a_refusal_is_an_error_of_its_kind(run: Run) -> None:
    with pytest.raises(InvalidRequest, match="drained already"):
        run(drain.drain, ErrorReply(message="alpine is drained already"), "alpine")
    with pytest.raises(NotAllowed):
        run(drain.resume, ErrorReply(message="no operator", kind=ErrorKind.DENIED), "alpine")


def test_a_site_that_is_gone_is_written_off(run: Run) -> None:
    asked, text = run(drain.write_off, TAKEN, "alpine", "--reason", "fire")
    assert asked == WriteOffCall(site="alpine", reason="fire")
    assert text == (
        "alpine is written off: 4 workloads can start again elsewhere, 1 may not be requeued and "
        "have failed\n"
    )
    _, text = run(drain.write_off, DrainReply(site="alpine", running=1), "alpine")
    assert text == "alpine is written off: 1 workload can start again elsewhere\n"
