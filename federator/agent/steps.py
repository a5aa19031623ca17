"""Walks the table of an attempt: finds the row, moves the record, and has its acts done."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from federator.agent.attempt_table import ATTEMPT_TRANSITIONS, Act, AttemptEvent
from federator.agent.memory import AttemptRecord

Doing = Callable[[AttemptRecord], None]


class Steps:
    """The only place where an attempt's state changes."""

    def __init__(self) -> None:
        self._doing: dict[Act, Doing] = {}

    def add(self, doing: Mapping[Act, Doing]) -> None:
        """Say how some acts are done; each act is one part's."""
        assert not self._doing.keys() & doing.keys()
        self._doing.update(doing)

    def step(self, record: AttemptRecord, event: AttemptEvent) -> None:
        """Take one step.

        Raises:
            AssertionError: the table has no such row: a bug.
        """
        edge = ATTEMPT_TRANSITIONS.get((record.state, event))
        assert edge is not None, f"{record.attempt} is {record.state.value}: no {event.value}"
        record.state = edge.to
        for act in edge.acts:
            self._doing[act](record)
