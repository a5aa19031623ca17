"""The index of workloads by state; within a state, the oldest change comes first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from federator.model.lifecycle import WorkloadState
from federator.model.workload import WorkloadId
from federator.sched.state.workload_record import WorkloadRecord

_PLACE: Final = {state: place for place, state in enumerate(WorkloadState)}


class StateIndex:
    """Which workloads are in which state.

    Args:
        entries: all that are known, at any time.
    """

    def __init__(self, entries: Mapping[WorkloadId, WorkloadRecord]) -> None:
        self._entries = entries
        self._ids: dict[WorkloadState, dict[WorkloadId, None]] = {s: {} for s in WorkloadState}

    def records(self, *states: WorkloadState) -> Iterator[WorkloadRecord]:
        """Those in these states, oldest change first within each.

        The states come as ``WorkloadState`` has them. Callers name them by sets, whose own order is
        another one in each process, and what is decided in it would be, too.
        """
        for state in states if len(states) == 1 else sorted(states, key=_PLACE.__getitem__):
            for id_ in list(self._ids[state]):
                yield self._entries[id_]

    def count(self, state: WorkloadState) -> int:
        """The number of those in a state."""
        return len(self._ids[state])

    def ids(self, state: WorkloadState) -> tuple[WorkloadId, ...]:
        """Those in a state, oldest change first."""
        return tuple(self._ids[state])

    def add(self, id_: WorkloadId, state: WorkloadState) -> None:
        """A workload that was not known is in a state now."""
        self._ids[state][id_] = None

    def move(self, id_: WorkloadId, before: WorkloadState, after: WorkloadState) -> None:
        """It goes from one state to another, or to the end of the same."""
        del self._ids[before][id_]
        self._ids[after][id_] = None

    def drop(self, id_: WorkloadId, state: WorkloadState) -> None:
        """It is known no more."""
        del self._ids[state][id_]

    def restore(self, state: WorkloadState, ids: Iterable[WorkloadId]) -> None:
        """These follow those that are known to be in the state."""
        self._ids[state].update(dict.fromkeys(ids))
