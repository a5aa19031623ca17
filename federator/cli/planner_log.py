"""Follows the daemon's log for a planner, which is made anew where the log is another one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from federator.errors import StaleState

if TYPE_CHECKING:
    from federator.model.event import LogRecord
    from federator.store.base import Store
    from federator.store.chain import LogPlace

POLL_S: Final = 1.0  # between two looks at the log
AGAIN_S: Final = 10.0  # after a plan that was not taken
RECORDS_AT_ONCE: Final = 5_000


class TakesRecords(Protocol):
    """A planner that reads the log."""

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log in."""
        ...


Planner = TypeVar("Planner", bound=TakesRecords)


class FollowingPlanner(Generic[Planner]):
    """A planner, and how far in the log it is.

    Args:
        make: makes one without history.
        store: holds the log; read, never written.

    Attributes:
        latest_s: the Unix time of the latest record, by the daemon's clock; 0 before the first.
    """

    def __init__(self, make: Callable[[], Planner], store: Store) -> None:
        self._make, self._store = make, store
        self.planner = make()
        self.latest_s = 0.0
        self._place: LogPlace | None = None
        self._read = 0

    def follow(self) -> bool:
        """Take in what comes next in the log; True when that was all there is.

        Raises:
            StoreError: the log, or a record, cannot be read; the same call may succeed later.
        """
        from federator.store.replaying import read_record  # noqa: PLC0415  # not for --help

        try:
            with closing(self._store.read_on(self._place)) as rest:
                found = list(islice(rest, RECORDS_AT_ONCE))
        except StaleState:  # it was compacted, or another one was put in its place
            self.begin_anew()
            return False
        for place, record in found:
            self._read += 1
            event = read_record(self._read, record)
            self.latest_s = max(self.latest_s, event.at_s)
            self.planner.take(event)
            self._place = place
        return len(found) < RECORDS_AT_ONCE

    def begin_anew(self) -> None:
        """Read the log from its beginning."""
        self.planner, self._place, self._read = self._make(), None, 0
