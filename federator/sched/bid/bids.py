"""Answers one message at a site: each request in order, as if all bids before had won."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from msgspec.structs import replace

from federator.model.plan import Bid, BidRequest
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.score import Score
from federator.model.site_message import SiteAnswer
from federator.model.workload import MAX_AMOUNT, Job
from federator.sched.bid.alternatives import alternatives
from federator.sched.bid.answer_memory import (
    SITE,
    AnswerMemory,
    Extras,
    KnownBid,
    KnownRefusal,
    Question,
)
from federator.sched.bid.claimed_nodes import ClaimedNodes
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.negative_cache import NOBODY, NegativeCache, Rights, as_for, renamed
from federator.sched.bid.preemption import EvictionRight, plan_with_victims, redo, undo
from federator.sched.bid.reservation import (
    Ending,
    KnownEndings,
    Reservation,
    ending_of,
    lift,
    next_gpus,
    reserve,
)
from federator.sched.bid.running_jobs import Occupants
from federator.sched.bid.workload_plan import Reasons, place_all

STARTS_COMPUTED: Final = 3  # refusals of a message that say when the workload could start
EXPLAINED: Final = 16  # refusals that say what would start instead
RETRIED: Final = 16  # bids for which it is found out whether earlier ones stood in their way
_AS_GOOD: Final = 1 + Score._fields.index("locality_cost")  # terms that a hold may spoil


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """The site as it is when a message comes.

    ``memory`` has what was answered since something changed; ``endings`` tells what comes free
    when, and is asked only when it is needed.
    """

    room: FreeCapacity
    partitions: Sequence[str]  # those the federation may use
    occupants: Occupants
    memory: AnswerMemory
    endings: KnownEndings
    claims: ClaimedNodes


class Bidding:
    """The answers to one message.

    What is bid is taken from the room, so that nothing is offered twice, until ``close``.

    Args:
        site: as it is now; its room is changed, and in the end as it was.
        now_s: Unix time.
        reserving: whether the first workload that finds no room gets a reservation.
    """

    def __init__(self, site: Premises, now_s: float, *, reserving: bool) -> None:
        self._room = site.room
        self._partitions = site.partitions
        self._occupants = site.occupants
        self._memory = site.memory
        self._endings = site.endings
        self._claims = site.claims
        self._now_s = now_s
        self._reserving = reserving
        self._reservation: Reservation | None = None
        self._failed: NegativeCache[Refusal] = NegativeCache()
        self._failures = 0  # that were added to it
        self._refused: dict[tuple[int, Rights], tuple[int, Refusal | None]] = {}
        # By number of the jobs: of how many failures, and what follows from them.
        self._fenced_off: NegativeCache[Refusal] = NegativeCache()
        self._state: int | None = SITE  # None: one that never comes again
        self._made: list[Bid] = []  # taken from the room
        self._remembered: list[Bid] = []  # made after those, and not taken yet
        self._made_end: list[tuple[float, Bid]] = []  # of those with a time limit
        self._made_over: list[tuple[float, Bid]] = []  # of those of which it is predicted
        self._least_gpus_held = MAX_AMOUNT  # of the nodes of these bids
        self._starts_computed = self._explained = self._retried = 0

    def reserve_for(self, asked: BidRequest) -> None:
        """Keep room for a workload that found none at any site."""
        self._reserving = False
        if self._memory.never(self._memory.number_of(asked.jobs)) is None:
            self._reservation = self._reserve(asked)

    def answer(self, asked: BidRequest) -> SiteAnswer:
        """A bid, or why there is none. It is worked out for all that ask for the same."""
        number = self._memory.number_of(asked.jobs)
        shared = self._memory.shared(number)
        if shared is asked.jobs or _names(shared) == _names(asked.jobs):
            return self._answer(asked, number)
        answer = self._answer(replace(asked, jobs=shared), number)
        return _in_the_names_of(asked.jobs, shared, answer)

    def _answer(self, asked: BidRequest, number: int) -> SiteAnswer:
        """As ``answer``, in the names that all share who ask for the same."""
        memory = self._memory
        never = memory.never(number)
        if never is not None:
            return SiteAnswer(id=asked.id, refusal=never)
        if not self._claims.binds(asked):
            return self._answer_claimant(asked, number)
        rights = Rights(asked.priority, asked.preempt_gpus) if asked.preempt_gpus else NOBODY
        failed = self._failed_before(asked.jobs, number, rights) if self._failures else None
        if failed is not None:
            return SiteAnswer(id=asked.id, refusal=failed)
        late = self._is_late(asked)
        question = None
        if self._state is not None and not late:
            question = (self._state, number, asked.time_limit_s)
            known = memory.get(question)
            if isinstance(known, KnownBid):
                return self._bid_again(asked, known)
            if known is not None and not asked.preempt_gpus:
                said = self._said_again(known)
                if said is not None:
                    self._add_failure(asked.jobs, number, rights, said)
                    return SiteAnswer(id=asked.id, refusal=said)
        self._take_remembered()
        return self._work_out(asked, number, rights, question, late=late)

    def _answer_claimant(self, asked: BidRequest, number: int) -> SiteAnswer:
        """As ``_answer``, for one that some claim does not bind: nothing is remembered of it."""
        self._take_remembered()
        self._claims.open_for(asked)
        rights = Rights(asked.priority, asked.preempt_gpus) if asked.preempt_gpus else NOBODY
        late = self._is_late(asked)
        answer = self._work_out(asked, number, rights, None, late=late)
        self._claims.shut(asked, has_bid=answer.bid is not None)
        return answer

    def _is_late(self, asked: BidRequest) -> bool:
        """Tell whether a workload that starts now could still run when the reservation begins."""
        return (
            self._reservation is not None
            and self._reservation.id != asked.id
            and self._reservation.concerns(self._now_s, asked)
        )

    def _failed_before(self, jobs: tuple[Job, ...], number: int, rights: Rights) -> Refusal | None:
        """The refusal that follows from one given before in this message.

        It comes before all that is remembered: an answer depends on the message and the site, not
        on what was asked when.
        """
        as_of, refusal = self._refused.get((number, rights), (0, None))
        if refusal is None and as_of < self._failures:
            known = self._failed.find(jobs, rights)
            refusal = None if known is None else as_for(jobs, known.jobs, known.answer)
            self._refused[number, rights] = (self._failures, refusal)
        return refusal

    def _add_failure(
        self, jobs: tuple[Job, ...], number: int, rights: Rights, refusal: Refusal
    ) -> None:
        self._failed.add(jobs, rights, refusal)
        self._failures += 1
        self._refused[number, rights] = (self._failures, refusal)

    def _bid_again(self, asked: BidRequest, known: KnownBid) -> SiteAnswer:
        held_back = False
        if known.retry and self._retried < RETRIED:
            if known.held_back is None:
                self._take_remembered()
                redo(known.bid, self._room, self._occupants)
                known.held_back = self._is_held_back(asked, known.bid, late=False)
                undo(known.bid, self._room, self._occupants)
            else:
                self._retried += 1
            held_back = known.held_back
        self._remembered.append(known.bid)
        self._count(asked, known.bid, known.least_gpus)
        self._state = known.state
        return SiteAnswer(id=asked.id, bid=known.bid, held_back=held_back)

    def _extras(self) -> Extras:
        """The part of what can be said with a refusal that this message has not said too often."""
        return self._starts_computed < STARTS_COMPUTED, self._explained < EXPLAINED

    def _said_again(self, known: KnownRefusal) -> Refusal | None:
        extras = self._extras()
        refusal, only_at_s = known.said.get(extras, (None, None))
        if refusal is None or only_at_s not in (None, self._now_s):
            return None
        if self._reserving and refusal.starts_in_s is not None:
            return None  # room is kept for it, which has to be worked out
        self._starts_computed += extras[0]
        self._explained += extras[1]
        return refusal

    def _take_remembered(self) -> None:
        """Take from the room what was bid without looking at it."""
        for bid in self._remembered:
            redo(bid, self._room, self._occupants)
        self._made += self._remembered
        self._remembered = []

    def _work_out(
        self,
        asked: BidRequest,
        number: int,
        rights: Rights,
        question: Question | None,
        *,
        late: bool,
    ) -> SiteAnswer:
        """The answer to a question that was not asked in this state before."""
        fenced_off = self._fenced_off.find(asked.jobs, rights) if late else None
        if fenced_off is not None and fenced_off.jobs == asked.jobs:
            return SiteAnswer(id=asked.id, refusal=fenced_off.answer)
        nothing: tuple[Bid | Reasons, bool] = ((), False)
        result, at_once = nothing if fenced_off is not None else self._plan(asked, late=late)
        if isinstance(result, Bid):
            return self._bid(asked, result, question if at_once else None, late=late)
        unfenced = self._try(asked) if late else result
        if isinstance(unfenced, Bid):
            refusal = self._reserved()
            self._fenced_off.add(asked.jobs, rights, refusal)
        else:
            extras, before = self._extras(), self._reservation
            refusal = self._no_room(asked, unfenced, late=late)
            self._add_failure(asked.jobs, number, rights, refusal)
            keeps = self._reservation is before and not (extras[0] and self._endings.predicts)
            if question is not None and not asked.preempt_gpus and keeps:
                only_at_s = self._now_s if _speaks_of_times(refusal) else None
                self._memory.add_refusal(question, extras, refusal, only_at_s)
        return SiteAnswer(id=asked.id, refusal=refusal)

    def _bid(
        self, asked: BidRequest, bid: Bid, question: Question | None, *, late: bool
    ) -> SiteAnswer:
        """Answer with a bid that was taken from the room."""
        nodes = (self._room.by_name[name].node for plan in bid.jobs for name in plan.nodes)
        least_gpus = min(node.gpus for node in nodes)
        held_back, retried = False, self._retried
        retry = bool(self._made) and self._may_be_spoilt(bid)
        if retry and self._retried < RETRIED:
            held_back = self._is_held_back(asked, bid, late=late)
        self._made.append(bid)
        self._count(asked, bid, least_gpus)
        if question is None:
            self._state = None
        else:
            known = self._memory.add_bid(question, bid, least_gpus, retry=retry)
            known.held_back = held_back if self._retried > retried else None
            self._state = known.state
        return SiteAnswer(id=asked.id, bid=bid, held_back=held_back)

    def close(self) -> None:
        """Take all bids back: the room is as it was."""
        for bid in self._made:
            undo(bid, self._room, self._occupants)
        self._made = []
        self._claims.close()

    # ---- plans ----

    def _count(self, asked: BidRequest, bid: Bid, least_gpus: int) -> None:
        """Note what later answers depend on."""
        if isfinite(asked.time_limit_s):
            self._made_end.append((self._now_s + asked.time_limit_s, bid))
        runs_s = min(asked.time_limit_s, asked.predicted_run_s)
        if isfinite(runs_s):
            self._made_over.append((self._now_s + runs_s, bid))
        self._least_gpus_held = min(self._least_gpus_held, least_gpus)

    def _plan(self, asked: BidRequest, *, late: bool) -> tuple[Bid | Reasons, bool]:
        """A plan, taken from the room, and whether it was found without the right to evict.

        ``late``: it could still run when the reservation begins.
        """
        reservation = self._reservation if late else None
        held = reservation.fence(self._room) if reservation else []
        result = place_all(asked.jobs, self._room, self._partitions)
        lift(held)
        at_once = isinstance(result, Bid)
        if not at_once and asked.preempt_gpus:
            held = reservation.fence_evicted(self._room) if reservation else []
            right = EvictionRight(
                priority=asked.priority,
                budget_gpus=asked.preempt_gpus,
                now_s=self._now_s,
                largest_gpus=asked.largest_victim_gpus or inf,
                in_time=asked.in_time,
            )
            evicting = plan_with_victims(
                asked.jobs, self._room, self._partitions, self._occupants, right
            )
            lift(held)
            result = result if evicting is None else evicting
        if isinstance(result, Bid) and reservation:
            reservation.use(result.jobs)
        return result, at_once

    def _try(self, asked: BidRequest) -> Bid | Reasons:
        """A plan as if nothing were reserved; the room is left as it was."""
        result, _ = self._plan(asked, late=False)
        if isinstance(result, Bid):
            undo(result, self._room, self._occupants)
        return result

    def _is_held_back(self, asked: BidRequest, bid: Bid, *, late: bool) -> bool:
        """Tell whether the bids made before are why this one is not better."""
        self._retried += 1
        room, occupants = self._room, self._occupants
        for made in (bid, *self._made):
            undo(made, room, occupants)
        held = self._reservation.fence(room) if late and self._reservation else []
        alone = place_all(asked.jobs, room, self._partitions)
        if isinstance(alone, Bid):
            undo(alone, room, occupants)
        lift(held)
        for made in (*self._made, bid):
            redo(made, room, occupants)
        return isinstance(alone, Bid) and alone.score[:_AS_GOOD] < bid.score[:_AS_GOOD]

    def _may_be_spoilt(self, bid: Bid) -> bool:
        """Tell whether the bids made before can have cost it a term of the score at all.

        Of ``gpus_unasked`` they have where they hold nodes with fewer GPUs. That they hold a fuller
        node of as many is not held against them: it would cost each CPU job a round.
        """
        nodes = [self._room.by_name[name].node for plan in bid.jobs for name in plan.nodes]
        if bid.victims or bid.shrinks or len({node.switch for node in nodes}) > 1:
            return True
        most_gpus = max(node.gpus for node in nodes) if bid.score.gpus_unasked else 0
        return self._least_gpus_held < most_gpus

    # ---- refusals ----

    def _reserve(self, asked: BidRequest) -> Reservation | None:
        """Room by the time limits of others; where these promise none, by predictions."""
        endings = self._and_made(self._endings.by_limits(), self._made_end)
        found = reserve(asked.id, asked.jobs, self._room, self._partitions, endings, self._now_s)
        return self._reserve_by_prediction(asked) if found is None else found

    def _reserve_by_prediction(self, asked: BidRequest) -> Reservation | None:
        if not (predicted := self._endings.by_prediction()):
            return None
        endings = self._and_made(predicted, self._made_over)
        found = reserve(asked.id, asked.jobs, self._room, self._partitions, endings, self._now_s)
        if found is not None:
            found.predicted = True
        return found

    def _and_made(
        self, endings: Sequence[Ending], made: Sequence[tuple[float, Bid]]
    ) -> Sequence[Ending]:
        """Endings, and those of bids that were made."""
        if not made:
            return endings
        more = (ending_of(self._room, at_s, bid.jobs) for at_s, bid in made)
        return sorted([*endings, *more], key=lambda e: e.at_s)

    def _reserved(self) -> Refusal:
        assert self._reservation is not None
        reason = Reason(
            code=ReasonCode.RESERVED,
            detail=str(self._reservation.id),
            more_in_s=self._reservation.starts_at_s - self._now_s,
        )
        return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))

    def _no_room(self, asked: BidRequest, reasons: Reasons, *, late: bool) -> Refusal:
        found = tuple(map(_for_now, reasons)) + self._avoided(asked.jobs, reasons)
        refusal = Refusal(kind=RefusalKind.WAIT, reasons=found)
        if self._starts_computed < STARTS_COMPUTED:
            self._starts_computed += 1
            refusal = self._with_start(asked, refusal)
        if self._explained >= EXPLAINED:
            return refusal
        self._explained += 1
        held = self._reservation.fence(self._room) if late and self._reservation else []
        others = alternatives(asked.jobs, found, self._room, self._partitions)
        lift(held)
        return replace(refusal, reasons=self._with_next(asked.jobs, found), alternatives=others)

    def _with_start(self, asked: BidRequest, refusal: Refusal) -> Refusal:
        """Say when the workload could start; keep that room where one reservation may be made."""
        reservation = self._reserve(asked)
        if reservation is None:
            return replace(refusal, no_end_in_sight=True)
        if self._reserving:
            self._reservation, self._reserving = reservation, False
        sooner = None if reservation.predicted else self._reserve_by_prediction(asked)
        if sooner is not None and sooner.starts_at_s < reservation.starts_at_s:
            refusal = replace(refusal, sooner_in_s=sooner.starts_at_s - self._now_s)
        return replace(
            refusal,
            starts_in_s=reservation.starts_at_s - self._now_s,
            predicted=reservation.predicted,
        )

    def _avoided(self, jobs: Sequence[Job], reasons: Reasons) -> Reasons:
        """Nodes that would take the jobs, but failed them before; nothing if that is said."""
        nodes = self._room.by_name
        names = dict.fromkeys(name for job in jobs for name in job.avoid if name in nodes)
        if not names or any(r.code is ReasonCode.NODE_FAILED for r in reasons):
            return ()
        return (Reason(code=ReasonCode.NODE_FAILED, detail=",".join(names)),)

    def _with_next(self, jobs: Sequence[Job], reasons: Reasons) -> Reasons:
        """Add to what is said of a lone job how many GPUs come free next."""
        if len(jobs) != 1 or not jobs[0].total_gpus:
            return reasons
        more, at_s = next_gpus(jobs[0], self._room, self._partitions, self._endings.by_limits())
        if not more:
            return reasons
        in_s = max(0.0, at_s - self._now_s)
        return tuple(replace(reason, more=more, more_in_s=in_s) for reason in reasons)


def _names(jobs: Sequence[Job]) -> list[str]:
    return [job.name for job in jobs]


def _in_the_names_of(jobs: Sequence[Job], shared: Sequence[Job], answer: SiteAnswer) -> SiteAnswer:
    """The answer to jobs that ask for the same under other names, said of these."""
    if answer.refusal is not None:
        return replace(answer, refusal=renamed(jobs, shared, answer.refusal))
    if answer.bid is None:
        return answer
    plans = zip(answer.bid.jobs, jobs, strict=True)
    named = tuple([dataclasses.replace(plan, name=job.name) for plan, job in plans])
    return replace(answer, bid=dataclasses.replace(answer.bid, jobs=named))


def _speaks_of_times(refusal: Refusal) -> bool:
    return refusal.starts_in_s is not None or any(reason.more for reason in refusal.reasons)


def _for_now(reason: Reason) -> Reason:
    """The reason as a lack of now: the empty site would have it."""
    if reason.code is ReasonCode.NODE_FAILED:
        return reason
    return replace(reason, code=ReasonCode.RESOURCES)
