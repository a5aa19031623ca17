"""Answers one message at a site: each request in order, as if all bids before had won."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from federator.model.plan import Bid, BidRequest
from federator.model.reason import Refusal
from federator.model.score import TERMS
from federator.model.site_message import SiteAnswer
from federator.model.sizes import jobs_at
from federator.model.workload import Job
from federator.sched.bid.answer_memory import (
    SITE,
    AnswerMemory,
    KnownBid,
    Question,
)
from federator.sched.bid.backfill import Backfill
from federator.sched.bid.claimed_nodes import ClaimedNodes
from federator.sched.bid.closed_windows import ClosedWindows
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.made_bids import MadeBids
from federator.sched.bid.moves import MoveLimits, plan_with_moves
from federator.sched.bid.negative_cache import NOBODY, NegativeCache, Rights, renamed
from federator.sched.bid.preemption import EvictionRight, plan_with_victims, redo, undo
from federator.sched.bid.refusal_details import RefusalDetails, only_at_s
from federator.sched.bid.refused_before import RefusedBefore
from federator.sched.bid.reservation import (
    Held,
    KnownEndings,
    lift,
)
from federator.sched.bid.running_jobs import Occupants
from federator.sched.bid.workload_plan import Reasons, place_all

RETRIED: Final = 16  # bids for which it is found out whether earlier ones stood in their way
_AS_GOOD: Final = 1 + TERMS.index("locality_cost")  # terms that a hold may spoil


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
    windows: ClosedWindows


class _Fences(NamedTuple):
    """The room that a request may not have."""

    late: bool = False  # it could still run when the reservation begins
    windows: int = 0  # the first so many of the site's windows close nodes before it is over


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
        self._windows = site.windows
        self._now_s = now_s
        self._backfill = Backfill(
            site.room, site.partitions, site.endings, site.windows, now_s, reserving=reserving
        )
        self._details = RefusalDetails(
            site.room, site.partitions, site.endings, self._backfill, now_s
        )
        self._made = MadeBids(site.room, site.occupants)
        # By how many windows concern a request: what fails outside of more may fit outside of less.
        self._refused: defaultdict[int, RefusedBefore] = defaultdict(RefusedBefore)
        # By jobs, of those that may evict nobody, with the names that they were said in. Only where
        # nothing else of a request counts: it saves the way through all that would say the same.
        self._said: dict[tuple[Job, ...], tuple[tuple[Job, ...], Refusal]] = {}
        self._says_again = not site.claims.exist and not site.windows.exist
        self._fenced_off: defaultdict[_Fences, NegativeCache[Refusal]] = defaultdict(NegativeCache)
        self._state: int | None = SITE  # None: one that never comes again
        self._retried = 0

    def reserve_for(self, asked: BidRequest) -> None:
        """Keep room for a workload that found none at any site."""
        self._backfill.reserving = False
        found = self._windows.reserved(asked, self._now_s)
        if isinstance(found, Refusal):
            return
        asked = found
        if self._memory.never(self._memory.number_of(asked.jobs)) is None:
            self._backfill.reserve_for(asked)

    def answer(self, asked: BidRequest) -> SiteAnswer:
        """A bid, or why there is none. It is worked out for all that ask for the same."""
        if not self._says_again or asked.preempt_gpus or asked.sizes:
            return self._answer_one(asked)
        said = self._said.get(asked.jobs)
        if said is not None and _named_alike(said[0], asked.jobs):
            return SiteAnswer(id=asked.id, refusal=said[1])
        answer = self._answer_one(asked)
        # A refusal for want of room, or for ever, holds for the message; one by a fence does not.
        if answer.refusal is not None and said is None and not self._backfill.concerns(asked):
            self._said[asked.jobs] = (asked.jobs, answer.refusal)
        return answer

    def _answer_one(self, asked: BidRequest) -> SiteAnswer:
        for size in asked.sizes:
            if size > len(self._room.by_name):
                continue
            larger = replace(asked, jobs=jobs_at(asked.jobs, size), preempt_gpus=0.0, sizes=())
            bid = self._larger(asked, larger)
            if bid is not None:
                return bid
        found = self._windows.reserved(asked, self._now_s)
        if isinstance(found, Refusal):
            return SiteAnswer(id=asked.id, refusal=found)
        answer = self._answer_alike(found)
        if answer.refusal is None or found is asked:
            return answer
        refusal = self._windows.also_closed(asked, self._now_s, answer.refusal)
        return replace(answer, refusal=refusal)

    def _larger(self, least: BidRequest, asked: BidRequest) -> SiteAnswer | None:
        """A bid for more nodes than a workload needs at least, of what nobody else is to have.

        A refusal says nothing of it, no room is kept for it, and nobody is evicted.
        """
        if self._memory.never(self._memory.number_of(least.jobs)) is not None:
            return None
        found = self._windows.reserved(asked, self._now_s)
        if isinstance(found, Refusal) or not self._claims.binds(found):
            return None
        windows = self._windows.concerning(self._now_s, found)
        fences = _Fences(late=self._backfill.concerns(found), windows=windows)
        self._made.take_remembered()
        result, _ = self._plan(found, fences)
        return self._bid(found, result, None, fences) if isinstance(result, Bid) else None

    def _answer_alike(self, asked: BidRequest) -> SiteAnswer:
        number = self._memory.number_of(asked.jobs)
        shared = self._memory.shared(number)
        if shared is asked.jobs or _named_alike(shared, asked.jobs):
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
        windows = self._windows.concerning(self._now_s, asked)
        failed = self._refused[windows].find(asked.jobs, number, rights)
        if failed is not None:
            return SiteAnswer(id=asked.id, refusal=failed)
        late = self._backfill.concerns(asked)
        question = None
        if self._state is not None and not late:
            question = (self._state, number, asked.time_limit_s, windows)
            known = memory.get(question)
            if isinstance(known, KnownBid):
                return self._bid_again(asked, known)
            if known is not None and not asked.preempt_gpus:
                said = self._details.said_again(known)
                if said is not None:
                    self._refused[windows].add(asked.jobs, number, rights, said)
                    return SiteAnswer(id=asked.id, refusal=said)
        self._made.take_remembered()
        fences = _Fences(late=late, windows=windows)
        return self._work_out(asked, number, rights, question, fences)

    def _answer_claimant(self, asked: BidRequest, number: int) -> SiteAnswer:
        """As ``_answer``, for one that some claim does not bind: nothing is remembered of it."""
        self._made.take_remembered()
        self._claims.open_for(asked)
        rights = Rights(asked.priority, asked.preempt_gpus) if asked.preempt_gpus else NOBODY
        windows = self._windows.concerning(self._now_s, asked)
        fences = _Fences(late=self._backfill.concerns(asked), windows=windows)
        answer = self._work_out(asked, number, rights, None, fences)
        self._claims.shut(asked, has_bid=answer.bid is not None)
        return answer

    def _bid_again(self, asked: BidRequest, known: KnownBid) -> SiteAnswer:
        held_back = False
        if known.retry and self._retried < RETRIED:
            if known.held_back is None:
                self._made.take_remembered()
                redo(known.bid, self._room, self._occupants)
                windows = self._windows.concerning(self._now_s, asked)
                known.held_back = self._is_held_back(asked, known.bid, _Fences(windows=windows))
                undo(known.bid, self._room, self._occupants)
            else:
                self._retried += 1
            held_back = known.held_back
        self._made.remember(known.bid, known.least_gpus)
        self._backfill.note(asked, known.bid)
        self._state = known.state
        return SiteAnswer(id=asked.id, bid=known.bid, held_back=held_back)

    def _work_out(
        self,
        asked: BidRequest,
        number: int,
        rights: Rights,
        question: Question | None,
        fences: _Fences,
    ) -> SiteAnswer:
        """The answer to a question that was not asked in this state before."""
        memory = self._fenced_off[fences]
        fenced_off = memory.find(asked.jobs, rights) if any(fences) else None
        if fenced_off is not None and fenced_off.jobs == asked.jobs:
            return SiteAnswer(id=asked.id, refusal=fenced_off.answer)
        nothing: tuple[Bid | Reasons, bool] = ((), False)
        result, at_once = nothing if fenced_off is not None else self._plan(asked, fences)
        if isinstance(result, Bid):
            return self._bid(asked, result, question if at_once else None, fences)
        unfenced = self._in_the_way(asked, result, fences)
        if isinstance(unfenced, Refusal):
            refusal = unfenced
            memory.add(asked.jobs, rights, refusal)
        else:
            extras, before = self._details.extras(), self._backfill.reservation
            refusal = self._details.no_room(asked, unfenced, self._fencing(fences))
            self._refused[fences.windows].add(asked.jobs, number, rights, refusal)
            keeps = self._backfill.reservation is before
            keeps = keeps and not (extras[0] and self._endings.predicts)
            if question is not None and not asked.preempt_gpus and keeps:
                at_s = only_at_s(refusal, self._now_s)
                self._memory.add_refusal(question, extras, refusal, at_s)
        return SiteAnswer(id=asked.id, refusal=refusal)

    def _bid(
        self, asked: BidRequest, bid: Bid, question: Question | None, fences: _Fences
    ) -> SiteAnswer:
        """Answer with a bid that was taken from the room."""
        nodes = (self._room.by_name[name].node for plan in bid.jobs for name in plan.nodes)
        least_gpus = min(node.gpus for node in nodes)
        held_back, retried = False, self._retried
        retry = self._made.may_spoil(bid)
        if retry and self._retried < RETRIED:
            held_back = self._is_held_back(asked, bid, fences)
        self._made.add(bid, least_gpus)
        self._backfill.note(asked, bid)
        if question is None:
            self._state = None
        else:
            known = self._memory.add_bid(question, bid, least_gpus, retry=retry)
            known.held_back = held_back if self._retried > retried else None
            self._state = known.state
        return SiteAnswer(id=asked.id, bid=bid, held_back=held_back)

    def close(self) -> None:
        """Take all bids back: the room is as it was."""
        self._made.close()
        self._claims.close()

    # ---- plans ----

    def _fencing(self, fences: _Fences, *, evicting: bool = False) -> Callable[[], Held]:
        """Puts up fences; undo it with ``lift``."""

        def fence() -> Held:
            held = self._windows.fence(fences.windows, with_used=evicting)
            if not fences.late:
                return held
            backfill = self._backfill
            return held + (backfill.fence_evicted() if evicting else backfill.fence())

        return fence

    def _plan(self, asked: BidRequest, fences: _Fences) -> tuple[Bid | Reasons, bool]:
        """A plan, taken from the room, and whether it was found without the right to evict."""
        held = self._fencing(fences)()
        result = place_all(asked.jobs, self._room, self._partitions)
        lift(held)
        at_once = isinstance(result, Bid)
        if not at_once and asked.preempt_gpus:
            held = self._fencing(fences, evicting=True)()
            right = EvictionRight(
                priority=asked.priority,
                budget_gpus=asked.preempt_gpus,
                now_s=self._now_s,
                in_time=asked.in_time,
            )
            evicting = plan_with_victims(
                asked.jobs, self._room, self._partitions, self._occupants, right
            )
            lift(held)
            if evicting is None and asked.moves:
                evicting = self._plan_with_moves(asked, fences)
            result = result if evicting is None else evicting
        if isinstance(result, Bid) and fences.late:
            self._backfill.use(result.jobs)
        return result, at_once

    def _plan_with_moves(self, asked: BidRequest, fences: _Fences) -> Bid | None:
        """A plan for which others move, if it is known how long the workload waits without."""
        starts_in_s = self._backfill.starts_in_s(asked)
        if starts_in_s is None:
            return None
        held = self._fencing(fences, evicting=True)()
        bid = plan_with_moves(
            asked.jobs,
            self._room,
            self._partitions,
            self._occupants,
            MoveLimits(asked.moves, asked.priority, self._now_s),
        )
        lift(held)
        return None if bid is None else dataclasses.replace(bid, waits_s=starts_in_s)

    def _in_the_way(
        self, asked: BidRequest, found: Bid | Reasons, fences: _Fences
    ) -> Refusal | Reasons:
        """The refusal of one that a fence keeps out, or what it lacks without any fence."""
        if fences.late:
            found = self._try(asked, fences._replace(late=False))
            if isinstance(found, Bid):
                return self._backfill.refusal()
        if fences.windows:
            found = self._try(asked, _Fences())
            if isinstance(found, Bid):
                return self._windows.refusal(fences.windows)
        assert not isinstance(found, Bid)
        return found

    def _try(self, asked: BidRequest, fences: _Fences) -> Bid | Reasons:
        """A plan with these fences only; the room is left as it was."""
        result, _ = self._plan(asked, fences)
        if isinstance(result, Bid):
            undo(result, self._room, self._occupants)
        return result

    def _is_held_back(self, asked: BidRequest, bid: Bid, fences: _Fences) -> bool:
        """Tell whether the bids made before are why this one is not better."""
        self._retried += 1
        self._made.give_back(bid)
        held = self._fencing(fences)()
        alone = place_all(asked.jobs, self._room, self._partitions)
        if isinstance(alone, Bid):
            undo(alone, self._room, self._occupants)
        lift(held)
        self._made.take(bid)
        return isinstance(alone, Bid) and alone.terms[:_AS_GOOD] < bid.terms[:_AS_GOOD]


def _named_alike(some: Sequence[Job], others: Sequence[Job]) -> bool:
    """Tell whether jobs that ask for the same have the same names."""
    for job, other in zip(some, others, strict=True):  # noqa: SIM110  # a generator is slower
        if job.name != other.name:
            return False
    return True


def _in_the_names_of(jobs: Sequence[Job], shared: Sequence[Job], answer: SiteAnswer) -> SiteAnswer:
    """The answer to jobs that ask for the same under other names, said of these."""
    if answer.refusal is not None:
        return replace(answer, refusal=renamed(jobs, shared, answer.refusal))
    if answer.bid is None:
        return answer
    plans = zip(answer.bid.jobs, jobs, strict=True)
    named = tuple([dataclasses.replace(plan, name=job.name) for plan, job in plans])
    return replace(answer, bid=dataclasses.replace(answer.bid, jobs=named))
