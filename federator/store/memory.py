"""A log that ends with its process: for tests and the simulator."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from math import inf

from federator.errors import LeadershipLost, StaleState, StoreError
from federator.store.chain import LogEnd, LogPlace


class MemoryLog:
    """The part that several ``MemoryStore`` share: the records, and who leads.

    Args:
        lease_s: how long a leader leads without renewing.
        clock: monotonic, in seconds; needed only for a lease that ends.
    """

    def __init__(self, lease_s: float = inf, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.lease_s = lease_s
        self.clock = clock
        self.first = 1  # position of the first record; those before were compacted away
        self.records: list[bytes] = []
        self.epoch = 0
        self.leader: MemoryStore | None = None
        self.leads_until_s = 0.0  # on the clock


class MemoryStore:
    """Keeps the records in a list.

    Args:
        log: the log to open; a new one by default.
    """

    def __init__(self, log: MemoryLog | None = None) -> None:
        self._log = log or MemoryLog()
        self._epoch: int | None = None
        self._open = True

    def lead(self, at_least: int) -> int | None:
        log = self._log
        self._check_open()
        if log.leader not in (None, self) and log.clock() < log.leads_until_s:
            return None
        log.leader, log.epoch = self, max(log.epoch + 1, at_least)
        log.leads_until_s = log.clock() + log.lease_s
        self._epoch = log.epoch
        return log.epoch

    def renew(self) -> float:
        self._check_leads()
        self._log.leads_until_s = self._log.clock() + self._log.lease_s
        return self._log.lease_s

    def leader(self) -> str:
        return ""

    def append(self, records: Sequence[bytes]) -> None:
        self._check_leads()
        self._log.records.extend(records)

    def records(self) -> Iterator[bytes]:
        return iter(list(self._log.records))

    def read_on(self, place: LogPlace | None) -> Generator[tuple[LogPlace, bytes]]:
        first, records = self._log.first, list(self._log.records)
        if place is not None and place.first != first:
            raise StaleState("memory: the log was compacted")
        behind = place.end.next - first if place is not None else 0
        for k, record in enumerate(records[behind:], start=first + behind + 1):
            yield LogPlace(first, LogEnd(k)), record

    def compact(self, records: Sequence[bytes]) -> None:
        self._check_leads()
        self._log.first += len(self._log.records)
        self._log.records[:] = records

    def close(self) -> None:
        if self._log.leader is self:
            self._log.leader = None
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError("the memory store is closed")

    def _check_leads(self) -> None:
        self._check_open()
        if self._epoch is None:
            raise StoreError("the memory store does not lead: nothing may be written")
        if self._log.epoch != self._epoch:
            raise LeadershipLost(f"memory: epoch {self._log.epoch} leads, this was {self._epoch}")
