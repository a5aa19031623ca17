"""One round of a pass: what the sites are asked, and the answers so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from federator.model.message import Wake
from federator.model.node_names import jobs_at, names_nodes
from federator.model.plan import BidRequest
from federator.model.reason import ReasonCode, Refusal
from federator.model.site_message import SiteAnswer
from federator.model.workload import SiteName, WorkloadId
from federator.sched.bid.score import Prices
from federator.sched.passes.availability import unavailable
from federator.sched.passes.eviction import checkpoint_in_reach
from federator.sched.passes.kept_off import NO_SLOW_NODES, KeptOff
from federator.sched.passes.limits import wait
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules


@dataclass(slots=True)
class PassSummary:
    """A pass in numbers."""

    began_s: float  # Unix time, as the next
    ended_s: float = 0.0  # 0: it is under way
    rounds: int = 0
    awarded: int = 0


@dataclass(slots=True)
class Round:
    """One question to the sites, and the answers so far."""

    pass_id: int
    requests: Mapping[WorkloadId, BidRequest]  # in rank order
    waiting_for: set[SiteName]
    deadline_s: float
    answers: dict[SiteName, dict[WorkloadId, SiteAnswer]] = field(default_factory=dict)
    generations: dict[SiteName, int] = field(default_factory=dict)
    """As of which answers were made; see ``KnownRefusals.generation``."""
    keeping_claims: set[SiteName] = field(default_factory=set)
    """Sites whose agents know what claims are."""
    avoiding: set[WorkloadId] = field(default_factory=set)
    """Those that a site was asked about without some of its nodes, which failed them alone."""
    kept_off: dict[SiteName, KeptOff] = field(default_factory=dict)
    """Of sites with slow nodes, which of them were not asked for."""
    prices: dict[SiteName, Prices] = field(default_factory=dict)
    """By which each site was asked; one that is left out costs nothing."""
    until_later: dict[SiteName, dict[WorkloadId, Refusal]] = field(default_factory=dict)
    """Refusals that say when it could start, or that room is kept for another."""
    _away: dict[SiteName, Refusal] | None = None

    def take(self, site: SiteName, answers: Iterable[SiteAnswer], generation: int = 0) -> None:
        if site in self.waiting_for:
            self.waiting_for.discard(site)
            self.generations[site] = generation
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

    def away(
        self, sites: Mapping[SiteName, SiteView], ledger: Ledger
    ) -> Mapping[SiteName, Refusal]:
        """As ``silent``, with the sites that were not asked; as of the first call."""
        if self._away is None:
            self._away = {**unavailable(sites, ledger), **self.silent()}
        return self._away


class RoundSeries:
    """Begins the rounds of all passes and trials.

    Attributes:
        begun: how many there were; their numbers begin with 1.
    """

    def __init__(self) -> None:
        self.begun = 0

    def begin(self, turn: Transaction, requests: Iterable[BidRequest]) -> Round:
        """A round that waits for no site yet."""
        deadline_s = turn.now_s + turn.rules.bid_timeout_s
        self.begun += 1
        turn.commands.append(Wake(at_s=deadline_s))
        return Round(
            pass_id=self.begun,
            requests={request.id: request for request in requests},
            waiting_for=set(),
            deadline_s=deadline_s,
        )


def _speaks_of_later(refusal: Refusal) -> bool:
    """Whether room may be kept for it; one that a reservation gives room needs no other."""
    codes = {reason.code for reason in refusal.reasons}
    if ReasonCode.RESERVATION in codes:
        return False
    return refusal.starts_in_s is not None or ReasonCode.RESERVED in codes


def for_site(
    window: Iterable[BidRequest],
    site: SiteName,
    ledger: Ledger,
    rules: Rules,
    now_s: float,
    kept_off: KeptOff,
) -> tuple[BidRequest, ...]:
    """Those of the window that this site may bid for now, as it is asked for them."""
    wanted = ((request, ledger.entries[request.id]) for request in window)
    return tuple(
        asked_of(request, site, entry, now_s, kept_off)
        for request, entry in wanted
        if entry.avoid_until_s.get(site, 0.0) <= now_s and checkpoint_in_reach(entry, site, rules)
    )


def asked_of(
    request: BidRequest,
    site: SiteName,
    entry: WorkloadRecord | None,
    now_s: float,
    kept_off: KeptOff = NO_SLOW_NODES,
) -> BidRequest:
    """A request as one site gets it: without its nodes that failed the workload lately.

    The nodes that it names are those of the site.
    ``entry``: of the workload; None: it is tried out only, and is not in the ledger.
    ``kept_off``: of the slow nodes of the site.
    """
    if names_nodes(request.jobs):
        request = structs.replace(request, jobs=jobs_at(request.jobs, site))
    nodes = entry.bad_nodes.avoided(site, now_s) if entry is not None and entry.bad_nodes else ()
    if not nodes and not kept_off:
        return request
    jobs = kept_off.jobs(request.jobs, nodes, request.sizes)
    return request if jobs is request.jobs else structs.replace(request, jobs=jobs)
