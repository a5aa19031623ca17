"""Looks up once what sites say of a shape, for an answer to people.

A table of thousands that wait holds few shapes. What is said of one is said in the names of the
jobs of whoever was looked up first; only the reason that is shown is put in those of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from federator.model.reason import Reason, Refusal
from federator.model.workload import Job, SiteName
from federator.sched.bid.negative_cache import reason_renamed


class OfShape(NamedTuple):
    """What sites say of one shape; ``is_all``: each of them says something."""

    refusals: Mapping[SiteName, Refusal]
    is_all: bool


class Spoken:
    """Kept while one answer is made: nothing changes meanwhile."""

    def __init__(self) -> None:
        self._of_shape: dict[int, OfShape] = {}
        self._asked_by: dict[int, tuple[Reason, Sequence[Job]]] = {}  # by ``id`` of the reason

    def of(self, number: int, jobs: Sequence[Job], look_up: Callable[[], OfShape]) -> OfShape:
        """What the sites say of a shape; those that have to be asked say nothing."""
        known = self._of_shape.get(number)
        if known is None:
            known = self._of_shape[number] = look_up()
            for refusal in known.refusals.values():
                reason = refusal.reasons[0]
                self._asked_by[id(reason)] = reason, jobs
        return known

    def in_terms_of(self, jobs: Sequence[Job], reason: Reason | None) -> Reason | None:
        """A main reason, in the names of these jobs, if it was said of a shape."""
        _, others = self._asked_by.get(id(reason), (None, None))
        if reason is None or others is None or others is jobs:
            return reason
        return reason_renamed(jobs, others, reason)
