"""Submission keys: by its key a submission that is sent twice is known again."""

from __future__ import annotations

from collections.abc import Collection

from federator.model.workload import Workload, WorkloadId


class SubmissionKeys:
    """The keys of all submissions that are known.

    Attributes:
        id_of: the workload of each key, or the array.
    """

    def __init__(self) -> None:
        self.id_of: dict[str, WorkloadId] = {}
        self._key_of: dict[WorkloadId, str] = {}  # the other way round; made when it is asked for

    def add(self, key: str, id_: WorkloadId) -> None:
        """A submission came with this key."""
        self.id_of[key] = id_
        self._key_of[id_] = key

    def of(self, workload: Workload) -> str:
        """The key of the submission it is of; "" where it has none."""
        id_ = workload.array.array_id if workload.array is not None else workload.id
        if id_ not in self._key_of:  # once after a replay
            self._key_of = {known: key for key, known in self.id_of.items()}
        return self._key_of.setdefault(id_, "")

    def forget(self, gone: Collection[WorkloadId]) -> None:
        """Know the keys of these workloads and arrays no more."""
        self._key_of = {}
        self.id_of = {key: id_ for key, id_ in self.id_of.items() if id_ not in gone}
