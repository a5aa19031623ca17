"""Chooses whom to ask about next in a pass: in rank order, and nobody who is known to be refused.

Workloads of one lane ask for the same. So what holds for one that asks holds for its lane: beyond a
limit, not lent, or refused by every site for want of hardware, and the lane is left out as a whole.
Of a shape that a site may still take, only a few are asked about at a time: once one of them is
refused everywhere, those behind need not be asked. Whoever ranks behind one that was not asked is
not settled before it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

from msgspec.structs import replace

from federator.model.lifecycle import WorkloadState
from federator.model.plan import BidRequest
from federator.model.reason import ReasonCode, Refusal
from federator.model.workload import Job, SiteName, Workload, WorkloadId
from federator.sched.bid.negative_cache import NOBODY, NegativeCache, Rights, of_hardware
from federator.sched.bid.refusal_details import STARTS_COMPUTED
from federator.sched.passes.claims import MOST_CLAIMS, Claims
from federator.sched.passes.known_refusals import KnownRefusals
from federator.sched.passes.limits import LimitRefusals, Throttles, wait
from federator.sched.queue.guests import Guests
from federator.sched.queue.rank_walk import Front, Key, RankWalk
from federator.sched.queue.ranked import Ranked
from federator.sched.state.backlog import Lane, Run
from federator.sched.state.ledger import Ledger, WorkloadRecord

ASKED_AT_FIRST: Final = 4  # of one shape, in one round
GROWTH: Final = 4  # as many times more are asked in the round after one in which that was too few
MOST_NOT_LENT: Final = 100  # workloads of a lane that are looked at in a pass, and run too long
MOST_RESERVED: Final = 16  # refused workloads of a pass that are taken along for a reservation


class Asked(NamedTuple):
    """Those about whom every site would say the same."""

    number: int  # of the shape
    rights: Rights  # whom they may evict
    bits: int  # of the sites that may be asked; see ``KnownRefusals.bits``


class Candidates:
    """The workloads of a pass that are still to be tried.

    Args:
        walk: through the ranking.
        ledger: read for what has changed meanwhile.
        known: refusals that still hold.
        unsure: workloads that may be at a site though they wait.
        guests: which work over quota may start.
        claims: nodes that come free for some; None: nobody is evicted.

    Attributes:
        sites: those that may be asked now; to be set before each round.
        budget_gpus: that may be evicted for workloads within quota; likewise.
        ranked: the workloads of the present round, in rank order.
        kept: sites that keep room for somebody.
        throttles: of arrays; who is not awarded after all gives its place back there.
    """

    def __init__(
        self,
        walk: RankWalk,
        ledger: Ledger,
        known: KnownRefusals,
        unsure: Container[WorkloadId],
        guests: Guests,
        claims: Claims | None = None,
    ) -> None:
        self._walk = walk
        self._blocked: dict[WorkloadId, tuple[Key, int]] = {}  # within quota, with their shape
        self._escrow_gpus: dict[int, float] = {}  # by priority
        self._ledger = ledger
        self._known = known
        self._unsure = unsure
        self._guests, self._claims = guests, claims
        self._not_lent: dict[Lane, int] = {}  # of how many the forecast did not let start
        self.sites: Sequence[SiteName] = ()
        self.budget_gpus, self.predicts = 0.0, False
        self.ranked: dict[WorkloadId, Ranked] = {}
        self.kept: Collection[SiteName] = ()
        self._asked: dict[WorkloadId, Asked] = {}  # of the present round
        self._jobs: dict[Asked, tuple[Job, ...]] = {}
        self._rightless: dict[WorkloadId, BidRequest] = {}  # of the present round
        self._bits = 0  # of ``sites``
        self._now_s = 0.0
        self.throttles = Throttles(ledger)
        self._limits = LimitRefusals(ledger.holdings)
        self._failed: NegativeCache[None] = NegativeCache()  # of those that may evict
        self._failures = 0
        self._tried: dict[Asked, int] = {}  # of how many of these a shape does not follow
        self._at_most: dict[Asked, int] = {}
        self._deferred: list[tuple[int, Asked]] = []  # with how many were asked before
        self._passed = 0  # of ``_deferred``
        self._waited_for: list[Asked] = []  # of those, whoever ranks before the one being settled
        self._position: dict[WorkloadId, int] = {}
        self._taken_along = 0
        self._asked_at_claim: set[WorkloadId] = set()
        for key, ranked in claims.claimants() if claims is not None else ():
            walk.put(key, ranked)

    def next_window(
        self, again: Collection[WorkloadId], size: int, now_s: float
    ) -> tuple[BidRequest, ...]:
        """The workloads to ask about next, in rank order.

        Args:
            again: those of the last round that are not settled.
            size: how many at most.
            now_s: Unix time.
        """
        self._walk.put_back({id_: self.ranked[id_] for id_ in self.ranked if id_ in again})
        self._now_s, self._bits = now_s, self._known.bits(self.sites)
        self.ranked, self._asked, self._jobs, self._rightless = {}, {}, {}, {}
        self._deferred, self._passed, self._waited_for = [], 0, []
        self._escrow_gpus = {}
        number_in: dict[Asked, int] = {}
        while len(self.ranked) < size and (front := self._walk.front(self._skips)) is not None:
            self._consider(front, number_in, again)
        self._position = {id_: k for k, id_ in enumerate(self.ranked)}
        return tuple([self._request(ranked) for ranked in self.ranked.values()])

    def _request(self, ranked: Ranked) -> BidRequest:
        workload = self._ledger.entries[ranked.id].workload
        found = self._ledger.durations.expected(workload) if self.predicts else None
        return BidRequest.of(
            workload,
            ranked.priority,
            self._budget(ranked.id),
            predicted_run_s=inf if found is None else found.q90_s,
        )

    def _consider(
        self, front: Front, number_in: dict[Asked, int], again: Collection[WorkloadId]
    ) -> None:
        entry = self._ledger.entries[front.id]
        is_claimant = front.id in self._ledger.claims
        if entry.state is not WorkloadState.PENDING or (is_claimant and front.lane is not None):
            self._walk.pass_over()
            return
        lane = front.lane or self._ledger.backlog.lane_of(entry.workload)
        assert lane is not None
        number = lane.shape.number
        if is_claimant:
            self._consider_claimant(entry, lane, is_again=front.id in again)
            return
        asked = self._as_asked(lane, front.priority, within=front.within_quota)
        jobs = entry.workload.jobs
        most = self._at_most.get(asked, ASKED_AT_FIRST)
        if front.lane is None and self._is_settled(asked, jobs):
            self._note_blocked(self._walk.take(), number)
        elif number_in.get(asked, 0) >= most:
            self._at_most[asked] = GROWTH * most
            self._deferred.append((len(self.ranked), asked))
            self._walk.set_aside()
        elif (refusal := self._guests.refusal(entry, within=front.within_quota)) is not None:
            self._leave_out(entry, lane, refusal)
        elif (refusal := self._held_back(entry, is_again=front.id in again)) is not None:
            self._hold_back(entry, front, refusal)
        else:
            number_in[asked] = number_in.get(asked, 0) + 1
            self._taken_along += self._is_refused(asked, jobs)
            self.ranked[front.id] = self._walk.take()
            self._asked[front.id], self._jobs[asked] = asked, jobs

    def _hold_back(self, entry: WorkloadRecord, front: Front, refusal: Refusal) -> None:
        """One is not tried now; of an array that may run no more, neither are the others."""
        entry.refusals = {SiteName(""): refusal}
        if front.lane is not None and front.lane.shape.throttled:
            front.lane.refusal = refusal
            self._walk.set_aside()
        else:
            self._walk.take()

    def _leave_out(self, entry: WorkloadRecord, lane: Lane, refusal: Refusal) -> None:
        """One is not lent GPUs for so long as it runs; others of its lane may be shorter."""
        entry.refusals = {SiteName(""): refusal}
        self._walk.take()
        self._not_lent[lane] = self._not_lent.get(lane, 0) + 1
        if self._not_lent[lane] >= MOST_NOT_LENT:
            lane.over_refusal = refusal

    def _consider_claimant(self, entry: WorkloadRecord, lane: Lane, *, is_again: bool) -> None:
        """Ask about one that has a claim, without the right to evict: that has its own turn."""
        assert self._claims is not None
        id_ = entry.workload.id
        claim, number = self._ledger.claims[id_], lane.shape.number
        others = self._known.bits([site for site in self.sites if site != claim.site])
        settled = not others or self._known.is_refused(number, entry.workload.jobs, others)
        here = claim.site in self.sites and (is_again or self._claims.is_worth_asking(claim))
        if (settled and not here) or self._held_back(entry, is_again=is_again) is not None:
            self._walk.pass_over()
            return
        self.ranked[id_] = self._walk.take()
        asked = Asked(number, NOBODY, self._bits_for(lane))
        self._asked[id_], self._jobs[asked] = asked, entry.workload.jobs
        self._asked_at_claim.discard(id_)
        if here:
            self._asked_at_claim.add(id_)
            self._claims.was_asked(claim)

    # ---- those who may claim ----

    def _note_blocked(self, ranked: Ranked, number: int) -> None:
        """One within quota starts nowhere."""
        if self._claims is not None and ranked.within_quota:
            key = (ranked.priority, -ranked.credit, 0.0, int(ranked.id))
            self._blocked[ranked.id] = (key, number)

    def blocked(self, id_: WorkloadId) -> None:
        """One of the present round is refused everywhere."""
        self._note_blocked(self.ranked[id_], self._asked[id_][0])

    def _note_blocked_lane(self, lane: Lane, run: Run, key: Key) -> None:
        """The first of a run that has no claim starts nowhere."""
        for position in range(run.start, min(run.stop, run.start + MOST_CLAIMS + 1)):
            at_s, id_ = lane.place(position)
            if id_ not in self._ledger.claims:
                place = (key[0], key[1], at_s, id_)
                self._blocked.setdefault(WorkloadId(id_), (place, lane.shape.number))
                return

    def next_claimant(self) -> tuple[Ranked, int] | None:
        """The first in rank that is within quota, starts nowhere and has no claim; its shape."""
        claims = self._claims
        if claims is None or len(self._ledger.claims) >= MOST_CLAIMS:
            return None
        while self._blocked:
            id_ = min(self._blocked, key=self._blocked.__getitem__)
            key, number = self._blocked.pop(id_)
            entry = self._ledger.entries[id_]
            waits = entry.state is WorkloadState.PENDING and id_ not in self._ledger.claims
            if not waits or claims.is_in_vain(number, key[0], self._home(entry.workload)):
                continue
            if self._held_back(entry, is_again=False) is None:
                return Ranked(id_, key[0], within_quota=True, credit=-key[1]), number
        return None

    def ask_for_claim(self, ranked: Ranked, number: int, request: BidRequest) -> None:
        """Have one workload in a round of its own, with the right to evict as many as it takes."""
        self.ranked = {ranked.id: ranked}
        home = self._home(self._ledger.entries[ranked.id].workload)
        self.sites = [site for site in self.sites if not home or site in home]
        rights = Rights(request.priority, request.preempt_gpus, home)
        asked = Asked(number, rights, self._known.bits(self.sites))
        self._asked, self._jobs = {ranked.id: asked}, {asked: request.jobs}
        self._position, self._deferred, self._passed, self._waited_for = {ranked.id: 0}, [], 0, []

    # ---- what is known ----

    def _skips(self, lane: Lane, run: Run, key: Key) -> bool:
        """Tell whether nobody of a run can start in this pass; the lane learns why."""
        lane.refusal = self._withheld(lane)
        if lane.refusal is not None:
            return True
        asked = self._as_asked(lane, run.priority, within=run.within_quota)
        if not run.within_quota:
            refused = self._guests.withheld_over_quota(lane)
            if self._not_lent.get(lane, 0) < MOST_NOT_LENT:
                lane.over_refusal = refused
            if lane.over_refusal is not None:
                return True
        if not self._is_settled(asked, lane.jobs):
            return False
        if run.within_quota and self._claims is not None:
            self._note_blocked_lane(lane, run, key)
        return True

    def _withheld(self, lane: Lane) -> Refusal | None:
        """The refusal that the federation itself has for a whole lane."""
        row, request, ledger = lane.row, lane.shape.request, self._ledger
        if (refusal := self._guests.withheld(lane)) is not None:
            return refusal
        return self._limits.refusal(row, request) if ledger.tenancy.limit_rows(row) else None

    def _is_settled(self, asked: Asked, jobs: tuple[Job, ...]) -> bool:
        """Tell whether a shape is refused by every site, and no room is to be kept for it."""
        return self._is_refused(asked, jobs) and not self._may_be_reserved(asked)

    def _is_refused(self, asked: Asked, jobs: tuple[Job, ...]) -> bool:
        if not asked.bits:
            return bool(self._bits)  # nowhere at home is a site ready
        number, rights = asked.number, asked.rights
        if rights is NOBODY:
            return self._known.is_refused(number, jobs, asked.bits)
        if self._tried.get(asked, -1) == self._failures:
            return False
        if self._failures and self._failed.find(jobs, rights) is not None:
            return True
        self._tried[asked] = self._failures
        return False

    def _may_be_reserved(self, asked: Asked) -> bool:
        """Tell whether room may be kept for one of a refused shape at a site that keeps none."""
        known, now_s, number = self._known, self._now_s, asked.number
        if self._taken_along >= MOST_RESERVED or not known.may_be_predicted(asked.bits):
            return False
        lacks = self._taken_along < STARTS_COMPUTED
        return any(
            known.prediction(site, number, now_s) is not None
            or (lacks and known.lacks_prediction(site, number, now_s))
            for site in self.sites
            if site not in self.kept and asked.bits & known.bits((site,))
        )

    def requests_for(self, site: SiteName, window: Sequence[BidRequest]) -> tuple[BidRequest, ...]:
        """Those of the window whose answer by a site is not known.

        One that it has refused comes along where room may be kept for it, and somebody is asked
        about who ranks behind it: the site finds out again when it could start.
        """
        known, bit = self._known, self._known.bits((site,))
        found: list[BidRequest] = []
        last = 0  # of those whose answer is not known
        predicted = site in self.kept  # somebody has, or may get, that room
        for request in self._with_rights_at(site, window):
            number = self._asked[request.id].number
            if (
                request.preempt_gpus
                or self._is_claimed_at(site, request.id)
                or not known.is_refused(number, request.jobs, bit)
                or (not predicted and known.lacks_prediction(site, number, self._now_s))
            ):
                found.append(request)
                last = len(found)
            elif not predicted and known.prediction(site, number, self._now_s) is not None:
                found.append(request)
                predicted = True
        return tuple(found[:last])

    def prediction(self, site: SiteName, id_: WorkloadId) -> Refusal | None:
        """The refusal of one of this round that says when it could start, if a site has said so."""
        number = self._asked[id_].number
        if self._known.prediction(site, number, self._now_s) is None:
            return None
        jobs = self._ledger.entries[id_].workload.jobs
        return self._known.refusal(site, number, jobs, self._now_s)

    # ---- what is learned ----

    def learn(self, asked: BidRequest, refusals: dict[SiteName, Refusal]) -> None:
        """Remember refusals that were given in this round, and hold whoever had bid before."""
        number, rights, bits = self._asked[asked.id]
        for site, refusal in refusals.items():
            self._known.learn(site, number, asked.jobs, refusal, self._now_s)
        if rights is NOBODY or not bits:
            return
        home = [site for site in self.sites if not rights.home or site in rights.home]
        others = self._known.bits(self.sites) & ~self._known.bits(home)
        if all(site in refusals and of_hardware(refusals[site]) for site in home) and (
            not others or self._known.is_refused(number, asked.jobs, others)
        ):
            self._failed.add(asked.jobs, rights, None)
            self._failures += 1

    def must_wait(self, id_: WorkloadId) -> bool:
        """Tell whether somebody who ranks before a workload was not asked, and may still start."""
        position = self._position[id_]
        while self._passed < len(self._deferred) and self._deferred[self._passed][0] <= position:
            self._waited_for.append(self._deferred[self._passed][1])
            self._passed += 1
        self._waited_for = [a for a in self._waited_for if not self._is_refused(a, self._jobs[a])]
        return bool(self._waited_for)

    # ---- limits ----

    def _budget(self, id_: WorkloadId) -> float:
        """The evictions that one of the round is allowed."""
        rights = self._asked[id_].rights
        return 0.0 if rights is NOBODY else rights.preempt_gpus

    def _as_asked(self, lane: Lane, priority: int, *, within: bool) -> Asked:
        """How sites are asked about one of a lane."""
        number = lane.shape.number
        rights = self._rights(number, lane.row, priority, within=within)
        return Asked(number, rights, self._bits_for(lane))

    def _bits_for(self, lane: Lane) -> int:
        """The sites that may be asked: those at home, for one that no owner could have evicted."""
        home = self._ledger.tenancy.home(lane.row)
        if not home or lane.shape.preemptible or not self._guests.keeps_firm_work_home:
            return self._bits
        return self._known.bits([site for site in self.sites if site in home])

    def _home(self, workload: Workload) -> frozenset[SiteName]:
        tenancy = self._ledger.tenancy
        return tenancy.home(tenancy.row(workload.tenant))

    def _with_rights_at(self, site: SiteName, window: Sequence[BidRequest]) -> Iterator[BidRequest]:
        """Those that a site may be asked about; only at home with the right to evict."""
        bit = self._known.bits((site,))
        for request in window:
            asked = self._asked[request.id]
            home = asked.rights.home
            if not asked.bits & bit:
                continue
            if not home or site in home:
                yield request
                continue
            if request.id not in self._rightless:
                self._rightless[request.id] = replace(request, preempt_gpus=0.0)
            yield self._rightless[request.id]

    def _rights(self, number: int, row: int, priority: int, *, within: bool) -> Rights:
        """Whom one may evict: only work within quota displaces others, and claims come first."""
        if not within or not self.budget_gpus:
            return NOBODY
        left, home = self.budget_for(priority), self._ledger.tenancy.home(row)
        if not left or (self._claims and self._claims.is_in_vain(number, priority, home)):
            return NOBODY
        return Rights(priority, left, home)

    def budget_for(self, priority: int) -> float:
        """The GPUs that may be evicted for one who has no claim: what is not kept for claims."""
        if self._claims is None:
            return self.budget_gpus
        if priority not in self._escrow_gpus:
            self._escrow_gpus[priority] = float(self._claims.budget.escrow_gpus(priority))
        return max(0.0, self.budget_gpus - self._escrow_gpus[priority])

    def _is_claimed_at(self, site: SiteName, id_: WorkloadId) -> bool:
        """Tell whether a site is asked about one whose claim is there."""
        claim = self._ledger.claims.get(id_)
        return claim is not None and claim.site == site and id_ in self._asked_at_claim

    def _held_back(self, entry: WorkloadRecord, *, is_again: bool) -> Refusal | None:
        """The refusal of one that is not tried now; a task that is tried has its place."""
        workload = entry.workload
        if workload.id in self._unsure:
            return wait(ReasonCode.NO_ANSWER)
        return None if is_again else self.throttles.take(workload)
