"""How many of one shape are asked about in a round, and whom those that were not hold up."""

from __future__ import annotations

from federator.sched.bid.negative_cache import NOBODY
from federator.sched.passes.asking_limit import ASKED_AT_FIRST, GROWTH, AskingLimit
from federator.sched.passes.refused_shapes import Asked

SMALL, LARGE = Asked(1, NOBODY, 1), Asked(2, NOBODY, 1)


def asked(limit: AskingLimit, shape: Asked) -> int:
    """How many of a shape a round asks about, with no end of them."""
    limit.begin_round()
    count = 0
    while not limit.is_reached(shape):
        limit.count(shape)
        count += 1
    limit.defer(shape, count)
    return count


def test_more_are_asked_about_after_a_round_in_which_a_few_were_too_few() -> None:
    limit = AskingLimit()
    assert [asked(limit, SMALL) for _ in range(3)] == [
        ASKED_AT_FIRST,
        GROWTH * ASKED_AT_FIRST,
        GROWTH * GROWTH * ASKED_AT_FIRST,
    ]
    assert asked(limit, LARGE) == ASKED_AT_FIRST


def test_one_that_was_deferred_holds_up_those_behind_while_it_may_start() -> None:
    limit = AskingLimit()
    limit.begin_round()
    limit.defer(SMALL, 2)
    assert not limit.holds_up(1, lambda _: False)
    assert limit.holds_up(2, lambda _: False)
    assert limit.holds_up(3, lambda shape: shape == LARGE)
    assert not limit.holds_up(4, lambda shape: shape == SMALL)
    limit.begin_round()
    assert not limit.holds_up(5, lambda _: False)
