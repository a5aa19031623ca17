"""The data sets that jobs write, from the first award of each job on; part of the ledger.

Each attempt writes in the folder of its job in one storage domain. So a job has a folder in each
domain where an attempt of it was; the last counts. What is configured is not kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from federator.model.data_output import KeptOutput, OutputState
from federator.model.event import Awarded, DataSetKept, OutputNoted
from federator.model.workload import Workload, WorkloadId


class Outputs:
    """What is known of each, by workload. Changed only by ``Ledger.apply``."""

    def __init__(self) -> None:
        self.changes = 0  # of those of jobs that have ended
        self._kept: dict[WorkloadId, KeptOutput] = {}
        self._due: dict[WorkloadId, None] = {}  # of jobs that have ended, with a folder
        self._labels: dict[tuple[str, str], WorkloadId] = {}  # what is being written

    def __iter__(self) -> Iterator[KeptOutput]:
        yield from self._kept.values()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, id_: WorkloadId) -> KeptOutput | None:
        """What is known of a job's output; None: it was never at a site with one."""
        return self._kept.get(id_)

    def due(self) -> Iterator[KeptOutput]:
        """Those of which something is to be sealed or removed, the job that ended first before."""
        yield from [self._kept[id_] for id_ in self._due]

    def awarded(self, workload: Workload, event: Awarded) -> None:
        """An attempt gets a folder; the one of its job, if it has one in that domain."""
        place = event.output
        if place is None:
            return
        before = self._kept.get(workload.id)
        folders = () if before is None else before.folders
        self._put(
            KeptOutput(
                id=workload.id,
                user=workload.user,
                tenant=workload.tenant,
                name=place.name,
                version=place.version,
                home="" if workload.output is None else workload.output.home,
                attempt=event.attempt.attempt,
                site=event.site,
                folders=(*(each for each in folders if each != place.domain), place.domain),
            )
        )

    def over(self, id_: WorkloadId, at_s: float, *, completed: bool) -> None:
        """A job has ended."""
        kept = self._kept.get(id_)
        if kept is not None:
            state = OutputState.SEALING if completed else OutputState.LEFT
            self._put(replace(kept, state=state, over_at_s=at_s))

    def registered(self, event: DataSetKept) -> None:
        """An output is in the catalogue."""
        kept = None if event.written_by is None else self._kept.get(event.written_by.workload)
        if kept is not None:
            self._put(replace(kept, state=OutputState.REGISTERED, detail=""))

    def apply(self, event: OutputNoted) -> None:
        """Take in news of a folder."""
        kept = self._kept.get(event.workload)
        if kept is None:
            return
        folders = kept.folders
        if event.dropped:
            folders = tuple(each for each in folders if each != event.domain)
        if event.state is OutputState.GIVEN_UP and not event.placed:
            folders = ()
        state = kept.state if event.state is None else event.state
        detail = kept.detail if kept.state is OutputState.GIVEN_UP else event.detail
        self._put(replace(kept, folders=folders, state=state, detail=detail))

    def forget(self, ids: Iterable[WorkloadId]) -> None:
        """These jobs are not known any more; what is to be done for their outputs still is."""
        for id_ in ids:
            kept = self._kept.get(id_)
            if kept is not None:
                self._put(replace(kept, forgotten=True))

    def restore(self, outputs: Iterable[KeptOutput]) -> None:
        """Know them as a snapshot has them."""
        for kept in outputs:
            self._put(kept)

    def writer_of(self, name: str, version: str) -> WorkloadId | None:
        """The job that writes this, and has not registered it; None: none does."""
        return self._labels.get((name, version))

    def _put(self, kept: KeptOutput) -> None:
        self._kept[kept.id] = kept
        self.changes += bool(kept.over_at_s)
        key = kept.name, kept.version
        if kept.state in (OutputState.WRITING, OutputState.SEALING):
            self._labels[key] = kept.id
        elif self._labels.get(key) == kept.id:
            del self._labels[key]
        if kept.over_at_s and kept.folders:
            self._due[kept.id] = None
        else:
            self._due.pop(kept.id, None)
        if kept.forgotten and kept.is_settled:
            del self._kept[kept.id]
