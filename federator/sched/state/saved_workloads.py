"""The index of pending workloads that have a checkpoint to go on from."""

from __future__ import annotations

from collections.abc import Iterator

from federator.model.lifecycle import WorkloadState
from federator.model.workload import WorkloadId
from federator.sched.state.workload_record import WorkloadRecord


class SavedWorkloads:
    """Pending workloads that have saved; the one that has been so for longest comes first."""

    def __init__(self) -> None:
        self._ids: dict[WorkloadId, None] = {}

    def __iter__(self) -> Iterator[WorkloadId]:
        return iter(self._ids)

    def changed(self, entry: WorkloadRecord) -> None:
        """A workload's state, or where it has saved, may be another now."""
        if entry.saved_at and entry.state is WorkloadState.PENDING:
            self._ids[entry.workload.id] = None
        else:
            self.drop(entry.workload.id)

    def drop(self, id_: WorkloadId) -> None:
        """It is known no more."""
        self._ids.pop(id_, None)
