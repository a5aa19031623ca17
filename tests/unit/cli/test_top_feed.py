"""The question that is asked next, and the rows that the words of a filter leave."""

from __future__ import annotations

import pytest

from federator.cli.top_feed import TopFeed, brief, matching
from federator.errors import InvalidRequest, SiteUnavailable
from federator.wire.client_protocol import (
    Call,
    CancelReply,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
    StatusCall,
)
from tests.unit.cli.test_status import STATUS

QUEUE = brief((), (), ())


def row(id_: int, state: str = "PENDING", **fields: object) -> QueueRow:
    known: dict[str, object] = {
        "id": id_,
        "name": f"train{id_}",
        "user": "ada",
        "tenant": "nlp",
        "priority": 3,
        "state": state,
        "attempt": 1,
        "submitted_at_s": 900.0,
        "gpus": 8,
        "nodes": 1,
    }
    return QueueRow(**known | fields)  # type: ignore[arg-type]


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def answered(call: Call) -> object:
    if isinstance(call, StatusCall):
        return STATUS
    return QueueReply(rows=(row(7, reason=None),), now_s=1000.0)


def asked(feed: TopFeed, clock: Clock, took_s: float = 0.0) -> list[Call]:
    """All that is due, answered one after another."""
    found: list[Call] = []
    while (call := feed.next()) is not None:
        clock.now_s += took_s
        feed.take(call, answered(call))
        found.append(call)
    return found


def test_one_question_is_due_at_a_time_and_rests_after_its_answer() -> None:
    clock = Clock()
    feed = TopFeed(QUEUE, 5.0, clock)
    assert asked(feed, clock) == [QUEUE, StatusCall()]
    clock.now_s += 5.0
    assert asked(feed, clock) == [QUEUE]
    clock.now_s += 5.0
    assert asked(feed, clock) == [QUEUE, StatusCall()]


def test_a_selected_job_is_asked_of_at_once() -> None:
    clock = Clock()
    feed = TopFeed(QUEUE, 5.0, clock)
    asked(feed, clock)
    feed.select(7)
    (call,) = asked(feed, clock)
    assert isinstance(call, QueueCall)
    assert (call.ids, call.why, call.starts) == (("7",), True, True)
    assert feed.detail is not None


def test_the_answer_of_a_job_that_is_no_longer_selected_is_left() -> None:
    clock = Clock()
    feed = TopFeed(QUEUE, 5.0, clock)
    asked(feed, clock)
    feed.select(7)
    call = feed.next()
    assert call is not None
    feed.select(8)
    feed.take(call, answered(call))
    assert feed.detail is None
    assert feed.next() == QueueCall(ids=("8",), ended=True, why=True, files=True, starts=True)


def test_a_busy_daemon_is_asked_more_seldom() -> None:
    clock = Clock()
    feed = TopFeed(QUEUE, 5.0, clock)
    asked(feed, clock, took_s=2.0)
    clock.now_s += 15.0
    assert asked(feed, clock) == []
    clock.now_s += 5.0
    assert asked(feed, clock) == [QUEUE, StatusCall()]


def test_what_is_known_stays_when_there_is_no_answer() -> None:
    clock = Clock()
    feed = TopFeed(QUEUE, 5.0, clock)
    asked(feed, clock)
    feed.failed(QUEUE, SiteUnavailable("the daemon is away"))
    assert (len(feed.rows), feed.trouble) == (1, "the daemon is away")
    clock.now_s += 5.0
    asked(feed, clock)
    assert feed.trouble == ""


def test_a_refusal_and_a_strange_answer_are_errors() -> None:
    feed = TopFeed(QUEUE, 5.0, Clock())
    with pytest.raises(InvalidRequest, match="no such user"):
        feed.take(QUEUE, ErrorReply(message="no such user"))
    with pytest.raises(SiteUnavailable):
        feed.take(QUEUE, CancelReply(ids=()))


def test_every_word_of_a_filter_counts_wherever_it_stands() -> None:
    rows = [row(1), row(2, user="bob"), row(3, "RUNNING", site="alpine", name="eval")]
    assert [each.id for each in matching(rows, "", frozenset())] == [1, 2, 3]
    assert [each.id for each in matching(rows, "TRAIN ada", frozenset())] == [1]
    assert [each.id for each in matching(rows, "alpine", frozenset())] == [3]
    assert [each.id for each in matching(rows, "nlp", frozenset({"PENDING"}))] == [1, 2]
    assert matching(rows, "nobody", frozenset()) == []
