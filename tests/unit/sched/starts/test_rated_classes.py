"""The classes by which hit rates are told: a size with a quota class."""

from __future__ import annotations

import pytest

from federator.sched.starts.queue_view import classes_of
from federator.sched.starts.rated_classes import RatedClass, rated_class, read_class
from tests.fakes.build import gang, workload


@pytest.mark.parametrize(
    ("gpus", "words"),
    [(1, "1"), (2, "2"), (3, "3-4"), (4, "3-4"), (5, "5-8"), (8, "5-8")],
)
def test_a_class_has_the_sizes_that_are_in_it(gpus: int, words: str) -> None:
    for within, quota in ((True, "within"), (False, "over")):
        classes = classes_of(workload(1, gang(1, gpus)), within)
        assert read_class(rated_class(classes)) == RatedClass(words, quota)


@pytest.mark.parametrize(
    "name", ["", "size 4", "size 0, over quota", "size 99, over quota", "size ٣, over quota"]
)
def test_what_names_no_class_is_none(name: str) -> None:
    assert read_class(name) is None
