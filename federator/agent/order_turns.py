"""Gives the orders for an attempt their turns: one at a time, in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable

from federator.agent.memory import AgentMemory, AttemptRecord, OrderTurn
from federator.model.workload import AttemptId


class OrderTurns:
    """The orders that wait at each attempt, or have their turn.

    Args:
        memory: shared.
        begin: begins the order whose turn it is, the record's first.
    """

    def __init__(self, memory: AgentMemory, begin: Callable[[AttemptRecord], None]) -> None:
        self._memory = memory
        self._begin = begin

    def add(self, attempt: AttemptId, turn: OrderTurn) -> None:
        """Begin it at once if no other order of the attempt has its turn."""
        record = self._memory.record(attempt)
        record.turns.append(turn)
        if len(record.turns) == 1:
            self._begin(record)

    def end(self, record: AttemptRecord) -> None:
        """The first one is carried out; the next one's turn has come."""
        record.turns.popleft()
        if record.turns:
            self._begin(record)
        else:
            self._memory.forget_idle(record.attempt)
