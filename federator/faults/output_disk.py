"""A simulated storage domain: the folders that jobs write in, and what was put in its place.

What is in a folder is known by the attempts that have written in it: a seal names those that
completed there, so a check can tell who wrote what was registered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from federator.errors import SiteRefused
from federator.model.data_output import OutputPlace
from federator.model.dataset import CopyPhase
from federator.model.workload import AttemptId, WorkloadId
from federator.wire.agent_protocol import OutputOrder, OutputStatus

_SIZE: int = 1000  # bytes, of each attempt that completed


def digest_of(attempts: Sequence[AttemptId]) -> str:
    """The seal of what these have written."""
    return "sha256tree:" + hashlib.sha256(" ".join(map(str, attempts)).encode()).hexdigest()


class OutputDisk:
    """The files of one domain.

    Args:
        completed: the attempts of a job that have completed at sites that mount it.
        runs: whether the job runs at such a site.
        break_: told of a promise that is broken.
    """

    def __init__(
        self,
        completed: Callable[[WorkloadId], Sequence[AttemptId]],
        runs: Callable[[WorkloadId], bool],
        break_: Callable[[str], None],
    ) -> None:
        self._completed, self._runs, self._break = completed, runs, break_
        self.folders: dict[WorkloadId, bool] = {}  # whether a worker has begun to seal it
        self._sealed: dict[WorkloadId, tuple[AttemptId, ...]] = {}  # while its folder is there
        self.placed: dict[str, WorkloadId] = {}  # by path

    def make(self, place: OutputPlace) -> None:
        """As sbatch's helper does."""
        self.folders.setdefault(place.id, False)

    def step(self, order: OutputOrder) -> OutputStatus:
        """As the helper's output does."""
        id_, place = order.place.id, order.place
        if order.drop:
            if self._runs(id_):
                self._break(f"the output of {id_} is removed while it runs")
            self.folders.pop(id_, None)
            self._sealed.pop(id_, None)
            return _status(order, CopyPhase.DROPPED)
        if id_ not in self.folders:
            return _status(order, CopyPhase.FAILED, "its folder is gone")
        if self._runs(id_):
            self._break(f"the output of {id_} is sealed while it runs")
        if not self.folders[id_]:
            self.folders[id_] = True
            return _status(order, CopyPhase.CHECKING)
        if id_ not in self._sealed:
            if place.path in self.placed:
                raise SiteRefused("something else is at its place")
            self._sealed[id_] = tuple(self._completed(id_))
            self.placed[place.path] = id_
        sealed = self._sealed[id_]
        return OutputStatus(
            workload=id_,
            attempt=order.attempt,
            domain=place.domain,
            phase=CopyPhase.DONE,
            size_bytes=_SIZE * len(sealed),
            files=len(sealed),
            digest=digest_of(sealed),
        )


def _status(order: OutputOrder, phase: CopyPhase, detail: str = "") -> OutputStatus:
    return OutputStatus(
        workload=order.place.id,
        attempt=order.attempt,
        domain=order.place.domain,
        phase=phase,
        detail=detail,
    )
