"""The scheduling pass: rank, ask, auction, award, in rounds, until every workload is settled.

A pass lives across several observations, since the sites' answers take time; it is volatile and
never logged. What it decides is logged as ``Awarded`` before any site is told.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from federator.model.event import Awarded
from federator.model.lifecycle import AT_SITE, WorkloadState
from federator.model.plan import BidRequest
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import VictimTerms
from federator.model.site_message import Ask, SiteAnswer
from federator.model.tenant import LOWEST_PRIORITY, Amounts
from federator.model.workload import AttemptId, SiteName, Workload, WorkloadId
from federator.sched.bid.negative_cache import NOBODY, NegativeCache, Rights, as_for, of_hardware
from federator.sched.passes.auction import Award, bids_for, offers_for
from federator.sched.passes.eviction import Claims, against, checkpoint_in_reach, evicted_gpus
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.passes.site_view import SiteView
from federator.sched.queue.borrowing import FirmWork, not_lent
from federator.sched.queue.policy import Ranked
from federator.sched.state.holdings import Holdings
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules


@dataclass(slots=True)
class Round:
    """One question to the sites, and the answers so far."""

    pass_id: int
    requests: Mapping[WorkloadId, BidRequest]  # in rank order
    waiting_for: set[SiteName]
    deadline_s: float
    answers: dict[SiteName, dict[WorkloadId, SiteAnswer]] = field(default_factory=dict)
    until_later: dict[SiteName, dict[WorkloadId, Refusal]] = field(default_factory=dict)
    """Refusals that say when it could start, or that room is kept for another."""

    def take(self, site: SiteName, answers: Iterable[SiteAnswer]) -> None:
        if site in self.waiting_for:
            self.waiting_for.discard(site)
            by_id = self.answers[site] = {a.id: a for a in answers}
            refusals = {id(r): r for a in by_id.values() if (r := a.refusal) is not None}
            later = {key for key, refusal in refusals.items() if _speaks_of_later(refusal)}
            if later:
                self.until_later[site] = {
                    a.id: a.refusal
                    for a in by_id.values()
                    if a.refusal is not None and id(a.refusal) in later
                }

    def drop(self, site: SiteName) -> None:
        """It is gone: its word counts no more, nor is it waited for."""
        self.waiting_for.discard(site)
        self.answers.pop(site, None)
        self.until_later.pop(site, None)

    def over(self, now_s: float) -> bool:
        return not self.waiting_for or now_s >= self.deadline_s

    def silent(self) -> dict[SiteName, Refusal]:
        """The sites that did not answer, as refusals."""
        return {site: wait(ReasonCode.NO_ANSWER) for site in sorted(self.waiting_for)}


class SchedulingPass:
    """One pass: what is left of the ranking, and what the present round has of it.

    Args:
        ranking: of the moment the pass began; standing and credit hold for the whole pass.
        ledger: read for what has changed meanwhile.
        rules: see ``Rules``.
        budget_gpus: that may be evicted by the awards of this pass.
        terms: of whoever may be evicted, renewed for this pass; None: nobody may.
        quota_only: who may not be evicted starts only within quota; see ``borrowing``.
    """

    def __init__(
        self,
        ranking: Iterable[Ranked],
        ledger: Ledger,
        rules: Rules | None = None,
        budget_gpus: float = 0.0,
        *,
        terms: EvictionTerms | None = None,
        quota_only: bool = False,
    ) -> None:
        self._rules = Rules() if rules is None else rules
        self._firm = FirmWork(ledger) if quota_only else None
        self.unsure: Container[WorkloadId] = ()  # may be at a site though it is pending
        self._budget_gpus = budget_gpus
        self._terms = terms if budget_gpus else None
        self.round = Round(pass_id=0, requests={}, waiting_for=set(), deadline_s=0.0)
        self._ranked: dict[WorkloadId, Ranked] = {}  # of those in the present round
        self._rest: Iterator[Ranked] = iter(ranking)
        self._ledger = ledger
        self._array_tasks: dict[WorkloadId, int] | None = None  # counted when one is asked about
        self._limits: dict[tuple[int, Amounts], Refusal | None] = {}  # as of ``_limits_as_of``
        self._limits_as_of = -1
        self._failed: NegativeCache[Mapping[SiteName, Refusal]] = NegativeCache()
        self.reserved: dict[SiteName, BidRequest] = {}  # for whom each site keeps room
        self._asked_in_vain: set[WorkloadId] = set()

    def question(self, site: SiteName, requests: tuple[BidRequest, ...], now_s: float) -> Ask:
        """What a site is asked in the present round: also to keep room as it did before."""
        kept = self.reserved.get(site)
        return Ask(
            pass_id=self.round.pass_id,
            requests=requests,
            reserve=kept and asked_of(kept, site, self._ledger.entries.get(kept.id), now_s),
            reserving=True,
            victims=self.victims_at(site),
        )

    def next_window(self, again: Sequence[WorkloadId], size: int) -> tuple[BidRequest, ...]:
        """The workloads to ask about next: those of the last round once more, then in rank order.

        What may not be tried now, for a limit of its tenant or its array or because it is not
        lent room, is told why and left out.
        """
        self._ranked = {id_: self._ranked[id_] for id_ in again}
        while len(self._ranked) < size and (ranked := next(self._rest, None)) is not None:
            entry = self._ledger.entries[ranked.id]
            if entry.state is not WorkloadState.PENDING:
                continue
            refusal = self._held_back(entry)
            if refusal is not None:
                entry.refusals = {SiteName(""): refusal}
            elif not self._fails(entry, ranked):
                self._ranked[ranked.id] = ranked
        entries = self._ledger.entries
        return tuple(
            BidRequest.of(entries[id_].workload, ranked.priority, self._budget(ranked))
            for id_, ranked in self._ranked.items()
        )

    def _budget(self, ranked: Ranked) -> float:
        """The evictions allowed for a workload: only work within quota displaces others."""
        return self._budget_gpus if ranked.within_quota else 0.0

    def _rights(self, priority: int, budget_gpus: float) -> Rights:
        return Rights(priority, budget_gpus) if budget_gpus else NOBODY

    def learn(self, refused: Iterable[WorkloadId], sites: Collection[SiteName]) -> None:
        """Remember what all of these sites have refused in this round for want of hardware.

        Who avoids nodes proves nothing for others.
        """
        answers = [self.round.answers.get(site) for site in sites]
        known: set[tuple[int, Rights]] = set()  # of the same objects: most ask for the same
        for id_ in refused if sites else ():
            asked = self.round.requests[id_]
            rights = self._rights(asked.priority, asked.preempt_gpus)
            if (id(asked.jobs), rights) in known or self._ledger.entries[id_].bad_nodes:
                continue
            refusals = {
                site: answer.refusal
                for site, by_id in zip(sites, answers, strict=True)
                if by_id is not None
                and (answer := by_id.get(id_)) is not None
                and answer.refusal is not None
                and of_hardware(answer.refusal)
            }
            if len(refusals) == len(sites):
                self._failed.add(asked.jobs, rights, refusals)
                known.add((id(asked.jobs), rights))

    def keep_room(
        self, refused: Sequence[WorkloadId], sites: Sequence[SiteName]
    ) -> list[WorkloadId]:
        """Let each blocked workload have room kept at the site where it could start first.

        A site keeps room for one workload, to the end of the pass. While it was not yet known for
        whom, each site kept it for the first that it had to refuse.

        Args:
            refused: those that found no room in this round, in rank order.
            sites: in the order that breaks ties.

        Returns:
            Those refused for the sake of one that has its room elsewhere: to be asked again. Once
            in a pass is enough, whatever sites say: so the rounds come to an end.
        """
        later = [(s, self.round.until_later[s]) for s in sites if s in self.round.until_later]
        if not later:
            return []
        kept = {request.id for request in self.reserved.values()}
        for id_ in refused:
            predicted = [
                (by_id[id_].starts_in_s or 0.0, sites.index(site), site)
                for site, by_id in later
                if id_ in by_id
                and id_ not in kept
                and by_id[id_].starts_in_s is not None
                and site not in self.reserved
            ]
            if predicted:
                self.reserved[min(predicted)[2]] = self.round.requests[id_]
        in_vain = [
            id_
            for id_ in refused
            if id_ not in self._asked_in_vain
            and any(id_ in by_id and self._in_vain(site, by_id[id_]) for site, by_id in later)
        ]
        self._asked_in_vain.update(in_vain)
        return in_vain

    def _in_vain(self, site: SiteName, refusal: Refusal) -> bool:
        """Refused for the sake of another that has no room kept there."""
        kept = self.reserved.get(site)
        return any(
            reason.code is ReasonCode.RESERVED and (kept is None or reason.detail != str(kept.id))
            for reason in refusal.reasons
        )

    def _fails(self, entry: WorkloadRecord, ranked: Ranked) -> bool:
        """Tell whether it is known already that no site can start this now."""
        if entry.avoid_until_s:  # it may be asked elsewhere than the one that failed
            return False
        rights = self._rights(ranked.priority, self._budget(ranked))
        known = self._failed.find(entry.workload.jobs, rights)
        if known is None:
            return False
        self._give_back_task(entry)
        jobs = entry.workload.jobs
        entry.refusals = {s: as_for(jobs, known.jobs, r) for s, r in known.answer.items()}
        return True

    def choose(self, offers: Sequence[Award], now_s: float) -> tuple[Award, Awarded] | Refusal:
        """The best offer that the tenant may take, or why it may take none.

        One that keeps the workload within quota comes before a better one that does not: a plan
        may take more than was asked for (whole nodes), or GPUs of a type with a quota of its own.
        Of those, one where checkpoints of its last run could be read comes first.

        Args:
            offers: for one workload, best first; at least one.
            now_s: Unix time.
        """
        entry, ranked = self._ledger.entries[offers[0].id], self._ranked[offers[0].id]
        holdings = self._ledger.holdings
        row = self._ledger.tenancy.row(entry.workload.tenant)
        refusal: Refusal | None = None
        best: tuple[bool, bool] | None = None
        award = offers[0]
        for offer in offers:
            charge = holdings.charge_for(row, offer.bid.jobs)
            kept = ranked.within_quota and holdings.keeps_quota(charge)
            beyond = limit_refusal(holdings, row, charge.amounts)
            if beyond is None and not self._may_have(entry.workload, row, charge.amounts):
                beyond = not_lent(self._ledger.tenancy, entry.workload.tenant, charge.amounts)
            if beyond is None and (offer.bid.victims or offer.bid.shrinks):
                beyond = self._spares(offer, ranked, now_s, within_quota=kept)
            refusal = refusal or beyond
            found = (kept, self._can_resume(entry, offer.site))
            if beyond is None and (best is None or found > best):
                best, award = found, offer
                if best == (ranked.within_quota, True):  # none can be better
                    break
        if best is None and refusal is not None:
            self._give_back_task(entry)
            return refusal
        within_quota = best is not None and best[0]
        awarded = Awarded(
            at_s=now_s,
            attempt=AttemptId(workload=award.id, attempt=entry.attempt + 1),
            site=award.site,
            jobs=award.bid.jobs,
            priority=ranked.priority if within_quota == ranked.within_quota else LOWEST_PRIORITY,
            within_quota=within_quota,
            credit=ranked.credit,
            offers=offers_for(award.id, self.round.answers),
            victims=tuple(map(WorkloadId, award.bid.victims)),
            shrinks=award.bid.shrinks,
        )
        return award, awarded

    def _can_resume(self, entry: WorkloadRecord, site: SiteName) -> bool:
        return not entry.ran_at or self._rules.reaches(site, entry.ran_at)

    def _spares(
        self, offer: Award, ranked: Ranked, now_s: float, *, within_quota: bool
    ) -> Refusal | None:
        """The reason why an offer's victims may not go; None when they may.

        ``within_quota``: with what the plan really takes; what is beyond it displaces nobody.
        """
        claims = Claims(
            priority=ranked.priority,
            budget_gpus=self._budget_gpus if within_quota else 0.0,
            terms=self._terms.by_id if self._terms is not None else {},
            now_s=now_s,
        )
        return against(offer, self._ledger, claims)

    def remember(
        self, entry: WorkloadRecord, sites: Mapping[SiteName, SiteView], now_s: float
    ) -> None:
        """Keep each site's reason with the workload, for ``fsqueue --why``."""
        refusals = {s: wait(ReasonCode.SITE_DOWN) for s, view in sites.items() if not view.ready}
        refusals |= self.round.silent()
        for site, until_s in entry.avoid_until_s.items():
            if until_s > now_s and site not in refusals:
                refusals[site] = Refusal(kind=RefusalKind.WAIT, reasons=(entry.setbacks[site],))
        for site in sites if entry.saved_at else ():
            if site not in refusals and not checkpoint_in_reach(entry, site, self._rules):
                elsewhere = Reason(code=ReasonCode.CHECKPOINT, detail=entry.saved_at)
                refusals[site] = Refusal(kind=RefusalKind.WAIT, reasons=(elsewhere,))
        for site, by_id in self.round.answers.items():
            answer = by_id.get(entry.workload.id)
            if answer is not None and answer.refusal is not None:
                refusals[site] = answer.refusal
        entry.refusals = refusals

    def victims_at(self, site: SiteName) -> Mapping[WorkloadId, VictimTerms]:
        """Who may be evicted at a site, and has not left it since the pass began."""
        entries = self._ledger.entries
        terms = {} if self._terms is None else self._terms.at(site)
        if all(entries[id_].site == site for id_ in terms):
            return terms
        return {id_: each for id_, each in terms.items() if entries[id_].site == site}

    def awarded(self, award: Award) -> None:
        """Note an award: no room is kept for it, and its victims leave less to evict."""
        self.reserved = {s: r for s, r in self.reserved.items() if r.id != award.id}
        self._budget_gpus -= evicted_gpus(award.bid, self._ledger)
        workload = self._ledger.entries[award.id].workload
        if self._firm is not None and not workload.preemptible:
            row = self._ledger.tenancy.row(workload.tenant)
            self._firm.add(row, self._ledger.holdings.charge_for(row, award.bid.jobs).amounts)

    def _give_back_task(self, entry: WorkloadRecord) -> None:
        array = entry.workload.array
        if array is not None and self._array_tasks and array.array_id in self._array_tasks:
            self._array_tasks[array.array_id] -= 1

    def _may_have(self, workload: Workload, row: int, amounts: Amounts) -> bool:
        """Tell whether a workload may be given this much, as far as lending goes."""
        return workload.preemptible or self._firm is None or self._firm.has_room(row, amounts)

    def _held_back(self, entry: WorkloadRecord) -> Refusal | None:
        ledger, workload = self._ledger, entry.workload
        if workload.id in self.unsure:
            return wait(ReasonCode.NO_ANSWER)
        row = ledger.tenancy.row(workload.tenant)
        request = ledger.tenancy.request(workload.jobs)
        if not self._may_have(workload, row, request):
            return not_lent(ledger.tenancy, workload.tenant, request)
        refusal = None
        if ledger.tenancy.limit_rows(row):
            refusal = self._limit(row, request)
        array = workload.array
        if refusal is not None or array is None or not array.max_running:
            return refusal
        if self._array_tasks is None:
            self._array_tasks = running_tasks(ledger)
        tasks = self._array_tasks.get(array.array_id, 0)
        if tasks >= array.max_running:
            return wait(ReasonCode.ARRAY_LIMIT, array.max_running)
        self._array_tasks[array.array_id] = tasks + 1
        return None

    def _limit(self, row: int, request: Amounts) -> Refusal | None:
        """As ``limit_refusal``; many of one tenant ask for the same while nothing changes."""
        holdings = self._ledger.holdings
        if self._limits_as_of != holdings.version:
            self._limits.clear()
            self._limits_as_of = holdings.version
        if (row, request) not in self._limits:
            self._limits[row, request] = limit_refusal(holdings, row, request)
        return self._limits[row, request]


@dataclass(slots=True)
class Trial:
    """A ``--test-only`` question of one client."""

    client: int
    workload: Workload
    round: Round

    def answers(
        self, ledger: Ledger, sites: Mapping[SiteName, SiteView], *, quota_only: bool = False
    ) -> tuple[dict[SiteName, SiteAnswer], SiteName | None]:
        """Each site's answer, and who would win now.

        Of a site that is down nothing but what it last had can say "never". Under the name "" the
        federation's own, where a limit stands against every bid, or a quota (``quota_only``:
        against one that may not be evicted).
        """
        id_, tenancy = self.workload.id, ledger.tenancy
        answers = {site: by_id[id_] for site, by_id in self.round.answers.items() if id_ in by_id}
        for site, refused in (self._of_those_down(sites) | self.round.silent()).items():
            answers[site] = SiteAnswer(id=id_, refusal=refused)
        site_order = list(sites)
        if self.workload.tenant not in tenancy:
            offers = bids_for(id_, self.round.answers, site_order)
            return answers, offers[0].site if offers else None
        beyond = None
        for offer in bids_for(id_, self.round.answers, site_order):
            row = tenancy.row(self.workload.tenant)
            charge = ledger.holdings.charge_for(row, offer.bid.jobs)
            amounts = charge.amounts
            refusal = limit_refusal(ledger.holdings, row, amounts)
            firm = quota_only and not self.workload.preemptible
            if refusal is None and firm and not FirmWork(ledger).has_room(row, amounts):
                refusal = not_lent(tenancy, self.workload.tenant, amounts)
            if refusal is None:
                return answers, offer.site
            beyond = beyond or refusal
        if beyond is not None:
            answers[SiteName("")] = SiteAnswer(id=id_, refusal=beyond)
        return answers, None

    def _of_those_down(self, sites: Mapping[SiteName, SiteView]) -> dict[SiteName, Refusal]:
        found = {}
        for name, site in sites.items():
            if not site.ready:
                never = site.never_fits(self.workload.jobs)
                found[name] = wait(ReasonCode.SITE_DOWN) if never is None else never
        return found


def _speaks_of_later(refusal: Refusal) -> bool:
    if refusal.starts_in_s is not None:
        return True
    return any(reason.code is ReasonCode.RESERVED for reason in refusal.reasons)


def wait(code: ReasonCode, needed: int = 0) -> Refusal:
    return Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=code, needed=needed),))


def limit_refusal(holdings: Holdings, row: int, amounts: Amounts) -> Refusal | None:
    """The refusal of a tenant that may not have this much more now; None: no limit is reached."""
    beyond = holdings.beyond_limit(row, amounts)
    if beyond is None:
        return None
    at, resource = beyond
    tenancy = holdings.tenancy
    limit = tenancy.limits[at]
    assert limit is not None
    never = amounts[resource] > limit[resource]
    reason = Reason(
        code=ReasonCode.LIMIT,
        needed=amounts[resource],
        free=max(0, int(limit[resource]) - holdings.used(at)[resource]),
        unit=tenancy.unit(resource),
        detail=tenancy.tenants[at].name,
    )
    kind = RefusalKind.REJECT if never else RefusalKind.WAIT
    return Refusal(kind=kind, reasons=(reason,))


def running_tasks(ledger: Ledger) -> dict[WorkloadId, int]:
    """The number of tasks of each array that are at sites, when a pass first asks."""
    tasks: dict[WorkloadId, int] = {}
    for entry in ledger.in_state(*AT_SITE):
        array = entry.workload.array
        if array is not None:
            tasks[array.array_id] = tasks.get(array.array_id, 0) + 1
    return tasks


def for_site(
    window: Iterable[BidRequest], site: SiteName, ledger: Ledger, rules: Rules, now_s: float
) -> tuple[BidRequest, ...]:
    """Those of the window that this site may bid for now, as it is asked for them."""
    wanted = ((request, ledger.entries[request.id]) for request in window)
    return tuple(
        asked_of(request, site, entry, now_s)
        for request, entry in wanted
        if entry.avoid_until_s.get(site, 0.0) <= now_s and checkpoint_in_reach(entry, site, rules)
    )


def asked_of(
    request: BidRequest, site: SiteName, entry: WorkloadRecord | None, now_s: float
) -> BidRequest:
    """A request as one site gets it: without its nodes that failed the workload lately.

    ``entry``: of the workload; None: it is tried out only, and is not in the ledger.
    """
    if entry is None or not entry.bad_nodes:
        return request
    nodes = entry.bad_nodes.avoided(site, now_s)
    if not nodes:
        return request
    return structs.replace(request, jobs=tuple(replace(job, avoid=nodes) for job in request.jobs))
