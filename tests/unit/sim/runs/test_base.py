"""Runs are done in any order and told of in their own; one that fails is its own affair."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import pytest

from federator.sim.runs.base import (
    Executor,
    Finished,
    RunFailure,
    RunsFailed,
    SimRun,
    outcomes,
    performed,
    results,
)
from federator.sim.runs.executors import InProcess
from tests.fakes.runs import Squared, squares


class Backwards:
    """An executor that finishes the last run first."""

    def perform(
        self, runs: Sequence[SimRun[Any]], progress: Callable[[int, float], None]
    ) -> Generator[Finished, None, None]:
        for number in reversed(range(len(runs))):
            yield number, performed(runs[number], partial(progress, number))


def numbers(found: Sequence[Squared | RunFailure]) -> list[int]:
    return [one.number for one in results(found)]


@pytest.mark.parametrize("executor", [InProcess(), Backwards()])
def test_results_are_in_the_order_of_the_runs(executor: Executor) -> None:
    found = list(outcomes(squares([3, 1, 2]), executor))
    assert found == [Squared(number=n, square=float(n**2)) for n in (3, 1, 2)]


def test_a_result_is_of_the_type_that_the_run_says_wherever_it_was_made() -> None:
    (found,) = results(list(outcomes(squares([2]), InProcess())))
    assert isinstance(found.square, float)


@pytest.mark.parametrize("executor", [InProcess(), Backwards()])
def test_a_run_that_fails_names_itself_and_the_others_go_on(executor: Executor) -> None:
    first, second, third = outcomes(squares([13, 2, 14]), executor)
    assert first == RunFailure(name="square 13", reason="13 is refused")
    assert second == Squared(number=2, square=4.0)
    assert isinstance(third, RunFailure)
    assert third.reason.startswith("ValueError: a mistake (runs.py:")


def test_results_that_are_missing_are_one_error_that_names_the_runs() -> None:
    found = list(outcomes(squares([13, 2, 14, 14]), InProcess()))
    with pytest.raises(RunsFailed) as caught:
        results(found)
    assert str(caught.value).startswith("3 of 4 runs failed: square 13: 13 is refused; also square")


def test_progress_never_goes_back_and_ends_at_one() -> None:
    for executor in (InProcess(), Backwards()):
        seen: list[float] = []
        list(outcomes(squares([1, 2, 13]), executor, progress=seen.append))
        assert seen == sorted(seen)
        assert seen[0] == pytest.approx(1 / 6)
        assert seen[-1] == pytest.approx(1.0)


def test_no_runs_have_no_results() -> None:
    assert list(outcomes([], InProcess())) == []


def test_a_result_is_there_before_later_runs_are_done() -> None:
    found = outcomes(squares([1, 14]), InProcess())
    assert next(found) == Squared(number=1, square=1.0)
    found.close()


def test_numbers_of_failures_are_bounded() -> None:
    failed = [RunFailure(name=f"r{k}", reason="no") for k in range(20)]
    with pytest.raises(
        RunsFailed, match=r"20 of 20 runs failed: r0: no; also r1, .*r5 and 14 more"
    ):
        numbers(failed)
