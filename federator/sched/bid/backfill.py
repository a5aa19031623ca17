"""Keeps room for one blocked workload while a message is answered; who ends before may use it.

A message has one reservation at most. Who else could still run when it begins plans around it:
``fence`` takes that room away, ``use`` counts what is taken of what is left over. By the same lists
of endings a refusal says when its workload could start.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from msgspec.structs import replace

from federator.model.plan import Bid, BidRequest, JobPlan
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.sched.bid.closed_windows import ClosedWindows
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.reservation import (
    Ending,
    Held,
    KnownEndings,
    Reservation,
    ending_of,
    lift,
    reserve,
)


class Backfill:
    """The reservation of a message.

    Args:
        room: of the site.
        partitions: those the federation may use.
        endings: when what runs at the site comes free.
        windows: that close nodes of it.
        now_s: Unix time.
        reserving: whether the first workload that finds no room gets the reservation.

    Attributes:
        reserving: as above, and nobody has got it yet.
        reservation: None while there is none.
    """

    def __init__(
        self,
        room: FreeCapacity,
        partitions: Sequence[str],
        endings: KnownEndings,
        windows: ClosedWindows,
        now_s: float,
        *,
        reserving: bool,
    ) -> None:
        self._room = room
        self._partitions = partitions
        self._endings = endings
        self._windows = windows
        self._now_s = now_s
        self._made_end: list[tuple[float, Bid]] = []  # of those with a time limit
        self._made_over: list[tuple[float, Bid]] = []  # of those of which it is predicted
        self.reserving = reserving
        self.reservation: Reservation | None = None

    def note(self, asked: BidRequest, bid: Bid) -> None:
        """A bid was made: its nodes are in use until it would end."""
        if isfinite(asked.time_limit_s):
            self._made_end.append((self._now_s + asked.time_limit_s, bid))
        runs_s = min(asked.time_limit_s, asked.predicted_run_s)
        if isfinite(runs_s):
            self._made_over.append((self._now_s + runs_s, bid))

    # ---- those that run until then ----

    def concerns(self, asked: BidRequest) -> bool:
        """Tell whether a workload that starts now could still run when the reservation begins."""
        return (
            self.reservation is not None
            and self.reservation.id != asked.id
            and self.reservation.concerns(self._now_s, asked)
        )

    def fence(self) -> Held:
        """Take away what must be free in time; undo it with ``lift``."""
        return self.reservation.fence(self._room) if self.reservation is not None else []

    def fence_evicted(self) -> Held:
        """As ``fence``, for a plan that may evict: what it frees is not its own either."""
        return self.reservation.fence_evicted(self._room) if self.reservation is not None else []

    def use(self, plans: Sequence[JobPlan]) -> None:
        """Count what a job that runs longer takes of what is left over."""
        if self.reservation is not None:
            self.reservation.use(plans)

    def refusal(self) -> Refusal:
        """The refusal of one that would take the room that is kept."""
        assert self.reservation is not None
        reason = Reason(
            code=ReasonCode.RESERVED,
            detail=str(self.reservation.id),
            more_in_s=self.reservation.starts_at_s - self._now_s,
        )
        return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))

    # ---- the one that is blocked ----

    def reserve_for(self, asked: BidRequest) -> None:
        """Keep room for a workload, if there is a time at which it can start."""
        self.reservation = self._earliest(asked)

    def with_start(self, asked: BidRequest, refusal: Refusal) -> Refusal:
        """Say when a workload could start; keep that room where nobody has the reservation yet."""
        reservation = self._earliest(asked)
        if reservation is None:
            return replace(refusal, no_end_in_sight=True)
        if self.reserving:
            self.reservation, self.reserving = reservation, False
        sooner = None if reservation.predicted else self._earliest_by_prediction(asked)
        if sooner is not None and sooner.starts_at_s < reservation.starts_at_s:
            refusal = replace(refusal, sooner_in_s=sooner.starts_at_s - self._now_s)
        return replace(
            refusal,
            starts_in_s=reservation.starts_at_s - self._now_s,
            predicted=reservation.predicted,
        )

    def starts_in_s(self, asked: BidRequest) -> float | None:
        """Seconds until a workload could start, as soon as limits or predictions say; or None."""
        found = (self._earliest(asked), self._earliest_by_prediction(asked))
        starts_s = [each.starts_at_s for each in found if each is not None]
        return min(starts_s) - self._now_s if starts_s else None

    def _earliest(self, asked: BidRequest) -> Reservation | None:
        """Room by the time limits of others; where these promise none, by predictions."""
        endings = self._and_made(self._endings.by_limits(), self._made_end)
        found = self._outside_windows(asked, endings)
        return self._earliest_by_prediction(asked) if found is None else found

    def _earliest_by_prediction(self, asked: BidRequest) -> Reservation | None:
        if not (predicted := self._endings.by_prediction()):
            return None
        endings = self._and_made(predicted, self._made_over)
        found = self._outside_windows(asked, endings)
        if found is not None:
            found.predicted = True
        return found

    def _outside_windows(self, asked: BidRequest, endings: Sequence[Ending]) -> Reservation | None:
        """Room by these endings, at a time from which on no window is in the way.

        The later it starts the more windows it could run into; so from its start with these ones
        closed all along it is looked whether there are more of them.
        """
        concerning = self._windows.concerning(self._now_s, asked)
        while True:
            opened = self._windows.endings(concerning, asked)
            known = sorted([*endings, *opened], key=lambda e: e.at_s) if opened else endings
            held = self._windows.fence(concerning, with_used=True)
            found = reserve(asked.id, asked.jobs, self._room, self._partitions, known, self._now_s)
            lift(held)
            if found is None:
                return None
            more = self._windows.concerning(found.starts_at_s, asked)
            if more <= concerning:
                return found
            concerning = more

    def _and_made(
        self, endings: Sequence[Ending], made: Sequence[tuple[float, Bid]]
    ) -> Sequence[Ending]:
        """Endings, and those of bids that were made."""
        if not made:
            return endings
        more = (ending_of(self._room, at_s, bid.jobs) for at_s, bid in made)
        return sorted([*endings, *more], key=lambda e: e.at_s)
