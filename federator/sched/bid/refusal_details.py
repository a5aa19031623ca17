"""Says with a refusal when the workload could start, what comes free next, and what would start.

Each of these costs more than the refusal itself, so only the first refusals of a message have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from federator.model.plan import BidRequest
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import Job
from federator.sched.bid.alternatives import alternatives
from federator.sched.bid.answer_memory import Extras, KnownRefusal
from federator.sched.bid.backfill import Backfill
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.reservation import Held, KnownEndings, lift, next_gpus
from federator.sched.bid.workload_plan import Reasons

STARTS_COMPUTED: Final = 3  # refusals of a message that say when the workload could start
EXPLAINED: Final = 16  # refusals that say what would start instead


_AS_THEY_ARE: Final = frozenset(
    {ReasonCode.NODE_FAILED, ReasonCode.NODES_ASKED, ReasonCode.LICENSES, ReasonCode.SWITCHES}
)


class RefusalDetails:
    """Makes the refusals of a message.

    Args:
        room: of the site.
        partitions: those the federation may use.
        endings: when what runs at the site comes free.
        backfill: who may get a reservation when it is said when he could start.
        now_s: Unix time.
    """

    def __init__(
        self,
        room: FreeCapacity,
        partitions: Sequence[str],
        endings: KnownEndings,
        backfill: Backfill,
        now_s: float,
    ) -> None:
        self._room = room
        self._partitions = partitions
        self._endings = endings
        self._backfill = backfill
        self._now_s = now_s
        self._starts_computed = self._explained = 0

    def extras(self) -> Extras:
        """The part of what can be said with a refusal that this message has not said too often."""
        return self._starts_computed < STARTS_COMPUTED, self._explained < EXPLAINED

    def said_again(self, known: KnownRefusal) -> Refusal | None:
        """A refusal that is remembered, if it says what one made now would say."""
        extras = self.extras()
        refusal, only_at_s = known.said.get(extras, (None, None))
        if refusal is None or only_at_s not in (None, self._now_s):
            return None
        if extras[0] and self._endings.predicts:
            return None  # it could start sooner by predictions, by which none was remembered
        if self._backfill.reserving and refusal.starts_in_s is not None:
            return None  # room is kept for it, which has to be worked out
        self._starts_computed += extras[0]
        self._explained += extras[1]
        return refusal

    def no_room(self, asked: BidRequest, reasons: Reasons, fence: Callable[[], Held]) -> Refusal:
        """The refusal of one that finds no room; ``fence`` takes what it may not use either."""
        found = tuple(map(_for_now, reasons)) + self._avoided(asked.jobs, reasons)
        refusal = Refusal(kind=RefusalKind.WAIT, reasons=found)
        if self._starts_computed < STARTS_COMPUTED:
            self._starts_computed += 1
            refusal = self._backfill.with_start(asked, refusal)
        if self._explained >= EXPLAINED:
            return refusal
        self._explained += 1
        held = fence()
        others = alternatives(asked.jobs, found, self._room, self._partitions)
        lift(held)
        return replace(refusal, reasons=self._with_next(asked.jobs, found), alternatives=others)

    def _avoided(self, jobs: Sequence[Job], reasons: Reasons) -> Reasons:
        """Nodes that would take the jobs, but failed them before; nothing if that is said."""
        nodes = self._room.by_name
        names = dict.fromkeys(name for job in jobs for name in job.avoid if name in nodes)
        if not names or any(r.code is ReasonCode.NODE_FAILED for r in reasons):
            return ()
        return (Reason(code=ReasonCode.NODE_FAILED, detail=",".join(names)),)

    def _with_next(self, jobs: Sequence[Job], reasons: Reasons) -> Reasons:
        """Add to what is said of a lone job how many GPUs come free next."""
        if len(jobs) != 1 or not jobs[0].total_gpus or reasons[0].code is ReasonCode.LICENSES:
            return reasons
        more, at_s = next_gpus(jobs[0], self._room, self._partitions, self._endings.by_limits())
        if not more:
            return reasons
        in_s = max(0.0, at_s - self._now_s)
        return tuple(replace(reason, more=more, more_in_s=in_s) for reason in reasons)


def only_at_s(refusal: Refusal, now_s: float) -> float | None:
    """The only time at which a refusal made now may be said; None: it holds at any."""
    of_times = refusal.starts_in_s is not None or any(reason.more for reason in refusal.reasons)
    return now_s if of_times else None


def _for_now(reason: Reason) -> Reason:
    """The reason as a lack of now: the empty site would have it."""
    if reason.code in _AS_THEY_ARE:
        return reason
    return replace(reason, code=ReasonCode.RESOURCES)
