"""Who wins which site in one round? Pure comparison of the bids that came."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from federator.model.message import SiteAnswer
from federator.model.plan import Bid, Score
from federator.model.workload import SiteName, WorkloadId

Answers = Mapping[SiteName, Mapping[WorkloadId, SiteAnswer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Award:
    id: WorkloadId
    site: SiteName
    bid: Bid


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of each workload of a round.

    ``again``: refused only because of a hold that was lost; worth asking once more.
    """

    awards: tuple[Award, ...]
    again: tuple[WorkloadId, ...]
    refused: tuple[WorkloadId, ...]
    held_back: tuple[WorkloadId, ...] = ()  # a site would take it, but it was not admitted


def best_bid(
    id_: WorkloadId, answers: Answers, site_order: Sequence[SiteName]
) -> tuple[SiteName, Bid] | None:
    """The smallest score wins; ties go to the site that stands first in the configuration."""
    bids = [
        (answer.bid.score, rank, site, answer.bid)
        for rank, site in enumerate(site_order)
        if (answer := answers.get(site, {}).get(id_)) is not None and answer.bid is not None
    ]
    if not bids:
        return None
    _, _, site, bid = min(bids, key=lambda b: (b[0], b[1]))
    return site, bid


def auction(
    order: Sequence[WorkloadId],
    answers: Answers,
    site_order: Sequence[SiteName],
    admit: Callable[[Award], bool] = lambda _: True,
) -> Outcome:
    """Award in rank order. A site's bids stay valid when it loses an earlier one.

    ``admit`` has the last word on each award, in rank order, knowing what a plan really takes; an
    award that it admits is made.

    A workload that no site bid for is asked again when a site that refused it had held room for
    an earlier workload of this round which then went elsewhere: now there is more room. The first
    of ``order`` is therefore always settled, so the rounds of a pass come to an end.
    """
    awards: list[Award] = []
    again: list[WorkloadId] = []
    refused: list[WorkloadId] = []
    held_back: list[Award] = []
    lost_a_hold: set[SiteName] = set()
    for id_ in order:
        best = best_bid(id_, answers, site_order)
        if best is not None:
            award = Award(id=id_, site=best[0], bid=best[1])
            admitted = admit(award)
            (awards if admitted else held_back).append(award)
            lost_a_hold |= _bidders(id_, answers) - ({award.site} if admitted else set())
        elif any(site in lost_a_hold and id_ in answers[site] for site in answers):
            again.append(id_)
        else:
            refused.append(id_)
    return Outcome(
        awards=tuple(awards),
        again=tuple(again),
        refused=tuple(refused),
        held_back=tuple(award.id for award in held_back),
    )


def _bidders(id_: WorkloadId, answers: Answers) -> set[SiteName]:
    return {s for s, got in answers.items() if id_ in got and got[id_].bid is not None}


def offers_for(id_: WorkloadId, answers: Answers) -> dict[str, Score]:
    """The score of every site that bid for a workload, for the record."""
    return {
        str(site): answer.bid.score
        for site, got in answers.items()
        if (answer := got.get(id_)) is not None and answer.bid is not None
    }
