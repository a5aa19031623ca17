"""Places that are held for jobs which move: from the award they move for until they start again.

A gang's award names who moves for it, and where each goes on. Until the mover has left, its place
stands here; once it waits, the place is its claim (``Ledger.claims``) like that of any claimant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from federator.model.event import Awarded, Claimed
from federator.model.lifecycle import WorkloadState
from federator.model.tenant import Tenancy
from federator.model.workload import SiteName, WorkloadId

if TYPE_CHECKING:
    from federator.sched.state.drains import DrainedSites
    from federator.sched.state.workload_record import WorkloadRecord

MOVES_KEPT: Final = 1_000


class Moves:
    """Who moves, and when others did.

    Args:
        entries: all workloads.

    Attributes:
        places: held for those who have not left yet, as the claims that they will be.
        at_s: Unix times at which somebody was chosen to move, in order; the oldest are forgotten.
    """

    def __init__(self, entries: Mapping[WorkloadId, WorkloadRecord]) -> None:
        self._entries = entries
        self.places: dict[WorkloadId, Claimed] = {}
        self.at_s: deque[float] = deque(maxlen=MOVES_KEPT)

    def awarded(self, event: Awarded, tenancy: Tenancy) -> None:
        """Some are to move for an award; they rank as their tenants do."""
        for id_, node in event.moves:
            mover = self._entries[WorkloadId(id_)]
            (plan,) = mover.plan
            (share,) = plan.nodes.values()
            self.at_s.append(event.at_s)
            self.places[mover.workload.id] = Claimed(
                at_s=event.at_s,
                workload=mover.workload.id,
                site=SiteName(event.site),
                jobs=(replaced(plan, nodes={node: share}),),
                priority=tenancy.level(mover.workload),
                since_s=event.at_s,
                starts_by_s=event.at_s,
                promised_by_s=event.at_s,
                moved_for=event.attempt.workload,
            )

    def spared(self, award: Awarded) -> None:
        """It came to nothing, or has its nodes: whoever was not told to leave for it stays."""
        for id_, _ in award.moves:
            place = self.places.get(WorkloadId(id_))
            if place is None or place.moved_for != award.attempt.workload:
                continue
            if self._entries[place.workload].state is not WorkloadState.PREEMPTING:
                del self.places[place.workload]

    def drained(self, drains: DrainedSites) -> None:
        """Give up the places where no new work is taken now."""
        for id_, place in list(self.places.items()):
            nodes = [name for plan in place.jobs for name in plan.nodes]
            is_gone = place.site in drains.written_off
            if is_gone or drains.of(place.site, nodes) is not None:
                del self.places[id_]

    def left(self, mover: WorkloadRecord, to: WorkloadState, at_s: float) -> Claimed | None:
        """One has left its site; its claim if it waits now, and was to go on elsewhere."""
        place = self.places.pop(mover.workload.id, None)
        if place is None or to is not WorkloadState.PENDING:
            return None
        return replace(place, at_s=at_s, since_s=at_s, starts_by_s=at_s, promised_by_s=at_s)

    def since(self, since_s: float) -> int:
        """How many were chosen to move after an instant."""
        return sum(at_s > since_s for at_s in self.at_s)

    def restore(self, places: Iterable[Claimed], at_s: Iterable[float]) -> None:
        """These follow those that are known."""
        self.places.update((place.workload, place) for place in places)
        self.at_s.extend(at_s)
