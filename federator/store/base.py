"""What must a store promise? Records in order, durable once ``append`` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class Store(Protocol):
    """An append-only log of opaque records.

    One process writes at a time; a second one is refused when it opens the store.
    """

    def append(self, records: Sequence[bytes]) -> None:
        """Add records, all or none; they survive a crash once this returns.

        Raises:
            StoreError: nothing was added.
        """
        ...

    def records(self) -> Iterator[bytes]:
        """Every record, oldest first.

        Raises:
            StoreError: the log cannot be read.
        """
        ...

    def close(self) -> None:
        """Give the log up to the next process; harmless when done before."""
        ...
