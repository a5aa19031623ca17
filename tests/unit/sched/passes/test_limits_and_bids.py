"""Which of several bids a tenant takes, which bids are believed, and what --test-only says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf, nan

import pytest
from msgspec import structs

from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerTested, SiteSent
from federator.model.plan import Bid, BidRequest, JobPlan
from federator.model.reason import Alternative, Reason, ReasonCode, Refusal, RefusalKind
from federator.model.score import Score
from federator.model.site import NodeShare
from federator.model.site_message import Ask, BidsMade, SiteAnswer
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import Job, SiteName, TenantName
from federator.policies.mast import Mast
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.passes.bid_validation import (
    MOST_ALTERNATIVES,
    MOST_REASONS,
    MOST_TEXT,
    Validation,
    contradiction,
)
from federator.sched.passes.cycle import SchedulingPass
from federator.sched.state.rules import Rules
from tests.fakes.build import bid_request, draft, gang, plan_on, rack, tenant, workload
from tests.fakes.loopback import LATENCY_S, Loopback, sent

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
ANY = Job(name="train", nodes=1, gpus_per_node=8)


def two_kinds(*tenants: Tenant) -> Loopback:
    """alpine has h100 and wins ties; baker has a100."""
    nodes = {"alpine": rack("a", 2, gpu_type="h100"), "baker": rack("b", 2)}
    return Loopback(nodes, None, None, Mast(), tenants)


def vision(quota: Allowance | None = None, limit: Allowance | None = None) -> Tenant:
    return Tenant(name=TenantName("vision"), priority=3, quota=quota, limit=limit or Allowance())


# ---- which bid ----


def test_the_best_bid_that_the_limit_admits_wins() -> None:
    f = two_kinds(vision(limit=Allowance(gpu_types={"h100": 0})))
    id_ = f.submit(draft(ANY))
    f.run_for(1.0)
    assert f.entry(id_).site == BAKER


def test_a_bid_that_keeps_the_workload_within_quota_comes_before_a_better_one() -> None:
    f = two_kinds(vision(quota=Allowance(gpus=64, gpu_types={"h100": 0})))
    id_ = f.submit(draft(ANY))
    f.run_for(1.0)
    award = f.entry(id_).award
    assert award is not None
    assert (award.site, award.within_quota, award.priority) == ("baker", True, 3)


def test_without_another_bid_it_goes_over_quota_at_the_lowest_priority() -> None:
    f = two_kinds(vision(quota=Allowance(gpus=64, gpu_types={"h100": 0})))
    f.site_down("baker")
    id_ = f.submit(draft(ANY))
    f.run_for(1.0)
    award = f.entry(id_).award
    assert award is not None
    assert (award.site, award.within_quota, award.priority) == ("alpine", False, 7)


def test_a_plan_beyond_the_whole_limit_is_refused_for_good_and_the_sites_are_still_told_of() -> (
    None
):
    f = Loopback({"alpine": rack("a", 2)}, None, None, Mast(), [tenant("vision", limit=4)])
    id_ = f.submit(draft(Job(name="train", nodes=1, gpus_per_node=1, exclusive=True)))
    f.run_for(1.0)
    refusal = f.refusals(id_)[SiteName("")]
    assert refusal.kind is RefusalKind.REJECT
    assert (refusal.reasons[0].needed, refusal.reasons[0].free) == (8, 4)


def test_what_comes_free_in_the_middle_of_a_pass_is_seen_by_its_next_window() -> None:
    f = Loopback({"alpine": rack("a", 4)}, None, None, Mast(), [tenant("vision", limit=8)])
    first, second = f.submit(draft()), f.submit(draft())
    f.run_for(1.0)
    ledger = f.federation.ledger
    now_s = f.clock.now_s
    pass_ = SchedulingPass(Mast().rank(ledger, now_s), ledger)
    assert pass_.next_window((), 10) == ()
    charge = ledger.entries[first].charge
    assert charge is not None
    ledger.holdings.release(charge, False, now_s)
    again = SchedulingPass(Mast().rank(ledger, now_s), ledger)
    assert [r.id for r in again.next_window((), 10)] == [second]


# ---- --test-only ----


def test_a_trial_names_the_limit_that_stands_against_every_bid() -> None:
    f = Loopback({"alpine": rack("a", 4)}, None, None, Mast(), [tenant("vision", limit=8)])
    f.submit(draft())
    f.run_for(1.0)
    answer = f.ask(draft(), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner is None
    told = answer.answers[SiteName("")].refusal
    assert told is not None
    assert told.reasons[0].code is ReasonCode.LIMIT


def test_a_trial_is_won_by_the_best_bid_that_the_limit_admits() -> None:
    f = two_kinds(vision(limit=Allowance(gpu_types={"h100": 0})))
    answer = f.ask(draft(ANY), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner == BAKER


# ---- what a site may bid ----


def bid_for(*jobs: Job) -> Bid:
    site = SiteScheduler(("gpu",))
    site.update(rack("a", 4), ())
    (answer,) = site.bid([bid_request(id=workload().id, jobs=jobs)])
    assert answer.bid is not None
    return answer.bid


@pytest.mark.parametrize(
    "jobs",
    [
        (gang(2),),
        (Job(name="t", gpus=12),),
        (Job(name="t", nodes=1, cpus_per_node=3),),
        (Job(name="t", nodes=1, gpus_per_node=1, exclusive=True),),
        (Job(name="t", nodes=3, gpus=10, gpu_types=("a100",)),),
        (gang(2, 4, "train"), gang(1, 8, "serve")),
    ],
)
def test_a_sites_own_bids_are_believed(jobs: tuple[Job, ...]) -> None:
    assert contradiction(jobs, bid_for(*jobs)) == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda plan: replace(plan, partition="p" * 6_000), "of an impossible name"),
        (lambda plan: replace(plan, gpu_types={"t" * 6_000: 1}), "of an impossible name"),
        (
            lambda plan: replace(
                plan, nodes={name: NodeShare(gpus=8, cpus=8, mem_mib=2**58) for name in plan.nodes}
            ),
            "impossible amounts",
        ),
        (lambda plan: replace(plan, whole_mem_mib=2**62), "impossible amounts"),
        (lambda plan: replace(plan, whole_mem_mib=-1), "impossible amounts"),
    ],
)
def test_a_plan_that_no_site_can_have_is_found_out(
    wrong: Callable[[JobPlan], JobPlan], said: str
) -> None:
    bid = bid_for(gang(2))
    assert said in contradiction((gang(2),), replace(bid, jobs=(wrong(bid.jobs[0]),)))


def with_share(bid: Bid, share: NodeShare) -> Bid:
    (plan,) = bid.jobs
    first = next(iter(plan.nodes))
    return replace(bid, jobs=(replace(plan, nodes=plan.nodes | {first: share}),))


GOOD = bid_for(gang(2))
PLAN = GOOD.jobs[0]
BAD: dict[str, Bid] = {
    "it plans impossible amounts": with_share(GOOD, NodeShare(gpus=-1000, cpus=1)),
    "it plans 15 GPUs": with_share(GOOD, NodeShare(gpus=7, cpus=1)),
    "it plans 1 CPUs": with_share(GOOD, NodeShare(gpus=8)),
    "it plans 0 nodes": replace(GOOD, jobs=(replace(PLAN, nodes={}),)),
    "it plans more GPUs of a type than GPUs": replace(
        GOOD, jobs=(replace(PLAN, gpu_types={"a100": 10**12}),)
    ),
}


@pytest.mark.parametrize(("wrong", "bid"), BAD.items(), ids=str)
def test_a_bid_that_contradicts_its_request_is_found_out(wrong: str, bid: Bid) -> None:
    assert contradiction((gang(2),), bid) == f"train: {wrong}"


def test_other_jobs_another_type_and_a_score_that_is_no_number_are_found_out() -> None:
    assert contradiction((gang(2, name="serve"),), GOOD) == "it plans other jobs"
    wanted = Job(name="train", nodes=2, gpus_per_node=8, gpu_types=("h100",))
    assert contradiction((wanted,), GOOD) == "train: it plans another GPU type"
    assert "no number" in contradiction((gang(2),), replace(GOOD, score=Score(locality_cost=nan)))


def test_a_plan_of_two_jobs_on_one_node_is_found_out() -> None:
    """Slurm would never start it."""
    jobs = (gang(1, 4), gang(1, 4, "serve"))
    plans = (*plan_on("a1", gpus=4), replace(plan_on("a1", gpus=4)[0], name="serve"))
    assert contradiction(jobs, replace(GOOD, jobs=plans)) == "it plans two jobs on node a1"


def test_whole_nodes_of_any_gpu_type_are_believed_of_a_job_without_gpus() -> None:
    job = Job(name="t", nodes=1, exclusive=True, gpu_types=("h100",))
    assert contradiction((job,), bid_for(job)) == ""


def test_a_false_bid_is_a_refusal_and_nothing_is_charged_for_it() -> None:
    f = Loopback({"alpine": rack("a", 2)}, None, None, Mast(), [tenant("vision", 64)])
    id_ = f.submit(draft())
    f.run_for(LATENCY_S / 4)  # the pass has begun, the site's answer is on its way
    pass_id = max(ask.pass_id for _, ask in sent(f.commands, Ask))
    plan = JobPlan(name="train", partition="gpu", nodes={"a1": NodeShare(gpus=-1000, cpus=1)})
    answer = SiteAnswer(id=id_, bid=Bid(score=Score(), jobs=(plan,)))
    made = BidsMade(pass_id=pass_id, answers=(answer,))
    f.federation.handle(SiteSent(site=ALPINE, message=made), f.clock.now_s)
    assert list(f.federation.ledger.holdings.used(0)) == [0, 0]
    (refusal,) = f.refusals(id_).values()
    assert refusal.reasons[0].code is ReasonCode.BAD_BID


# ---- what a site may refuse with ----

BUSY = Reason(code=ReasonCode.RESOURCES, needed=4, free=2, unit="nodes")


def refusal_with(*reasons: Reason, starts_in_s: float | None = None) -> Refusal:
    return Refusal(
        kind=RefusalKind.WAIT,
        reasons=reasons or (BUSY,),
        starts_in_s=starts_in_s,
        alternatives=(Alternative(nodes=2, gpus=8),),
    )


def believed_of(refusal: Refusal) -> ReasonCode:
    (answer,) = Validation().validated(
        [SiteAnswer(id=workload().id, refusal=refusal)], lambda _: (gang(4),)
    )
    assert answer.refusal is not None
    return answer.refusal.reasons[0].code


@pytest.mark.parametrize(
    "refusal",
    [
        refusal_with(starts_in_s=nan),
        refusal_with(starts_in_s=-1.0),
        refusal_with(starts_in_s=inf),
        structs.replace(refusal_with(starts_in_s=9.0), sooner_in_s=nan),
        refusal_with(structs.replace(BUSY, free=-(2**63))),
        refusal_with(structs.replace(BUSY, more_in_s=nan)),
        refusal_with(structs.replace(BUSY, needed=2**60)),
        refusal_with(*[BUSY] * (MOST_REASONS + 1)),
        refusal_with(structs.replace(BUSY, detail="x" * (MOST_TEXT + 1))),
        structs.replace(
            refusal_with(), alternatives=(Alternative(nodes=1),) * (MOST_ALTERNATIVES + 1)
        ),
        structs.replace(refusal_with(), alternatives=(Alternative(nodes=-1),)),
    ],
)
def test_a_refusal_that_makes_no_sense_is_not_passed_on(refusal: Refusal) -> None:
    assert believed_of(refusal) is ReasonCode.BAD_BID


def test_a_sane_refusal_is_passed_on() -> None:
    assert believed_of(refusal_with(starts_in_s=60.0)) is ReasonCode.RESOURCES


def test_a_site_that_refuses_for_a_reservation_nobody_has_keeps_no_pass_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """baker says so of everything; alpine is full for the first four and has room for the last."""
    f = Loopback({"alpine": rack("a", 2), "baker": rack("b", 2)}, Rules(window=4))
    f.site_down("baker")
    f.submit(draft(gang(1)))
    f.run_for(11.0)
    f.site_up("baker")
    reason = Reason(code=ReasonCode.RESERVED, detail="nobody")
    no = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))

    def lie(_: object, asked: Iterable[BidRequest], *_now: float, **_kept: object) -> object:
        return tuple(SiteAnswer(id=request.id, refusal=no) for request in asked)

    honest = SiteScheduler.bid
    monkeypatch.setattr(
        SiteScheduler,
        "bid",
        lambda self, *given, **kept: (lie if self.nodes[0].name == "b1" else honest)(
            self, *given, **kept
        ),
    )
    for _ in range(4):
        f.submit(draft(gang(2)))
    small = f.submit(replace(draft(gang(1)), time_limit_s=60.0))
    f.commands.clear()
    f.run_for(60.0)
    assert f.state(small) is WorkloadState.RUNNING
    asked = [ask for site, ask in sent(f.commands, Ask) if site == BAKER]
    assert len(asked) < 40
