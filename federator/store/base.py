"""The contract of a store: one writer at a time; records in order, durable after ``append``."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Protocol

from federator.store.chain import LogPlace


class Store(Protocol):
    """An append-only log of opaque records. Opening it does not lead."""

    def lead(self, at_least: int) -> int | None:
        """Become the one writer; whoever led before can append nothing from then on.

        Args:
            at_least: the new term's epoch is no smaller.

        Returns:
            The epoch of the new term, greater than every one before; None while another leads.

        Raises:
            DamagedLog: records are missing that were acknowledged.
            StoreError: the log cannot be led: the message says why, and what to do.
        """
        ...

    def renew(self) -> float:
        """Keep leading; also while another thread appends.

        Returns:
            Seconds, from the start of the call, that this process surely leads on; inf where the
            kernel guards it.

        Raises:
            LeadershipLost: another one leads.
            StoreError: no answer; the lease that is left runs on.
        """
        ...

    def leader(self) -> str:
        """The leader, in words, such as ``host4 (pid 123)``; "" where that is not known."""
        ...

    def append(self, records: Sequence[bytes]) -> None:
        """Add records, all or none; they survive a crash once this returns.

        Raises:
            LeadershipLost: another one leads; nothing was added.
            StoreError: whether they were added is not known (or this store does not lead): the
                caller must stop, and read the log again.
        """
        ...

    def records(self) -> Iterator[bytes]:
        """Every record of one moment, oldest first; also without leading.

        Raises:
            DamagedLog: it is not as it was written.
            StoreError: it cannot be read.
        """
        ...

    def read_on(self, place: LogPlace | None) -> Generator[tuple[LogPlace, bytes]]:
        """The records behind a place, oldest first, each with the place behind it.

        Who leads reads the log that it leads, up to its end.

        Args:
            place: that one has read to; None for nothing.

        Raises:
            StaleState: the log is not any more what was read up to there (it was compacted, or
                another one was put in its place): read it from the beginning.
            StoreError: as for ``records``; or it is not the log that this process leads.
        """
        ...

    def compact(self, records: Sequence[bytes]) -> None:
        """Put these records in place of the whole log, all or none.

        Raises:
            NotCompacted: nothing was changed; ``append`` goes on.
            LeadershipLost, StoreError: as for ``append``.
        """
        ...

    def close(self) -> None:
        """Give leadership up at once, so that a standby need not wait; again is harmless."""
        ...
