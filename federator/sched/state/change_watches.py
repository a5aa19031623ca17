"""Change watches: sets of workloads that have changed, each kept for a reader of the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from federator.model.workload import WorkloadId


class ChangeWatches:
    """The sets of all readers; a reader clears its own.

    Args:
        known: all workloads that there are, at any time.
    """

    def __init__(self, known: Iterable[WorkloadId]) -> None:
        self._known = known
        self._watches: list[set[WorkloadId]] = []

    def __len__(self) -> int:
        return len(self._watches)

    def open(self) -> set[WorkloadId]:
        """A set to which every workload is added that changes from now on.

        All that are known now are in it.
        """
        watch = set(self._known)
        self._watches.append(watch)
        return watch

    def close(self, watch: set[WorkloadId]) -> None:
        """Add no more to a set that ``open`` gave."""
        self._watches = [each for each in self._watches if each is not watch]

    def add(self, id_: WorkloadId) -> None:
        """A workload has changed."""
        for watch in self._watches:
            watch.add(id_)
