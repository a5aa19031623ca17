"""Finds the refusal that follows from one given before in the same message.

It comes before all that is remembered of the site: an answer depends on the message and the site,
not on what was asked when.
"""

from __future__ import annotations

from federator.model.reason import Refusal
from federator.model.workload import Job
from federator.sched.bid.negative_cache import NegativeCache, Rights, as_for


class RefusedBefore:
    """The refusals of a message for want of room."""

    def __init__(self) -> None:
        self._failed: NegativeCache[Refusal] = NegativeCache()
        self._failures = 0  # that were added to it
        self._found: dict[tuple[int, Rights], tuple[int, Refusal | None]] = {}
        # By number of the jobs: of how many failures, and what follows from them.

    def find(self, jobs: tuple[Job, ...], number: int, rights: Rights) -> Refusal | None:
        """The refusal of jobs, known by their number, with these rights; None: none follows."""
        if not self._failures:
            return None
        as_of, refusal = self._found.get((number, rights), (0, None))
        if refusal is None and as_of < self._failures:
            known = self._failed.find(jobs, rights)
            refusal = None if known is None else as_for(jobs, known.jobs, known.answer)
            self._found[number, rights] = (self._failures, refusal)
        return refusal

    def add(self, jobs: tuple[Job, ...], number: int, rights: Rights, refusal: Refusal) -> None:
        self._failed.add(jobs, rights, refusal)
        self._failures += 1
        self._found[number, rights] = (self._failures, refusal)
