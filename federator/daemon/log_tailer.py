"""Tails the log for a standby, so that it knows at once what the leader knew.

Of 100,000 workloads that takes seconds, from a whole log more (docs/results.md has figures), and so
a standby has done it before, but for what came last.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Final

import structlog

from federator.errors import LogDiverged, StaleState
from federator.sched.passes.federation import Federation
from federator.store.base import Store
from federator.store.chain import LogPlace
from federator.store.replaying import replay_log

RECORDS_AT_ONCE: Final = 5_000  # taken in some tenths of a second
MANY: Final = 5_000  # records; what they lead to stays

log = structlog.get_logger()


@contextmanager
def without_collecting() -> Iterator[None]:
    """Nothing is thrown away while a log is read, and to look for garbage holds up every thread."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class LogTailer:
    """A federation as its log says it is.

    Args:
        make: makes an empty one.
        store: holds the log; read, never written.
    """

    def __init__(self, make: Callable[[], Federation], store: Store) -> None:
        self._make = make
        self._store = store
        self._federation = make()
        self._place: LogPlace | None = None
        self._taken = 0

    @property
    def federation(self) -> Federation:
        """The federation as far as the log has been read."""
        return self._federation

    @without_collecting()
    def tail(self) -> bool:
        """Take in what comes next; True when that was all there is.

        A log that is not what was read before, such as one that was compacted, is read anew.

        Raises:
            DamagedLog: a record does not follow from those before it.
            StoreError: the log, or a record, cannot be read.
        """
        try:
            with closing(self._store.read_on(self._place)) as rest:
                found = list(islice(rest, RECORDS_AT_ONCE))
        except StaleState as error:
            if isinstance(error, LogDiverged):
                log.warning("log_diverged", detail=str(error))
            self._resync()
            return False
        place, self._place = found[-1][0] if found else self._place, None
        try:
            replay_log(self._federation, (record for _, record in found), first=self._taken + 1)
        except Exception:
            self._resync()  # it may be half taken in
            raise
        self._place = place
        self._taken += len(found)
        if len(found) >= MANY:
            gc.freeze()  # not to be looked through again and again
        return len(found) < RECORDS_AT_ONCE

    def _resync(self) -> None:
        self._federation, self._place, self._taken = self._make(), None, 0
