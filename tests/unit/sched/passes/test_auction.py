"""Who wins which site in one round."""

from __future__ import annotations

from msgspec import structs

from federator.model.plan import Bid
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.score import Score
from federator.model.site_message import SiteAnswer
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.auction import auction, offers_for

A, B = SiteName("alpine"), SiteName("baker")
SITES = [A, B]
NO = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.RESOURCES),))


def answers(**costs: dict[int, float | None]) -> dict[SiteName, dict[WorkloadId, SiteAnswer]]:
    """By site: the locality cost of its bid for each workload, None for a refusal."""
    return {
        SiteName(site): {
            WorkloadId(id_): SiteAnswer(id=WorkloadId(id_), refusal=NO)
            if cost is None
            else SiteAnswer(id=WorkloadId(id_), bid=Bid(score=Score(locality_cost=cost), jobs=()))
            for id_, cost in by_id.items()
        }
        for site, by_id in costs.items()
    }


def ids(*numbers: int) -> list[WorkloadId]:
    return [WorkloadId(n) for n in numbers]


def test_the_smallest_score_wins() -> None:
    outcome = auction(ids(1), answers(alpine={1: 10.0}, baker={1: 9.0}), SITES)
    assert [(a.id, a.site) for a in outcome.awards] == [(1, B)]


def test_a_tie_goes_to_the_site_that_is_configured_first() -> None:
    outcome = auction(ids(1), answers(baker={1: 9.0}, alpine={1: 9.0}), SITES)
    assert outcome.awards[0].site == A


def test_terms_count_from_left_to_right() -> None:
    assert Score(preempts=1) > Score(locality_cost=1e9)


def test_who_was_refused_only_for_a_hold_that_was_lost_is_asked_again() -> None:
    got = answers(alpine={1: 10.0, 2: None}, baker={1: 1.0, 2: None})
    outcome = auction(ids(1, 2), got, SITES)
    assert [a.id for a in outcome.awards] == [1]
    assert outcome.again == (2,)
    assert outcome.refused == ()


def test_who_was_refused_by_sites_that_lost_nothing_waits() -> None:
    got = answers(alpine={1: 10.0, 2: None})
    outcome = auction(ids(1, 2), got, SITES)
    assert (outcome.again, outcome.refused) == ((), (2,))


def test_a_site_that_was_not_asked_is_no_reason_to_ask_again() -> None:
    got = answers(alpine={1: 10.0}, baker={1: 1.0, 2: None})
    assert auction(ids(1, 2), got, SITES).refused == (2,)


def held_back(
    got: dict[SiteName, dict[WorkloadId, SiteAnswer]], site: SiteName, id_: int
) -> dict[SiteName, dict[WorkloadId, SiteAnswer]]:
    """The same, and the site says of one bid that those before it made it worse."""
    answer = structs.replace(got[site][WorkloadId(id_)], held_back=True)
    return got | {site: got[site] | {WorkloadId(id_): answer}}


def test_who_was_bid_for_worse_only_because_of_a_hold_that_was_lost_is_asked_again() -> None:
    got = answers(alpine={1: 10.0, 2: 30.0}, baker={1: 1.0, 2: 20.0})
    assert auction(ids(1, 2), held_back(got, A, 2), SITES).again == (2,)
    assert auction(ids(1, 2), got, SITES).again == ()


def test_a_bid_that_is_worse_because_of_one_that_won_is_taken() -> None:
    got = answers(alpine={1: 10.0, 2: 30.0}, baker={1: 1.0, 2: 20.0})
    outcome = auction(ids(1, 2), held_back(got, B, 2), SITES)
    assert [(a.id, a.site) for a in outcome.awards] == [(1, B), (2, B)]


def test_the_first_in_rank_is_always_settled() -> None:
    for got in (answers(), answers(alpine={1: None}), answers(alpine={1: 1.0}, baker={1: 2.0})):
        assert 1 not in auction(ids(1, 2), got, SITES).again


def test_every_workload_of_the_round_gets_one_outcome() -> None:
    got = answers(alpine={1: 1.0, 2: 1.0, 3: None, 4: None}, baker={1: 2.0, 4: None})
    outcome = auction(ids(1, 2, 3, 4), got, SITES)
    settled = [a.id for a in outcome.awards] + list(outcome.again) + list(outcome.refused)
    assert sorted(settled) == [1, 2, 3, 4]


def test_the_record_names_the_offer_of_every_site_that_bid() -> None:
    got = answers(alpine={1: 2.0}, baker={1: None}, crest={1: 1.0})
    assert offers_for(WorkloadId(1), got) == {
        "alpine": {"locality_cost": 2.0},
        "crest": {"locality_cost": 1.0},
    }
