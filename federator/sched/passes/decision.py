"""Decides which of a workload's offers it takes; the same for the daemon and for who asks again.

A decision reads nothing but a ``SeenDecision``, so that it can be made again from what was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from federator.model.decision import OfferStanding, SeenDecision, SeenOffer
from federator.model.event import Awarded
from federator.model.score import TERMS
from federator.model.tenant import LOWEST_PRIORITY
from federator.model.workload import SiteName, WorkloadId

PREFERENCE: Final = "quota"
CHECKPOINT: Final = "checkpoint"
SITE_ORDER: Final = "site_order"
ONLY_OFFER: Final = "only_offer"
OTHERS_REFUSED: Final = "others_refused"


def pick(standings: Sequence[OfferStanding | None]) -> int | None:
    """The number of the offer that is taken: the first of those that stand best; None: none may.

    Args:
        standings: of the offers, best score first; those not looked at stand behind.
    """
    chosen: int | None = None
    best: OfferStanding | None = None
    for k, each in enumerate(standings):
        if each is None or each.refusal is not None:
            continue
        if best is None or each.rank > best.rank:
            best, chosen = each, k
    return chosen


def sorted_offers(offers: Sequence[SeenOffer], sites: Sequence[SiteName]) -> list[SeenOffer]:
    """The smallest score first, then the site that is configured first."""
    place = {site: rank for rank, site in enumerate(sites)}
    return sorted(offers, key=lambda offer: (offer.bid.terms, place[offer.site]))


def award_of(seen: SeenDecision) -> Awarded | None:
    """The award that follows; None: none of the offers may be taken."""
    offers = sorted_offers(seen.offers, seen.sites)
    chosen = pick([offer.standing for offer in offers])
    if chosen is None:
        return None
    offer = offers[chosen]
    standing = offer.standing or OfferStanding()
    kept = standing.within_quota
    return Awarded(
        at_s=seen.at_s,
        attempt=seen.attempt,
        site=offer.site,
        jobs=offer.bid.jobs,
        priority=seen.priority if kept == seen.within_quota else LOWEST_PRIORITY,
        within_quota=kept,
        credit=seen.credit,
        offers=_scores(offers, seen.answered),
        victims=tuple(map(WorkloadId, offer.bid.victims)),
        shrinks=offer.bid.shrinks,
        lending=standing.lending,
        data=seen.data,
        output=seen.output,
        moves=offer.bid.moves,
        waits_s=offer.bid.waits_s if offer.bid.moves else 0.0,
    )


def _scores(
    offers: Sequence[SeenOffer], answered: Sequence[SiteName]
) -> dict[str, dict[str, float] | tuple[float, ...]]:
    by_site = {offer.site: offer.bid.named() for offer in offers}
    return {str(site): by_site[site] for site in answered if site in by_site}


class Decisive(NamedTuple):
    """The term by which an offer was taken, and its values there and at the next best site."""

    term: str  # of ``TERMS``, or one of this module's
    taken: float = 0.0
    other: float = 0.0
    other_site: SiteName = SiteName("")


def decisive(seen: SeenDecision) -> Decisive | None:
    """What decided; None: nothing was taken."""
    offers = sorted_offers(seen.offers, seen.sites)
    chosen = pick([offer.standing for offer in offers])
    if chosen is None:
        return None
    taken = offers[chosen]
    others = [offer for k, offer in enumerate(offers) if k != chosen]
    if not others:
        return Decisive(ONLY_OFFER)
    allowed = [each for each in others if each.standing is None or each.standing.refusal is None]
    if not allowed:
        return Decisive(OTHERS_REFUSED, other_site=others[0].site)
    # One that was not looked at stands no better than the one that was taken.
    mine = taken.standing or OfferStanding()
    next_ = max(
        allowed, key=lambda each: mine.rank if each.standing is None else each.standing.rank
    )
    return _against(taken, mine, next_)


def _against(taken: SeenOffer, mine: OfferStanding, other: SeenOffer) -> Decisive:
    theirs = mine if other.standing is None else other.standing
    if mine.preference != theirs.preference:
        return Decisive(PREFERENCE, mine.preference, theirs.preference, other.site)
    if mine.reads != theirs.reads:
        return Decisive(CHECKPOINT, mine.reads, theirs.reads, other.site)
    for term, one, two in zip(TERMS, taken.bid.terms, other.bid.terms, strict=True):
        if one != two:
            return Decisive(term, one, two, other.site)
    return Decisive(SITE_ORDER, other_site=other.site)
