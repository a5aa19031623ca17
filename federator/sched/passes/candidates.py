"""Chooses whom to ask about next in a pass: in rank order, and nobody who is known to be refused.

Workloads of one lane ask for the same. So what holds for one that asks holds for its lane: beyond a
limit, not lent, or refused by every site for want of hardware, and the lane is left out as a whole.
Of a shape that a site may still take, only a few are asked about at a time: once one of them is
refused everywhere, those behind need not be asked. Whoever ranks behind one that was not asked is
not settled before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from federator.model.lifecycle import WorkloadState
from federator.model.plan import BidRequest
from federator.model.reason import Refusal
from federator.model.workload import Job, SiteName, WorkloadId
from federator.sched.bid.negative_cache import NOBODY, Rights
from federator.sched.passes.asking_limit import AskingLimit
from federator.sched.passes.blocked_workloads import BlockedWorkloads
from federator.sched.passes.claims import Claims
from federator.sched.passes.data_places import has_data
from federator.sched.passes.elastic_sizes import allowed_sizes
from federator.sched.passes.known_refusals import KnownRefusals
from federator.sched.passes.limits import OF_A_LANE
from federator.sched.passes.pass_budget import PassBudget
from federator.sched.passes.refused_shapes import Asked, RefusedShapes
from federator.sched.passes.withheld import Withheld
from federator.sched.queue.rank_walk import Front, Key, RankWalk
from federator.sched.queue.ranked import Ranked
from federator.sched.state.backlog import Lane, Run
from federator.sched.state.ledger import Ledger, WorkloadRecord


class Candidates:
    """The workloads of a pass that are still to be tried.

    Args:
        walk: through the ranking.
        ledger: read for what has changed meanwhile.
        known: refusals that still hold.
        withheld: refusals of the federation's own.
        budget: whom the workloads may evict.
        claims: nodes that come free for some; None: nobody is evicted.

    Attributes:
        sites: those that may be asked now; to be set before each round.
        predicts: whether sites are told how long each is to run.
        ranked: the workloads of the present round, in rank order.
        kept: sites that keep room for somebody.
    """

    def __init__(
        self,
        walk: RankWalk,
        ledger: Ledger,
        known: KnownRefusals,
        withheld: Withheld,
        budget: PassBudget,
        claims: Claims | None = None,
    ) -> None:
        self._walk = walk
        self._claims = claims
        self._blocked = BlockedWorkloads(ledger, claims)
        self._ledger = ledger
        self._known = known
        self._withheld = withheld
        self._budget = budget
        self.sites: Sequence[SiteName] = ()
        self.predicts = False
        self.ranked: dict[WorkloadId, Ranked] = {}
        self.kept: Collection[SiteName] = ()
        self._asked: dict[WorkloadId, Asked] = {}  # of the present round
        self._jobs: dict[Asked, tuple[Job, ...]] = {}
        self._rightless: dict[WorkloadId, BidRequest] = {}  # of the present round
        self._now_s = 0.0
        self._shapes = RefusedShapes(known)
        self._limit = AskingLimit()
        self._position: dict[WorkloadId, int] = {}
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
        self._now_s = now_s
        self._shapes.begin_round(self.sites, self.kept, now_s)
        self.ranked, self._asked, self._jobs, self._rightless = {}, {}, {}, {}
        self._limit.begin_round()
        self._budget.begin_round()
        while len(self.ranked) < size and (front := self._walk.front(self._skips)) is not None:
            self._consider(front, again)
        self._position = {id_: k for k, id_ in enumerate(self.ranked)}
        return tuple([self._request(ranked) for ranked in self.ranked.values()])

    def _request(self, ranked: Ranked) -> BidRequest:
        workload = self._ledger.entries[ranked.id].workload
        found = self._ledger.durations.expected(workload) if self.predicts else None
        return BidRequest.of(
            workload,
            ranked.priority,
            self._asked[ranked.id].rights.preempt_gpus,
            predicted_run_s=inf if found is None else found.q90_s,
            sizes=self._sizes(ranked),
        )

    def _sizes(self, ranked: Ranked) -> tuple[int, ...]:
        """On how many nodes more than its least an elastic workload may start now.

        More than it asked for only while nobody else waits.
        """
        entry = self._ledger.entries[ranked.id]
        if entry.workload.elastic is None:
            return ()
        return allowed_sizes(
            entry.workload,
            self._ledger.holdings,
            within=ranked.within_quota,
            alone=self._ledger.backlog.startable <= 1,
            most=entry.most_nodes or inf,
        )

    def _consider(self, front: Front, again: Collection[WorkloadId]) -> None:
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
        if front.lane is None and self._shapes.is_settled(asked, jobs):
            self._blocked.add(self._walk.take(), number)
        elif self._limit.is_reached(asked):
            self._limit.defer(asked, len(self.ranked))
            self._walk.set_aside()
        elif (refusal := self._withheld.not_lent(entry, within=front.within_quota)) is not None:
            entry.refusals = {SiteName(""): refusal}
            self._withheld.count_not_lent(lane, refusal)
            self._walk.take()
        elif (refusal := self._withheld.of(entry)) is not None:
            self._hold_back(entry, front, refusal)
        else:
            self._limit.count(asked)
            self._shapes.was_taken(asked, jobs)
            self.ranked[front.id] = self._walk.take()
            self._asked[front.id], self._jobs[asked] = asked, jobs

    def _hold_back(self, entry: WorkloadRecord, front: Front, refusal: Refusal) -> None:
        """One is not tried now; of an array or a user that may run no more, none is."""
        entry.refusals = {SiteName(""): refusal}
        if front.lane is not None and refusal.reasons[0].code in OF_A_LANE:
            front.lane.refusal = refusal
            self._walk.set_aside()
        else:
            self._walk.take()

    def _consider_claimant(self, entry: WorkloadRecord, lane: Lane, *, is_again: bool) -> None:
        """Ask about one that has a claim, without the right to evict: that has its own turn."""
        assert self._claims is not None
        id_ = entry.workload.id
        claim, number = self._ledger.claims[id_], lane.shape.number
        others = self._known.bits([site for site in self.sites if site != claim.site])
        others &= self._data_bits(lane) if lane.data else others
        settled = not others or self._known.is_refused(number, entry.workload.jobs, others)
        here = claim.site in self.sites and (is_again or self._claims.is_worth_asking(claim))
        if (settled and not here) or self._withheld.of(entry) is not None:
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

    def blocked(self, id_: WorkloadId) -> None:
        """One of the present round is refused everywhere."""
        self._blocked.add(self.ranked[id_], self._asked[id_].number)

    def next_claimant(self) -> tuple[Ranked, int] | None:
        """The first in rank that is within quota, starts nowhere and has no claim; its shape."""
        while (found := self._blocked.pop()) is not None:
            if self._withheld.of(self._ledger.entries[found[0].id]) is None:
                return found
        return None

    def ask_for_claim(self, ranked: Ranked, number: int, request: BidRequest) -> None:
        """Have one workload in a round of its own, with the right to evict as many as it takes."""
        self.ranked = {ranked.id: ranked}
        tenancy = self._ledger.tenancy
        workload = self._ledger.entries[ranked.id].workload
        home = tenancy.home(tenancy.row(workload.tenant))
        self.sites = [
            site
            for site in self.sites
            if (not home or site in home) and has_data(self._ledger, workload, site)
        ]
        rights = Rights(request.priority, request.preempt_gpus, home)
        asked = Asked(number, rights, self._known.bits(self.sites))
        self._asked, self._jobs = {ranked.id: asked}, {asked: request.jobs}
        self._position = {ranked.id: 0}
        self._limit.begin_round()

    # ---- what is known ----

    def _skips(self, lane: Lane, run: Run, key: Key) -> bool:
        """Tell whether nobody of a run can start in this pass; the lane learns why."""
        lane.refusal = self._withheld.of_lane(lane)
        if lane.refusal is not None:
            return True
        asked = self._as_asked(lane, run.priority, within=run.within_quota)
        if not run.within_quota:
            lane.over_refusal = self._withheld.of_lane_over_quota(lane)
            if lane.over_refusal is not None:
                return True
        if not self._shapes.is_settled(asked, lane.jobs):
            return False
        self._blocked.add_first_of(lane, run, key)
        return True

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

    def learn(
        self,
        asked: BidRequest,
        refusals: dict[SiteName, Refusal],
        avoiding: Mapping[SiteName, tuple[Job, ...]],
    ) -> None:
        """Remember refusals that were given in this round, and hold whoever had bid before.

        ``avoiding``: its jobs as sites were asked for them where these kept it off slow nodes.
        """
        self._shapes.learn(self._asked[asked.id], asked, refusals, self.sites, avoiding)

    def must_wait(self, id_: WorkloadId) -> bool:
        """Tell whether somebody who ranks before a workload was not asked, and may still start."""
        return self._limit.holds_up(
            self._position[id_], lambda asked: self._shapes.is_refused(asked, self._jobs[asked])
        )

    # ---- rights ----

    def _as_asked(self, lane: Lane, priority: int, *, within: bool) -> Asked:
        """How sites are asked about one of a lane."""
        number = lane.shape.number
        home = self._ledger.tenancy.home(lane.row)
        rights = self._budget.rights(number, priority, home, within=within)
        return Asked(number, rights, self._bits_for(lane))

    def _bits_for(self, lane: Lane) -> int:
        """The sites that may be asked: those with its data sets.

        For one that no owner could have evicted only those at home.
        """
        home = self._ledger.tenancy.home(lane.row)
        bits = self._shapes.bits
        if home and not lane.shape.preemptible and self._withheld.guests.keeps_firm_work_home:
            bits = self._known.bits([site for site in self.sites if site in home])
        return bits & self._data_bits(lane) if lane.data else bits

    def _data_bits(self, lane: Lane) -> int:
        """The sites where the data sets of a lane are."""
        having = self._ledger.catalogue.sites_of(lane.data)
        return self._known.bits([site for site in self.sites if site in having])

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

    def _is_claimed_at(self, site: SiteName, id_: WorkloadId) -> bool:
        """Tell whether a site is asked about one whose claim is there."""
        claim = self._ledger.claims.get(id_)
        return claim is not None and claim.site == site and id_ in self._asked_at_claim
