"""Does ``fsqueue --why`` ask for ranks, and say them before what the sites say?"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from federator.cli import fsqueue
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.sites.calls import Call, QueueCall, QueueReply, QueueRow
from federator.sites.queue_rows import QueueRank
from federator.sites.replies import Reply


def row(**changes: Any) -> QueueRow:
    base: dict[str, Any] = {
        "id": 2**32, "name": "n", "user": "u", "tenant": "vision", "priority": 1,
        "state": "PENDING", "attempt": 0, "submitted_at_s": 0.0,
    }  # fmt: skip
    return QueueRow(**{**base, **changes})


RANK = QueueRank(policy="fifo", by_quota=False, ranked_at_s=0.0, position=2, of=3, priority=1,
                 tenant_priority=1)  # fmt: skip
REFUSAL = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.SITE_DOWN),))


@pytest.mark.parametrize(("words", "why"), [(["--why"], True), ([], False)])
def test_ranks_are_asked_for_only_with_why(
    monkeypatch: pytest.MonkeyPatch, words: list[str], why: bool
) -> None:
    asked: list[Call] = []

    def call(message: Call) -> Reply:
        asked.append(message)
        return QueueReply(rows=(), now_s=0.0)

    monkeypatch.setattr(fsqueue, "call", call)
    monkeypatch.setattr(sys, "argv", ["fsqueue", *words])
    with pytest.raises(SystemExit):
        fsqueue.main()
    assert asked == [QueueCall(why=why)]


def test_the_rank_stands_before_the_sites_reasons() -> None:
    rows = [row(rank=RANK, refusals={"alpine": REFUSAL})]
    _, first, second = fsqueue.render(rows, 0.0, header=False, why=True).splitlines()
    assert first.strip() == "2nd of 3; priority 1; fifo orders by priority, then submission"
    assert second.strip() == "alpine: not now: the site is down or not connected"


def test_what_is_held_is_pending_with_its_reason() -> None:
    reason = Reason(code=ReasonCode.HELD, detail="alpine: Invalid qos specification")
    line, why = fsqueue.render(
        [row(state="HELD", reason=reason)], 0.0, header=False, why=True
    ).splitlines()
    assert " PD " in line
    assert line.endswith("(JobHeldUser)")
    assert "Invalid qos specification" in why
    for asked in ("pd", "PENDING"):
        assert fsqueue._states(asked) == {"PENDING", "HELD"}


def test_a_daemon_of_an_older_release_ranks_nothing() -> None:
    rows = [row(refusals={"alpine": REFUSAL})]
    lines = fsqueue.render(rows, 0.0, header=False, why=True).splitlines()
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("PREEMPTING", ReasonCode.PREEMPTED), ("PREEMPTING", ReasonCode.TIME_LIMIT),
        ("TIMEOUT", ReasonCode.NO_PROGRESS),
    ],
)  # fmt: skip
def test_why_it_leaves_stands_beside_its_nodes(state: str, code: ReasonCode) -> None:
    rows = [row(state=state, node_names=("a1", "a2"), reason=Reason(code=code, needed=3))]
    (line,) = fsqueue.render(rows, 0.0, header=False, why=False).splitlines()
    assert line.endswith(f"a1,a2 ({code.value})")


def test_what_runs_has_no_place_in_the_queue() -> None:
    rows = [row(state="RUNNING", rank=RANK)]
    assert len(fsqueue.render(rows, 0.0, header=False, why=True).splitlines()) == 1
