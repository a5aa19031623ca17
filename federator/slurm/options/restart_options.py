"""Reads the options by which a job leaves to go on in another attempt, evicted by nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from federator.errors import InvalidRequest
from federator.slurm.options import own_values


class _Given(Protocol):
    """The options of one component by name."""

    def text(self, name: str) -> str | None:
        """Return the value; None when the option is absent."""

    def __contains__(self, name: str) -> bool: ...


def progress_s(given: Sequence[_Given]) -> float:
    """The longest time between two steps that any component gives, in seconds; 0: none does.

    Raises:
        InvalidRequest: it is no such time, or the job may not start again.
    """
    texts = [text for each in given if (text := each.text("fed-progress")) is not None]
    if texts and "no-requeue" in given[0]:
        raise InvalidRequest(
            "--fed-progress starts a job that stands still again, which --no-requeue (or "
            "SBATCH_NO_REQUEUE) forbids; leave one of them out"
        )
    return max(map(own_values.progress_s, texts), default=0)


def migrates(given: Sequence[_Given]) -> bool:
    """Whether any component has it move off slow nodes.

    Raises:
        InvalidRequest: nobody would know of its steps, or it may not leave.
    """
    asked = any("fed-migrate" in each for each in given)
    if asked and all(each.text("fed-progress") is None for each in given):
        raise InvalidRequest(
            "--fed-migrate goes by the steps of the job, which --fed-progress=MIN has told of: "
            "give that as well"
        )
    if asked and any("fed-no-preempt" in each for each in given):
        raise InvalidRequest(
            "--fed-migrate has the job leave slow nodes, which --fed-no-preempt forbids; leave one "
            "of them out"
        )
    return asked


def continues(given: Sequence[_Given]) -> bool:
    """Whether any component has it go on at its time limit.

    Raises:
        InvalidRequest: it may not start again.
    """
    asked = any("fed-continue" in each for each in given)
    if asked and "no-requeue" in given[0]:
        raise InvalidRequest(
            "--fed-continue starts the job again at its time limit, which --no-requeue (or "
            "SBATCH_NO_REQUEUE) forbids; leave one of them out"
        )
    return asked
