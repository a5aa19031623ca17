"""An award is made again from what was kept of it, and it is said what decided."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from federator.model.decision import OfferStanding, Preference, SeenDecision, SeenOffer
from federator.model.event import Awarded, encode_event
from federator.model.plan import Bid
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.score import Score
from federator.model.workload import SiteName
from federator.sched.passes.decision import (
    CHECKPOINT,
    ONLY_OFFER,
    OTHERS_REFUSED,
    PREFERENCE,
    SITE_ORDER,
    award_of,
    decisive,
    pick,
)
from federator.sched.state.rules import Rules
from tests.fakes.build import attempt, draft, gang, plan_on, rack, tenant
from tests.fakes.loopback import Loopback

A, B, C = map(SiteName, ("alpine", "boreal", "cedar"))
WITHIN = OfferStanding(preference=Preference.WITHIN, within_quota=True)
OVER = OfferStanding()
LIMIT = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.LIMIT),))
REFUSED = OfferStanding(refusal=LIMIT)


def offer(site: SiteName, standing: OfferStanding | None = WITHIN, **terms: Any) -> SeenOffer:
    bid = Bid(jobs=plan_on(f"{site}1"), score=Score(**terms))
    return SeenOffer(site=site, bid=bid, standing=standing)


def seen(*offers: SeenOffer) -> SeenDecision:
    return SeenDecision(
        at_s=1.0,
        attempt=attempt(1),
        pass_id=1,
        sites=(A, B, C),
        answered=tuple(each.site for each in offers),
        priority=2,
        within_quota=True,
        credit=1.5,
        offers=offers,
    )


def decided(*offers: SeenOffer) -> tuple[str, str, str]:
    again, told = award_of(seen(*offers)), decisive(seen(*offers))
    assert again is not None
    assert told is not None
    return again.site, told.term, told.other_site


def test_the_first_term_that_differs_decided() -> None:
    cheap = offer(B, gpu_worth=80.0, fragmentation=3.0)
    assert decided(offer(A, gpu_worth=90.0), cheap) == (B, "gpu_worth", A)
    told = decisive(seen(offer(A, gpu_worth=90.0), cheap))
    assert told is not None
    assert (told.taken, told.other) == (80.0, 90.0)


def test_ties_are_broken_by_the_order_of_the_sites() -> None:
    assert decided(offer(C), offer(A), offer(B)) == (A, SITE_ORDER, B)


def test_quota_comes_before_a_better_score() -> None:
    better = offer(A, OVER, gpu_worth=1.0)
    assert decided(better, offer(B, WITHIN, gpu_worth=9.0)) == (B, PREFERENCE, A)


def test_a_checkpoint_in_reach_comes_before_a_better_score() -> None:
    far = structs.replace(WITHIN, reads=False)
    assert decided(offer(A, far), offer(B, gpu_worth=9.0)) == (B, CHECKPOINT, A)


def test_a_lone_offer_and_one_whose_rivals_may_not_be_taken_are_told_apart() -> None:
    assert decided(offer(B)) == (B, ONLY_OFFER, "")
    assert decided(offer(A, REFUSED), offer(B, gpu_worth=5.0)) == (B, OTHERS_REFUSED, A)


def test_where_nothing_may_be_taken_there_is_no_award() -> None:
    assert award_of(seen(offer(A, REFUSED))) is None
    assert decisive(seen(offer(A, REFUSED))) is None


@given(
    st.lists(
        st.one_of(
            st.just(REFUSED),
            st.builds(OfferStanding, preference=st.sampled_from(Preference), reads=st.booleans()),
        ),
        max_size=5,
    )
)
def test_the_first_of_those_that_stand_best_is_taken(standings: list[OfferStanding]) -> None:
    k = pick(standings)
    allowed = [each for each in standings if each.refusal is None]
    if k is None:
        assert not allowed
        return
    best = max(each.rank for each in allowed)
    assert standings[k].rank == best
    assert all(each.refusal is not None or each.rank < best for each in standings[:k])


def awards(fleet: Loopback) -> list[Awarded]:
    return [event for event in fleet.log if isinstance(event, Awarded)]


@pytest.mark.parametrize("answer_in_s", [0.0, 0.2])
def test_every_award_of_a_federation_comes_out_again_bit_for_bit(answer_in_s: float) -> None:
    fleet = Loopback(
        {A: rack("a", 2), B: rack("b", 4, gpu_type="h100"), C: rack("c", 1)},
        tenants=[tenant("vision", 24, priority=2), tenant("nlp", 8, priority=5)],
        rules=Rules(),
    )
    fleet.federation.rounds.tells_decisions = True
    for k in range(12):
        job = gang(1 + k % 2, gpus_per_node=4 + 4 * (k % 2))
        fleet.submit(draft(job, tenant="vision" if k % 3 else "nlp"))
        fleet.run_for(1.0 + answer_in_s)
    fleet.run_for(60.0)
    logged = awards(fleet)
    assert len(logged) >= 6
    assert [each.attempt for each in fleet.decided] == [event.attempt for event in logged]
    for kept, event in zip(fleet.decided, logged, strict=True):
        again = award_of(kept)
        assert again is not None
        assert encode_event(again) == encode_event(event)
        assert decisive(kept) is not None


def test_nothing_is_told_unless_somebody_wants_it() -> None:
    fleet = Loopback({A: rack("a", 2)})
    fleet.submit(draft(gang(1)))
    fleet.run_for(5.0)
    assert awards(fleet)
    assert fleet.decided == []
