"""What can befall the log? One that all daemons share, and that fails in every way a log may fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from math import inf

from federator.errors import StoreError
from federator.faults.process import Process


class LogFault(Enum):
    """What becomes of the next append."""

    NONE = "well"
    NOTHING = "fails, nothing added"
    ADDED = "fails, all added"


class SharedLog:
    """What is durable; it outlives every daemon.

    Args:
        on_records: told of records when they are durable.
        tell: notes what struck.
        clock: monotonic time.
        lease_s: how long a leader that does not renew stays leader; inf: until it ends, as where
            the kernel guards a file lock.
    """

    def __init__(
        self,
        on_records: Callable[[Sequence[bytes]], None],
        tell: Callable[[str], None],
        clock: Callable[[], float],
        lease_s: float = inf,
    ) -> None:
        self.records: list[bytes] = []
        self.on_records = on_records
        self.tell = tell
        self.clock = clock
        self.lease_s = lease_s
        self.fault = LogFault.NONE  # of the next append
        self.full = False
        self.slow_s = 0.0
        self.epoch = 0
        self.leader: LogHandle | None = None
        self.leads_until_s = 0.0

    def open(self, process: Process) -> LogHandle:
        """As a daemon's process does."""
        return LogHandle(self, process)


class LogHandle:
    """One process's ``Store``."""

    def __init__(self, shared: SharedLog, process: Process) -> None:
        self._shared = shared
        self._process = process
        if shared.lease_s == inf:
            process.when_dead(self._give_up)

    def _give_up(self) -> None:
        if self._shared.leader is self:
            self._shared.leader = None

    def lead(self, at_least: int) -> int | None:
        self._process.point("lead before")
        shared = self._shared
        if shared.leader is not None and shared.clock() < shared.leads_until_s:
            return None
        shared.epoch = max(shared.epoch + 1, at_least)
        shared.leader, shared.leads_until_s = self, shared.clock() + shared.lease_s
        self._process.point("lead after")
        return shared.epoch

    def renew(self) -> float:
        self._process.point("renew before")
        self._must_lead()
        self._shared.leads_until_s = self._shared.clock() + self._shared.lease_s
        self._process.point("renew after")
        return self._shared.lease_s

    def _must_lead(self) -> None:
        if self._shared.leader is not self:
            raise StoreError("another daemon leads")

    def append(self, records: Sequence[bytes]) -> None:
        self._process.point("append before")
        self._must_lead()
        shared = self._shared
        fault, shared.fault = shared.fault, LogFault.NONE
        if shared.full or fault is LogFault.NOTHING:
            shared.tell("log full" if shared.full else f"log {fault.value}")
            raise StoreError("cannot append: disk full")
        shared.records.extend(records)
        shared.on_records(records)
        if fault is LogFault.ADDED:
            shared.tell(f"log {fault.value}")
            raise StoreError("cannot append: no answer")
        self._process.point("append after")

    def records(self) -> Iterator[bytes]:
        self._process.point("start")
        return iter(list(self._shared.records))

    def compact(self, records: Sequence[bytes]) -> None:
        self._process.point("compact before")
        self._must_lead()
        self._shared.records[:] = records
        self._process.point("compact after")

    def close(self) -> None:
        self._process.check()
        self._give_up()
