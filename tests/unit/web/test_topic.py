"""How often the daemon is asked, whoever looks."""

from __future__ import annotations

from federator.web.topic import PART_OF_TIME, WANTED_S, Topic
from federator.wire.client_protocol import ErrorReply, PassesCall, PassesReply
from federator.wire.status_rows import PassRow

NOTHING = PassesReply(passes=(), now_s=0.0)


def topic(idle_every_s: float = float("inf")) -> Topic[PassesReply]:
    return Topic("passes", PassesCall, PassesReply, 2.0, idle_every_s)


def test_what_nobody_looks_at_is_not_asked() -> None:
    passes = topic()
    passes.want(0.0)
    passes.take(NOTHING, 0.0, 0.01)
    assert passes.due_s(1.0) == 2.0
    assert passes.due_s(WANTED_S + 1.0) == float("inf")
    assert topic(60.0).due_s(0.0) <= 0.0


def test_an_answer_that_took_long_is_asked_for_again_after_a_hundred_times_as_long() -> None:
    passes = topic()
    passes.take(NOTHING, 10.0, 10.5)
    passes.want(10.5)
    assert passes.due_s(11.0) == 10.0 + PART_OF_TIME * 0.5


def test_nothing_is_asked_more_than_once_a_second() -> None:
    eager: Topic[PassesReply] = Topic("passes", PassesCall, PassesReply, 0.0)
    eager.want(0.0)
    eager.take(NOTHING, 5.0, 5.0)
    assert eager.due_s(5.0) == 6.0


def test_only_another_answer_is_news_and_now_and_then_the_time() -> None:
    passes = topic()
    assert passes.take(NOTHING, 0.0, 0.0)
    assert not passes.take(PassesReply(passes=(), now_s=2.0), 2.0, 2.0)
    assert passes.take(PassesReply(passes=(PassRow(began_s=1.0),), now_s=4.0), 4.0, 4.0)
    assert passes.take(PassesReply(passes=(PassRow(began_s=1.0),), now_s=40.0), 40.0, 40.0)


def test_a_refusal_is_news_once_and_the_last_answer_stays() -> None:
    passes = topic()
    passes.take(NOTHING, 0.0, 0.0)
    assert passes.take(ErrorReply(message="away"), 2.0, 2.0)
    assert not passes.take(ErrorReply(message="away"), 4.0, 4.0)
    assert passes.answer == NOTHING
    assert passes.trouble == "away"
    assert passes.take(NOTHING, 6.0, 6.0)
    assert passes.trouble == ""


def test_an_answer_of_another_kind_is_trouble() -> None:
    passes = topic()
    passes.take("no daemon", 0.0, 0.0)
    assert passes.trouble == "no daemon"
    assert passes.answer is None
