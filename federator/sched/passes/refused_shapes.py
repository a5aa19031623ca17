"""Tells which shapes every site refuses in a pass, so that nobody who asks for them is asked about.

Refusals of workloads that may evict nobody hold beyond the pass (``known_refusals``). Those of
workloads that may are remembered here, for this pass: who may be evicted changes with each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from federator.model.plan import BidRequest
from federator.model.reason import Refusal
from federator.model.workload import Job, SiteName
from federator.sched.bid.negative_cache import NOBODY, NegativeCache, Rights, of_hardware
from federator.sched.bid.refusal_details import STARTS_COMPUTED
from federator.sched.passes.known_refusals import KnownRefusals

MOST_RESERVED: Final = 16  # refused workloads of a pass that are taken along for a reservation


class Asked(NamedTuple):
    """Those about whom every site would say the same."""

    number: int  # of the shape
    rights: Rights  # whom they may evict
    bits: int  # of the sites that may be asked; see ``KnownRefusals.bits``


class RefusedShapes:
    """What is known of shapes in a pass.

    Args:
        known: refusals that still hold.

    Attributes:
        bits: of the sites that may be asked in the present round.
    """

    def __init__(self, known: KnownRefusals) -> None:
        self._known = known
        self._failed: NegativeCache[None] = NegativeCache()  # of those that may evict
        self._failures = 0
        self._refused = set[Asked]()  # of these, those from which nothing follows
        self._tried: dict[Asked, int] = {}  # of how many of these a shape does not follow
        self._taken_along = 0
        self.bits = 0
        self._sites: Sequence[SiteName] = ()
        self._kept: Collection[SiteName] = ()
        self._now_s = 0.0

    def begin_round(
        self, sites: Sequence[SiteName], kept: Collection[SiteName], now_s: float
    ) -> None:
        """Another round: the sites that may be asked, and those that keep room for somebody."""
        self._sites, self._kept, self._now_s = sites, kept, now_s
        self.bits = self._known.bits(sites)

    def is_settled(self, asked: Asked, jobs: tuple[Job, ...]) -> bool:
        """Tell whether a shape is refused by every site, and no room is to be kept for it."""
        return self.is_refused(asked, jobs) and not self._may_be_reserved(asked)

    def is_refused(self, asked: Asked, jobs: tuple[Job, ...]) -> bool:
        """Tell whether every site that may be asked refuses a shape."""
        if not asked.bits:
            return bool(self.bits)  # nowhere at home is a site ready
        number, rights = asked.number, asked.rights
        if rights is NOBODY:
            return self._known.is_refused(number, jobs, asked.bits)
        if asked in self._refused:
            return True
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
            for site in self._sites
            if site not in self._kept and asked.bits & known.bits((site,))
        )

    def was_taken(self, asked: Asked, jobs: tuple[Job, ...]) -> None:
        """One is asked about: of those that are refused only a few are, for a reservation."""
        self._taken_along += self.is_refused(asked, jobs)

    def learn(
        self,
        asked: Asked,
        request: BidRequest,
        refusals: Mapping[SiteName, Refusal],
        sites: Sequence[SiteName],
        avoiding: Mapping[SiteName, tuple[Job, ...]],
    ) -> None:
        """Remember refusals that were given in this round by some of these sites.

        Where it avoids slow nodes nothing follows for others: a larger one may have to take them.
        """
        number, rights, bits = asked
        for site, refusal in refusals.items():
            jobs = avoiding.get(site, request.jobs)
            self._known.learn(site, number, jobs, refusal, self._now_s)
        if rights is NOBODY or not bits:
            return
        home = [site for site in sites if not rights.home or site in rights.home]
        others = self._known.bits(sites) & ~self._known.bits(home)
        if all(site in refusals and of_hardware(refusals[site]) for site in home) and (
            not others or self._known.is_refused(number, request.jobs, others)
        ):
            if avoiding:
                self._refused.add(asked)
                return
            self._failed.add(request.jobs, rights, None)
            self._failures += 1
