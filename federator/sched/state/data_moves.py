"""The plan of where data sets should be, and the copies that plans began in the last day."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from federator.model.data_placement import DAY_S, BegunMove
from federator.model.event import DataPlanned, DataSetKept


class DataMoves:
    """Part of the ledger.

    Attributes:
        planned: the latest plan; it may have expired.
        begun: copies of the last day, oldest first.
    """

    def __init__(self) -> None:
        self.planned: DataPlanned | None = None
        self.begun: deque[BegunMove] = deque()
        self._last_s: dict[tuple[str, str, str], float] = {}  # by name, version and domain
        self._bytes = 0

    def used_bytes(self, now_s: float) -> int:
        """What plans have had copied within the last day."""
        old = 0
        for move in self.begun:
            if move.at_s > now_s - DAY_S:
                break
            old += move.size_bytes
        return self._bytes - old

    def was_begun(self, name: str, version: str, domain: str, now_s: float) -> bool:
        """Whether a plan has begun this copy within the last day, whatever became of it."""
        return self._last_s.get((name, version, domain), -inf) > now_s - DAY_S

    def apply(self, event: DataPlanned | DataSetKept) -> None:
        """Take in a plan, or that a copy was begun by one."""
        if isinstance(event, DataPlanned):
            self.planned = event
            return
        of = event.kept
        replica = of.replica_in(event.moved_to)
        if replica is not None and replica.copy is not None:  # else there is nothing to copy
            self._forget(event.at_s)
            self._add(BegunMove(event.at_s, of.name, of.version, event.moved_to, of.size_bytes))

    def restore(self, planned: DataPlanned | None, begun: Iterable[BegunMove]) -> None:
        """Take in what a snapshot has."""
        self.planned = planned
        for move in begun:
            self._add(move)

    def _add(self, move: BegunMove) -> None:
        self.begun.append(move)
        self._last_s[move.name, move.version, move.domain] = move.at_s
        self._bytes += move.size_bytes

    def _forget(self, now_s: float) -> None:
        while self.begun and self.begun[0].at_s <= now_s - DAY_S:
            gone = self.begun.popleft()
            self._bytes -= gone.size_bytes
            key = gone.name, gone.version, gone.domain
            if self._last_s.get(key) == gone.at_s:
                del self._last_s[key]
