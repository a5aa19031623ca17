"""Constraints as Slurm writes them."""

from __future__ import annotations

import pytest

from federator.errors import InvalidRequest
from federator.model.constraint import holds, plain_names, ways_of


def test_operators_are_read_from_left_to_right() -> None:
    (way,) = ways_of("a|b&c")
    assert holds(way.every, {"a", "c"})
    assert not holds(way.every, {"a"})
    (grouped,) = ways_of("a|(b&c)")
    assert holds(grouped.every, {"a"})


def test_brackets_are_ways_of_which_all_nodes_go_one() -> None:
    ways = ways_of("x&[a|b]")
    assert [holds(way.every, {"x", "a"}) for way in ways] == [True, False]
    assert not any(holds(way.every, {"a"}) for way in ways)


def test_counts_add_up() -> None:
    (way,) = ways_of("[(a&b)*2&c*1]")
    assert (way.every, way.counted_nodes) == (None, 3)
    assert way == ways_of("(a&b)*2&c*1")[0]


@pytest.mark.parametrize(
    "text",
    ["&a", "a&&b", "a b", "[a", "a]", "()", "a*", "a*x", "a*2|b", "[a|b]|[c]", "!a", "(a*2)"],
)
def test_what_is_no_constraint_is_refused_in_slurms_words(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid feature specification"):
        ways_of(text)


def test_long_and_deep_texts_are_refused_before_they_cost_anything() -> None:
    for text in ("a" * 3000, "(" * 40 + "a" + ")" * 40, "a*1000", "[" + "|".join("a" * 40) + "]"):
        with pytest.raises(InvalidRequest):
            ways_of(text)
    (way,) = ways_of("|".join("a" * 1000))
    assert holds(way.every, {"a"})


def test_plain_names_are_told_from_the_rest() -> None:
    assert plain_names("a&b,a") == ("a", "b")
    assert plain_names("a|b") is None
