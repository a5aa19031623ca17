"""A log that all daemons of a history share, and that fails in many ways."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from enum import Enum
from math import inf

from federator.errors import NotCompacted, StoreError
from federator.faults.process import Process
from federator.store.chain import LogPlace
from federator.store.memory import MemoryLog, MemoryStore


class LogFault(Enum):
    """The outcome of the next append."""

    NONE = "well"
    NOTHING = "fails, nothing added"
    ADDED = "fails, all added"


class SharedLog:
    """The durable records; they outlive every daemon.

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
        self.memory = MemoryLog(lease_s, clock)
        self.on_records = on_records
        self.tell = tell
        self.fault = LogFault.NONE  # of the next append
        self.full = False
        self.silent = False  # renewals are not answered
        self.slow_s = 0.0
        self.said: set[str] = set()  # of the faults that strike now

    def say(self, what: str) -> None:
        """Once in each spell."""
        if what not in self.said:
            self.said.add(what)
            self.tell(what)

    def open(self, process: Process) -> MortalStore:
        """As a daemon's process does."""
        return MortalStore(self, process)


class MortalStore:
    """One process's ``Store``, in which it may die at each call."""

    def __init__(self, shared: SharedLog, process: Process) -> None:
        self._shared = shared
        self._process = process
        self._store = MemoryStore(shared.memory)
        if shared.memory.lease_s == inf:  # the kernel gives a dead process's lock up
            process.when_dead(self._store.close)

    def lead(self, at_least: int) -> int | None:
        self._process.point("lead before")
        return self._store.lead(at_least)

    def leader(self) -> str:
        return self._store.leader()

    def renew(self) -> float:
        self._process.point("renew before")
        if self._shared.silent:
            self._shared.say("log silent")
            raise StoreError("no answer")
        lasts_s = self._store.renew()
        self._process.point("renew after")
        return lasts_s

    def append(self, records: Sequence[bytes]) -> None:
        self._process.point("append before")
        shared = self._shared
        if shared.slow_s:
            shared.say("log slow")
        fault, shared.fault = shared.fault, LogFault.NONE
        if shared.full or fault is LogFault.NOTHING:
            if shared.full:
                shared.say("log full")
            else:
                shared.tell(f"log {fault.value}")
            raise StoreError("cannot append: disk full")
        self._store.append(records)
        shared.on_records(records)
        if fault is LogFault.ADDED:
            shared.tell(f"log {fault.value}")
            raise StoreError("cannot append: no answer")
        self._process.point("append after")

    def records(self) -> Iterator[bytes]:
        self._process.point("start")
        return self._store.records()

    def read_on(self, place: LogPlace | None) -> Generator[tuple[LogPlace, bytes]]:
        self._process.point("start")
        return self._store.read_on(place)

    def compact(self, records: Sequence[bytes]) -> None:
        self._process.point("compact before")
        if self._shared.full:
            self._shared.say("log full")
            raise NotCompacted("disk full")
        self._store.compact(records)
        self._shared.tell("the log is a snapshot now")
        self._process.point("compact after")

    def close(self) -> None:
        self._process.check()
        self._store.close()
