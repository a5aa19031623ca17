"""Which workloads a pass tries, and in which order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.event import Awarded, Submitted
from federator.model.plan import Bid, BidRequest
from federator.model.reason import ReasonCode, Refusal
from federator.model.score import Score
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import FIRST_WORKLOAD_ID, SiteName, TenantName, WorkloadId
from federator.policies.fifo import Fifo
from federator.policies.mast import Mast
from federator.sched.passes.auction import Award
from federator.sched.passes.cycle import SchedulingPass
from federator.sched.queue.borrowing import FirmWork
from federator.sched.queue.guests import Guests
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from tests.fakes.build import attempt, draft, gang, plan_on


def array_of(*indices: int, max_running: int) -> Ledger:
    ledger = Ledger()
    wanted = draft(array_indices=indices, array_max_running=max_running)
    ledger.apply(Submitted(at_s=0.0, draft=wanted, first_id=FIRST_WORKLOAD_ID, key="k"))
    return ledger


def window_of(ledger: Ledger) -> tuple[WorkloadId, ...]:
    return ids(SchedulingPass(Fifo().rank(ledger, 1.0), ledger).next_window((), 100))


def ids(window: tuple[BidRequest, ...]) -> tuple[WorkloadId, ...]:
    return tuple(request.id for request in window)


def test_tasks_beyond_their_arrays_throttle_are_left_out_and_told_why() -> None:
    ledger = array_of(1, 2, 3, max_running=2)
    assert window_of(ledger) == (FIRST_WORKLOAD_ID, FIRST_WORKLOAD_ID + 1)
    (refusal,) = ledger.entries[WorkloadId(FIRST_WORKLOAD_ID + 2)].refusals.values()
    (reason,) = refusal.reasons
    assert (reason.code, reason.needed) == (ReasonCode.ARRAY_LIMIT, 2)


def test_tasks_at_a_site_count_against_the_throttle() -> None:
    ledger = array_of(1, 2, 3, max_running=2)
    ledger.apply(Awarded(at_s=1.0, attempt=attempt(), site="alpine", jobs=plan_on("a1")))
    assert window_of(ledger) == (FIRST_WORKLOAD_ID + 1,)
    assert ledger.entries[WorkloadId(FIRST_WORKLOAD_ID + 2)].refusals


def test_an_array_without_a_throttle_is_tried_as_a_whole() -> None:
    assert len(window_of(array_of(1, 2, 3, max_running=0))) == 3


def test_a_window_ends_where_it_is_full_and_the_next_goes_on_from_there() -> None:
    ledger = array_of(1, 2, 3, max_running=0)
    pass_ = SchedulingPass(Fifo().rank(ledger, 1.0), ledger)
    first = ids(pass_.next_window((), 2))
    assert (first, ids(pass_.next_window(first[1:], 2))) == (
        (FIRST_WORKLOAD_ID, FIRST_WORKLOAD_ID + 1),
        (FIRST_WORKLOAD_ID + 1, FIRST_WORKLOAD_ID + 2),
    )


# ---- the choice of an offer ----

SITES = ("alpine", "baker", "crest", "dune")
offers_drawn = st.lists(
    st.tuples(
        st.sampled_from(SITES),
        st.sampled_from([2, 4, 6, 20]),  # GPUs of its plan: the quota is 4 more, the limit 12
        st.sampled_from([(), (), (), (99,)]),  # victims; this one may not be evicted
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=300, deadline=None)
@given(offers_drawn, st.booleans(), st.sampled_from(["", "baker", "dune"]), st.integers(0, 8))
def test_the_offer_that_is_chosen_is_the_best_of_all_that_may_be_taken(
    drawn: list[tuple[str, int, tuple[int, ...]]], firm: bool, ran_at: str, held: int
) -> None:
    vision = Tenant(
        name=TenantName("vision"), priority=3, quota=Allowance(gpus=8), limit=Allowance(gpus=16)
    )
    ledger = Ledger(Tenancy((vision,)))
    for k, job in enumerate((gang(1, held or 1), gang(1, 2))):  # the second is asked for
        id_ = WorkloadId(FIRST_WORKLOAD_ID + k)
        wanted = draft(job, no_preempt=firm and k == 1)
        ledger.apply(Submitted(at_s=0.0, draft=wanted, first_id=id_, key=f"k{k}"))
    if held:
        plan = plan_on("a1", gpus=held)
        first = Awarded(at_s=1.0, attempt=attempt(0), site="alpine", jobs=plan, within_quota=True)
        ledger.apply(first)
    asked = WorkloadId(FIRST_WORKLOAD_ID + 1)
    ledger.entries[asked].ran_at = SiteName(ran_at)
    regions = {SiteName(site): "west" if site in SITES[:2] else "east" for site in SITES}
    rules = Rules(preempt_gpus=8, regions=regions)
    guests = Guests(ledger, firm=FirmWork(ledger) if firm else None)
    ranking = Mast().rank(ledger, 2.0)
    pass_ = SchedulingPass(ranking, ledger, rules, 8.0, terms=None, guests=guests)
    if asked not in ids(pass_.next_window((), 10)):
        return
    offers = [
        Award(
            id=asked,
            site=SiteName(site),
            bid=Bid(jobs=plan_on(f"n{k}", gpus=gpus), score=Score(), victims=v),
        )
        for k, (site, gpus, v) in enumerate(drawn)
    ]
    alone = [pass_.choose([offer], 2.0) for offer in offers]
    possible = [one for one in alone if not isinstance(one, Refusal)]
    chosen = pass_.choose(offers, 2.0)
    if not possible:
        assert chosen == alone[0]
        return
    best = max(
        possible,
        key=lambda one: (
            one[1].within_quota,
            not ran_at or rules.reaches(one[0].site, SiteName(ran_at)),
        ),
    )
    assert not isinstance(chosen, Refusal)
    assert chosen[:2] == best[:2]
    assert chosen[0] is best[0]
