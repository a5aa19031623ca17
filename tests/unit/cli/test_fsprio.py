"""fsprio prints sprio's columns, with the federation's own terms."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from federator.cli import fsprio
from federator.wire.client_protocol import Call, ErrorReply, QueueCall, QueueReply, QueueRow
from federator.wire.queue_rows import JobDetails, QueueRank
from federator.wire.replies import Reply

ID = 2**32
HEAD = "JOBID PARTITION ACCOUNT PRIORITY QUOTA AGE FAIRSHARE NICE CREDIT RANK"


def row(number: int, position: int, **changes: Any) -> QueueRow:
    rank: dict[str, Any] = {
        "policy": "mast",
        "ranked_at_s": 0.0,
        "priority": 2,
        "tenant_priority": 2,
        "within_quota": True,
        "credit": 30.5,
        "position": position,
        "of": 3,
        "waited_s": 7200.0,
        "age_term": 2.0,
        "fair_share_term": 30.0,
        "nice_term": 0.5,
        "non_preemptible_term": 1.0,
        "per_hour_waited": 1.0,
        "age_cap_h": 168.0,
        "usage_share_frac": 0.25,
    }
    rank |= {name: changes.pop(name) for name in set(changes) & set(rank)}
    base: dict[str, Any] = {
        "id": ID + number,
        "name": "train",
        "user": "ada",
        "tenant": "vision",
        "priority": 2,
        "state": "PENDING",
        "attempt": 0,
        "submitted_at_s": 0.0,
        "rank": QueueRank(**rank),
        "details": JobDetails(partitions=("gpu", "big")),
    }
    return QueueRow(**{**base, **changes})


Run = Callable[..., str]


@pytest.fixture
def asked() -> list[Call]:
    return []


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: list[Call]
) -> Run:
    """Runs the command against a daemon that has these rows; returns what it prints."""

    def run(words: str, *rows: QueueRow, reply: Reply | None = None) -> str:
        def call(message: Call) -> Reply:
            asked.append(message)
            return reply or QueueReply(rows=rows, now_s=0.0)

        monkeypatch.setattr(fsprio, "call", call)
        monkeypatch.setattr(sys, "argv", ["fsprio", *words.split()])
        with pytest.raises(SystemExit):
            fsprio.main()
        found = capsys.readouterr()
        return found.out + found.err

    return run


def test_jobs_stand_in_the_order_of_the_queue_with_their_terms(run: Run) -> None:
    text = run("", row(1, 2, within_quota=False, priority=7), row(2, 1))
    assert [line.split() for line in text.splitlines()] == [
        [
            "JOBID",
            "PARTITION",
            "ACCOUNT",
            "PRIORITY",
            "QUOTA",
            "AGE",
            "FAIRSHARE",
            "NICE",
            "CREDIT",
            "RANK",
        ],
        f"{ID + 2} gpu,big vision 2 within 2.00 30.00 -0.50 30.50 1".split(),
        f"{ID + 1} gpu,big vision 7 over 2.00 30.00 -0.50 30.50 2".split(),
    ]


def test_what_is_at_a_site_has_no_place_in_the_queue(run: Run) -> None:
    assert run("-h", row(1, 0), row(2, 1, rank=None)) == ""


def test_long_has_every_term_of_sprio_and_of_the_federation(run: Run) -> None:
    head, line = run("-l", row(1, 1)).splitlines()
    shown = dict(zip(head.split(), line.split(), strict=False))
    assert [shown[name] for name in ("USER", "SITE", "ASSOC", "JOBSIZE", "QOS", "TRES")] == [
        "ada",
        "0",
        "0",
        "0",
        "0",
        "0",
    ]
    assert shown["NOPREEMPT"] == "-1.00"


def test_norm_shows_parts_of_one(run: Run) -> None:
    line = run("-n -h", row(1, 1)).split()
    assert line[-3:] == ["0.8333333", "0.0119048", "0.7500000"]


def test_a_policy_without_quota_and_credit_shows_neither(run: Run) -> None:
    unranked = QueueRank(
        policy="global-fifo",
        by_quota=False,
        ranked_at_s=0.0,
        priority=3,
        tenant_priority=3,
        position=1,
        of=1,
    )
    assert (
        run("-h -o %g|%k|%F|%f|%a", row(1, 1, rank=unranked))
        == "n/a|0.00|0.00|0.0000000|0.0000000\n"
    )


@pytest.mark.parametrize(
    ("words", "order"),
    [("", [1, 2, 3]), ("-S -d", [3, 2, 1]), ("-S u,-i", [1, 3, 2]), ("-S Y", [2, 3, 1])],
)
def test_rows_are_sorted_as_asked(run: Run, words: str, order: list[int]) -> None:
    rows = (row(1, 1), row(2, 2, user="bob", priority=7), row(3, 3, user="bob", priority=3))
    assert [int(i) - ID for i in run(f"-h -o %i {words}", *rows).split()] == order


def test_only_what_waits_is_asked_for(run: Run, asked: list[Call]) -> None:
    run("-j 7,8 -u ada -p gpu")
    (call,) = asked
    assert isinstance(call, QueueCall)
    assert (call.ids, call.users, call.partitions) == (("7", "8"), ("ada",), ("gpu",))
    assert (call.states, call.why, call.collapsed) == (("PENDING",), True, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-j 7,x", "Invalid job id: x"),
        ("-o %Z", "Invalid job format specification: Z"),
        ("-S x", "Invalid sort specification: x"),
        ("-w", "--weights cannot be honoured: the weights are policy.credit of federation.yaml"),
        ("-l -o %i", "-o (--format) is incompatible with -l (--long) and -n (--norm)"),
    ],
)
def test_a_mistake_is_one_line_and_asks_nothing(
    run: Run, asked: list[Call], words: str, said: str
) -> None:
    assert run(words) == f"fsprio: error: {said}\n"
    assert asked == []


def test_an_id_that_is_unknown_is_named(run: Run) -> None:
    reply = QueueReply(rows=(row(1, 1),), now_s=0.0, unknown=("9",))
    assert run(f"-h -o %d -j {ID + 1},9", reply=reply) == "1\nfsprio: Invalid job id specified: 9\n"


def test_a_refusal_is_an_error(run: Run) -> None:
    assert run("", reply=ErrorReply(message="no")) == "fsprio: error: no\n"
