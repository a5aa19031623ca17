"""The audit of the fast engine trusts nothing: each mistake that it is for is found."""

from __future__ import annotations

import pytest

from federator.sim.fast.accounting import Books
from federator.sim.fast.flat_site import FlatPlan
from tests.fakes.traces import pool, trace

ONE_NODE = FlatPlan([0], [2])


def books() -> Books:
    return Books(trace("a 5 10 2\nb 5 10 2", pool("ant", 2, 3)))


def test_books_that_balance_are_closed() -> None:
    kept = books()
    for row, plan in enumerate((ONE_NODE, FlatPlan([1, 0], [1, 1]))):
        kept.start(row, 0, plan, 5)
    for row in range(2):
        kept.end(row, 15)
    kept.close()


def test_a_gpu_that_is_given_to_two_jobs_is_found() -> None:
    kept = books()
    kept.start(0, 0, ONE_NODE, 5)
    with pytest.raises(AssertionError, match="node 0 is used twice"):
        kept.start(1, 0, ONE_NODE, 6)


def test_a_job_that_gets_other_than_it_asked_for_is_found() -> None:
    with pytest.raises(AssertionError, match="is not 2 GPUs"):
        books().start(0, 0, FlatPlan([0], [1]), 5)
    with pytest.raises(AssertionError, match="names a node twice"):
        books().start(0, 0, FlatPlan([0, 0], [1, 1]), 5)


def test_a_job_that_starts_too_early_or_twice_is_found() -> None:
    with pytest.raises(AssertionError, match="row 0 starts before it comes"):
        books().start(0, 0, ONE_NODE, 4)
    kept = books()
    kept.start(0, 0, ONE_NODE, 5)
    with pytest.raises(AssertionError, match="row 0 runs already"):
        kept.start(0, 0, FlatPlan([1], [2]), 5)
    kept.end(0, 15)
    with pytest.raises(AssertionError, match="row 0 has ended already"):
        kept.start(0, 0, ONE_NODE, 15)


def test_jobs_that_never_ran_and_gpu_seconds_that_are_missing_are_found() -> None:
    kept = books()
    kept.start(0, 0, ONE_NODE, 5)
    kept.end(0, 15)
    with pytest.raises(AssertionError, match="1 jobs never ran"):
        kept.close()
    kept.start(1, 0, ONE_NODE, 5)
    kept.end(1, 14)
    with pytest.raises(AssertionError, match="38 GPU-seconds instead of 40"):
        kept.close()
