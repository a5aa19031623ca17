"""Limits how many workloads of one shape are asked about in a round.

Once one of a shape is refused everywhere, those behind need not be asked. So a few are asked about
at first, and more in the round after one in which that was too few. Whoever ranks behind one that
was deferred is not settled before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federator.sched.passes.refused_shapes import Asked

ASKED_AT_FIRST: Final = 4  # of one shape, in one round
GROWTH: Final = 4  # as many times more are asked in the round after one in which that was too few


class AskingLimit:
    """How many of each shape are asked about in the present round, and who was deferred."""

    def __init__(self) -> None:
        self._at_most: dict[Asked, int] = {}
        self._count: dict[Asked, int] = {}  # in this round
        self._deferred: list[tuple[int, Asked]] = []  # with how many were asked before
        self._passed = 0  # of ``_deferred``
        self._waited_for: list[Asked] = []  # of those, whoever ranks before the one being settled

    def begin_round(self) -> None:
        self._count = {}
        self._deferred, self._passed, self._waited_for = [], 0, []

    def is_reached(self, asked: Asked) -> bool:
        """Tell whether as many as may be are asked about in this round."""
        return self._count.get(asked, 0) >= self._at_most.get(asked, ASKED_AT_FIRST)

    def count(self, asked: Asked) -> None:
        """One more of a shape is asked about."""
        self._count[asked] = self._count.get(asked, 0) + 1

    def defer(self, asked: Asked, position: int) -> None:
        """Leave the others of a shape for the next round; so many in all were asked before."""
        self._at_most[asked] = GROWTH * self._at_most.get(asked, ASKED_AT_FIRST)
        self._deferred.append((position, asked))

    def holds_up(self, position: int, is_refused: Callable[[Asked], bool]) -> bool:
        """Tell whether somebody who was deferred ranks before a workload, and may still start.

        Args:
            position: of the workload in the round; never less than in the call before.
            is_refused: whether no site takes a shape.
        """
        while self._passed < len(self._deferred) and self._deferred[self._passed][0] <= position:
            self._waited_for.append(self._deferred[self._passed][1])
            self._passed += 1
        self._waited_for = [asked for asked in self._waited_for if not is_refused(asked)]
        return bool(self._waited_for)
