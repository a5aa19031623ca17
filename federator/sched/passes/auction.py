"""Decides one round of the auction: the bids that came, compared in rank order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from federator.model.plan import Bid
from federator.model.reason import ReasonCode
from federator.model.site_message import SiteAnswer
from federator.model.workload import SiteName, WorkloadId

Answers = Mapping[SiteName, Mapping[WorkloadId, SiteAnswer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Award:
    id: WorkloadId
    site: SiteName
    bid: Bid


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a round for each workload.

    ``again``: refused, or bid for worse, because of a hold that was lost; worth asking once more.
    """

    awards: tuple[Award, ...]
    again: tuple[WorkloadId, ...]
    refused: tuple[WorkloadId, ...]


def bids_for(id_: WorkloadId, answers: Answers, site_order: Sequence[SiteName]) -> list[Award]:
    """All bids for a workload, best first: smallest terms, then the site configured first."""
    bids = [
        (answer.bid.terms, rank, Award(id=id_, site=site, bid=answer.bid))
        for rank, site in enumerate(site_order)
        if (answer := answers.get(site, {}).get(id_)) is not None and answer.bid is not None
    ]
    return [award for _, _, award in sorted(bids, key=lambda b: b[:2])]


def _best(offers: Sequence[Award]) -> Award | None:
    return offers[0]


def _never(_id: WorkloadId) -> bool:
    return False


def _always(_id: WorkloadId) -> bool:
    return True


def _nothing(_id: WorkloadId) -> None:
    pass


def auction(  # noqa: PLR0913 - each is one thing that decides
    order: Sequence[WorkloadId],
    answers: Answers,
    site_order: Sequence[SiteName],
    choose: Callable[[Sequence[Award]], Award | None] = _best,
    *,
    may_start: Callable[[WorkloadId], bool] = _always,
    must_wait: Callable[[WorkloadId], bool] = _never,
    settled: Callable[[WorkloadId], None] = _nothing,
) -> Outcome:
    """Award in rank order. A site's bids stay valid when it loses an earlier one.

    ``choose`` has the last word on each award, in rank order: it is given what was offered, best
    first, and takes one, or none when something stands against them all.

    A workload is asked again when a site had held room for an earlier one of this round which
    then went elsewhere, and for want of that room refused it, with no other site bidding, or bid
    worse: now there is more. The first of ``order`` is therefore always settled, so the rounds of
    a pass come to an end.

    Args:
        order: those that were asked about.
        answers: of the sites.
        site_order: breaks ties.
        choose: see above.
        may_start: whether one still waits; the room that sites held for one that does not is free.
        must_wait: whether one has to be asked again, and all behind it, since another goes first;
            never true of the first.
        settled: hears of each whose answers hold for whoever asks for the same.
    """
    awards: list[Award] = []
    again: list[WorkloadId] = []
    refused: list[WorkloadId] = []
    lost_a_hold: set[SiteName] = set()
    bid_for = {
        id_ for by_id in answers.values() for id_, said in by_id.items() if said.bid is not None
    }
    for k, id_ in enumerate(order):
        if not may_start(id_):
            lost_a_hold |= {site for site, by_id in answers.items() if _held(by_id.get(id_))}
            continue
        if must_wait(id_):
            again += order[k:]
            break
        offers = bids_for(id_, answers, site_order) if id_ in bid_for else []
        freed = [answers[site][id_] for site in lost_a_hold if id_ in answers.get(site, {})]
        if offers and not any(answer.held_back for answer in freed):
            chosen = choose(offers)
            if chosen is not None:
                awards.append(chosen)
            if not freed:
                settled(id_)
            lost_a_hold |= {offer.site for offer in offers if offer is not chosen}
        elif freed:
            again.append(id_)
        else:
            settled(id_)
            refused.append(id_)
        lost_a_hold |= {site for site, by_id in answers.items() if _is_unsound(by_id.get(id_))}
    return Outcome(awards=tuple(awards), again=tuple(again), refused=tuple(refused))


def _held(answer: SiteAnswer | None) -> bool:
    """Whether a site held room for a workload while it answered for those behind."""
    return answer is not None and (answer.bid is not None or _is_unsound(answer))


_NOT_TAKEN = frozenset({ReasonCode.BAD_BID, ReasonCode.OLD_RELEASE})


def _is_unsound(answer: SiteAnswer | None) -> bool:
    """Whether a site bid what makes no sense: it was not taken, and the site held room for it."""
    refusal = None if answer is None else answer.refusal
    return refusal is not None and refusal.reasons[0].code in _NOT_TAKEN


def offers_for(
    id_: WorkloadId, answers: Answers
) -> dict[str, dict[str, float] | tuple[float, ...]]:
    """The score of every site that bid for a workload, for the record."""
    return {
        str(site): answer.bid.named()
        for site, got in answers.items()
        if (answer := got.get(id_)) is not None and answer.bid is not None
    }
