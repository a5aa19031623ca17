"""Looks up once what sites say of a shape, for an answer to people.

A table of thousands that wait holds few shapes. What is said of one is said in the names of the
jobs of whoever was looked up first; only the reason that is shown is put in those of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from federator.model.data_use import DataUse
from federator.model.reason import Reason, Refusal
from federator.model.workload import Job, SiteName
from federator.sched.bid.negative_cache import reason_renamed


class OfShape(NamedTuple):
    """What sites say of one shape; ``is_all``: each of them says something."""

    refusals: Mapping[SiteName, Refusal]
    is_all: bool


class OfData(NamedTuple):
    """The sites that lack any of some data sets; ``staging``: what it takes to have them there."""

    lacking: Mapping[SiteName, Refusal]
    staging: Mapping[SiteName, str]  # words; of some of these sites


class Spoken:
    """Kept while one answer is made: nothing changes meanwhile.

    Args:
        codes: of each main reason only the code is shown.
    """

    def __init__(self, *, codes: bool = False) -> None:
        self.codes = codes
        self._bare: dict[int, Reason] = {}
        self._of_shape: dict[int, OfShape] = {}
        self._asked_by: dict[int, Sequence[Job]] = {}  # the same shapes
        self._of_data: dict[tuple[DataUse, ...], OfData] = {}
        self._last = 0  # the shape that was asked for last

    def of(self, number: int, jobs: Sequence[Job], look_up: Callable[[], OfShape]) -> OfShape:
        """What the sites say of a shape; those that have to be asked say nothing."""
        self._last = number
        if number not in self._of_shape:
            self._of_shape[number], self._asked_by[number] = look_up(), jobs
        return self._of_shape[number]

    def of_data(self, uses: tuple[DataUse, ...], look_up: Callable[[], OfData]) -> OfData:
        """Where these data sets are lacking."""
        if uses not in self._of_data:
            self._of_data[uses] = look_up()
        return self._of_data[uses]

    def shown(self, jobs: Sequence[Job], reason: Reason | None) -> Reason | None:
        """A main reason of whoever was asked for last, as a row of its jobs, these, has it."""
        if reason is None or not self.codes:
            return self._in_terms_of(jobs, reason)
        code = reason.code
        bare = self._bare.get(id(code))  # there is one object of each: its own hash is no fast one
        if bare is None:
            bare = self._bare[id(code)] = Reason(code=code)
        return bare

    def _in_terms_of(self, jobs: Sequence[Job], reason: Reason | None) -> Reason | None:
        """In the names of these jobs."""
        others = self._asked_by.get(self._last)
        if reason is None or others is None or others is jobs:
            return reason
        said = self._of_shape[self._last].refusals.values()
        is_said = any(reason is refusal.reasons[0] for refusal in said)
        return reason_renamed(jobs, others, reason) if is_said else reason
