"""A log that ends with its process: for tests and the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from federator.errors import StoreError


class MemoryStore:
    """Keeps the records in a list."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._open = True

    def append(self, records: Sequence[bytes]) -> None:
        if not self._open:
            raise StoreError("the memory store is closed")
        self._records.extend(records)

    def records(self) -> Iterator[bytes]:
        return iter(list(self._records))

    def close(self) -> None:
        self._open = False
