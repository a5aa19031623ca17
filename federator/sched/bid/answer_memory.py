"""Remembers a site's answers for as long as nothing changes there.

The room of a message is that of the site, less the bids made before in the same message. Which
bids those were is a *state*: the site as it is, and from each state one more for each bid that is
made in it. So a question that was asked in the same state before has the same answer, and most of
those that wait ask the same in every pass.

What depends on the time is remembered for its instant (when a workload could start), or not at all
(who may be evicted, what ends before a reservation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from federator.model.plan import Bid
from federator.model.reason import Refusal
from federator.model.workload import Job
from federator.sched.bid.negative_cache import renamed
from federator.sched.bid.workload_plan import anywhere

SITE: Final = 0
"""The state in which no bid was made yet."""

SHAPES_KEPT: Final = 8_192
ANSWERS_KEPT: Final = 65_536

Question = tuple[int, int, float, int]
"""State, number of the jobs, time limit, and how many windows concern the request."""

Extras = tuple[bool, bool]
"""Whether a refusal says when the workload could start, and what would start instead."""


@dataclass(slots=True)
class KnownBid:
    """A bid made without evicting anybody, in one state.

    Attributes:
        bid: as it was made.
        state: that follows when it is counted.
        least_gpus: of the nodes that it holds.
        retry: whether bids made before may be why it is not better.
        held_back: whether they are; None: not found out yet.
    """

    bid: Bid
    state: int
    least_gpus: int
    retry: bool
    held_back: bool | None = None


@dataclass(slots=True)
class KnownRefusal:
    """That a workload which may evict nobody finds no room, as it was said."""

    said: dict[Extras, tuple[Refusal, float | None]] = field(default_factory=dict)
    """With the only time at which it holds, where it speaks of times."""


class AnswerMemory:
    """The answers of one site.

    Args:
        never_fits: refuses jobs that not even the empty site could hold.
    """

    def __init__(self, never_fits: Callable[[tuple[Job, ...]], Refusal | None]) -> None:
        self._never_fits = never_fits
        self._numbers: dict[tuple[Job, ...], int] = {}
        self._shared: dict[int, tuple[Job, ...]] = {}  # by number
        self._by_object: dict[int, tuple[tuple[Job, ...], int]] = {}  # by id of the jobs
        self._never: dict[int, Refusal | None] = {}
        self._known: dict[Question, KnownBid | KnownRefusal] = {}
        self._states = SITE

    def number_of(self, jobs: tuple[Job, ...]) -> int:
        """The same number for jobs that ask for the same, whatever their names."""
        known = self._by_object.get(id(jobs))
        if known is not None:  # it is kept, so that nothing else has its id
            return known[1]
        number = self._numbers.setdefault(jobs, len(self._numbers))
        self._shared.setdefault(number, jobs)
        self._by_object[id(jobs)] = (jobs, number)
        return number

    def shared(self, number: int) -> tuple[Job, ...]:
        """The jobs in whose names all is remembered that is known of this number."""
        return self._shared[number]

    def never(self, number: int) -> Refusal | None:
        """The refusal of what would not fit even the empty site, in the names of ``shared``."""
        try:
            return self._never[number]
        except KeyError:
            found = self._never[number] = self._find_never(self._shared[number])
            return found

    def _find_never(self, jobs: tuple[Job, ...]) -> Refusal | None:
        """Nodes that it avoids count, so those who avoid others have the same answer."""
        bare = anywhere(jobs)
        if bare is jobs:
            return self._never_fits(jobs)
        number = self.number_of(bare)
        refusal = self.never(number)
        return None if refusal is None else renamed(jobs, self._shared[number], refusal)

    def get(self, question: Question) -> KnownBid | KnownRefusal | None:
        return self._known.get(question)

    def add_bid(self, question: Question, bid: Bid, least_gpus: int, *, retry: bool) -> KnownBid:
        """Remember a bid; a new state follows from it."""
        self._states += 1
        known = KnownBid(bid, self._states, least_gpus, retry)
        self._add(question, known)
        return known

    def add_refusal(
        self, question: Question, extras: Extras, refusal: Refusal, only_at_s: float | None
    ) -> None:
        known = self._known.get(question)
        if not isinstance(known, KnownRefusal):
            known = KnownRefusal()
            self._add(question, known)
        known.said[extras] = (refusal, only_at_s)

    def _add(self, question: Question, known: KnownBid | KnownRefusal) -> None:
        if len(self._known) >= ANSWERS_KEPT:
            self._known.clear()  # states go on, so that none is taken for another
        self._known[question] = known

    def forget(self) -> None:
        """Something has changed at the site."""
        self._known.clear()

    def forget_never(self) -> None:
        """The site is built differently."""
        self._never.clear()

    def bound(self) -> None:
        """Keep to the most that is kept; between messages, as a message goes by the numbers."""
        if len(self._by_object) >= SHAPES_KEPT:
            self._by_object.clear()
        if len(self._numbers) >= SHAPES_KEPT:
            self._numbers.clear()
            self._shared.clear()
            self._by_object.clear()
            self._never.clear()
            self._known.clear()
