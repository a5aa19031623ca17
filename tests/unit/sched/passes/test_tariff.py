"""Prices in bids, and workloads that leave spot partitions: the federation in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from federator.model.event import Awarded, decode_event, encode_event
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerTested, DrainAsked, ResumeAsked, TiersMeasured
from federator.model.prices import PriceRule, Rates
from federator.model.reason import ReasonCode
from federator.model.site_message import Ask, SiteAnswer
from federator.model.workload import SiteName, WorkloadId
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.passes.bid_intake import on_partitions, priced
from federator.sched.passes.decision import award_of, decisive
from federator.sched.state.rules import Rules
from tests.fakes.build import bid_request, draft, gang, rack
from tests.fakes.loopback import Loopback, sent

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
PRICES = (
    PriceRule(site="alpine", rates=Rates(gpu_h=2.0), tier="on-demand"),
    PriceRule(site="baker", rates=Rates(gpu_h=0.7), tier="spot"),
)
RULES = Rules(prices=PRICES, price_weight=10.0)
SPOT_FIRST = replace(RULES, spot_interruptions=2, grace_s=10.0)


def fleet(rules: Rules = RULES, nodes: int = 4) -> Loopback:
    """Two sites; on equal terms alpine, which is dearer, is taken."""
    f = Loopback({"alpine": rack("a", nodes), "baker": rack("b", nodes)}, rules)
    f.federation.rounds.tells_decisions = True
    return f


def started_at(f: Loopback, id_: WorkloadId) -> str:
    f.run_for(30.0)
    return str(f.federation.ledger.entries[id_].site)


def award(f: Loopback, id_: WorkloadId) -> Awarded:
    found = f.federation.ledger.entries[id_].award
    assert found is not None
    return found


def test_prices_do_not_count_unless_they_are_to() -> None:
    f = fleet(Rules(prices=PRICES))
    id_ = f.submit(draft(gang(1)))
    assert started_at(f, id_) == ALPINE
    assert award(f, id_).costs == {}


def test_the_cheaper_site_is_taken_where_both_could_start_it_now() -> None:
    f = fleet()
    id_ = f.submit(draft(gang(1)))
    assert started_at(f, id_) == BAKER
    assert award(f, id_).costs == {"alpine": 8 * 20.0, "baker": 8 * 7.0}


def test_a_trial_names_the_winner_by_price_and_asks_as_a_pass_does() -> None:
    f = fleet()
    answer = f.ask(draft(gang(1)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner == BAKER
    assert {site: each.bid and each.bid.cost for site, each in answer.answers.items()} == {
        ALPINE: 8 * 20.0,
        BAKER: 8 * 7.0,
    }
    f.submit(draft(gang(1)))
    f.run_for(1.0)
    asked: dict[SiteName, list[object]] = {}
    for site, ask in sent(f.commands, Ask):
        asked.setdefault(site, []).append(ask.prices)
    assert all(len(each) >= 2 for each in asked.values())
    assert all(prices == each[0] for each in asked.values() for prices in each)


def test_nobody_is_evicted_and_nobody_waits_for_a_price() -> None:
    f = fleet(nodes=1)
    f.submit(draft(gang(1)))
    id_ = f.submit(draft(gang(1)))
    assert started_at(f, id_) == ALPINE


def test_a_difference_below_a_step_leaves_the_word_to_the_other_terms() -> None:
    f = fleet(replace(RULES, price_weight=0.2))  # 2.0 counts as 0.4, and that as none
    assert started_at(f, f.submit(draft(gang(1)))) == ALPINE


def test_a_tier_that_wastes_most_of_its_time_is_dear() -> None:
    f = fleet()
    f.observe(TiersMeasured(factors={(BAKER, "spot"): 4.0}))  # 2.80 for a productive hour
    id_ = f.submit(draft(gang(1)))
    assert started_at(f, id_) == ALPINE
    assert award(f, id_).costs == {"alpine": 8 * 20.0, "baker": 8 * 28.0}


def test_what_was_measured_outlives_a_reload() -> None:
    f = fleet()
    factors = {(BAKER, "spot"): 4.0}
    f.observe(TiersMeasured(factors=factors))
    f.reload(rules=replace(RULES, pass_interval_s=100.0))
    assert f.federation.rounds.tariff.factors == factors


def test_an_award_by_price_can_be_made_again_and_says_that_the_price_decided() -> None:
    f = fleet()
    id_ = f.submit(draft(gang(1)))
    f.run_for(30.0)
    (seen,) = f.decided
    decided = decisive(seen)
    assert decided is not None
    assert (decided.term, decided.taken, decided.other) == ("cost", 56.0, 160.0)
    again = award_of(seen)
    assert again is not None
    assert encode_event(again) == encode_event(award(f, id_))
    assert decode_event(encode_event(again)) == again
    assert again.named_offers["baker"]["cost"] == 56.0


def test_a_site_cannot_make_itself_cheap() -> None:
    site = SiteScheduler(("gpu",))
    site.update(rack("a", 1), ())
    (answer,) = site.bid([bid_request(id=WorkloadId(1), jobs=(gang(1),))])
    assert answer.bid is not None
    assert answer.bid.cost == 0.0
    prices, types = {"gpu": {"": 3.0, "a100": 5.0, "h100": 9.0}}, ("a100", "h100")
    (taken,) = priced([answer], prices, types)
    assert taken.bid is not None
    assert taken.bid.cost == 8 * 5.0
    for said in ({}, {"": 8}, {"a100": 0}, {"a100_nowhere": 8}):  # then the dearest counts
        jobs = tuple(replace(plan, gpu_types=said) for plan in answer.bid.jobs)
        (dear,) = priced(
            [structs.replace(answer, bid=replace(answer.bid, jobs=jobs))], prices, types
        )
        assert dear.bid is not None
        assert dear.bid.cost == 8 * 9.0
    (free,) = priced([SiteAnswer(id=taken.id, bid=taken.bid)], {}, types)
    assert free.bid is not None
    assert free.bid.cost == 0.0


def test_a_bid_on_a_partition_that_the_federation_may_not_use_is_none() -> None:
    site = SiteScheduler(("gpu",))
    site.update(rack("a", 1), ())
    answers = site.bid([bid_request(id=WorkloadId(1), jobs=(gang(1),))])
    assert list(on_partitions(answers, ("gpu", "cpu"))) == list(answers)
    (refused,) = on_partitions(answers, ("cpu",))
    assert refused.bid is None
    assert refused.refusal is not None
    assert refused.refusal.reasons[0].code is ReasonCode.BAD_BID


def test_no_workload_starts_on_a_partition_that_its_site_has_made_up() -> None:
    f = fleet()
    f.federation.sites[BAKER].partitions = ("burst",)  # of an agent with another configuration
    id_ = f.submit(draft(gang(1)))
    assert started_at(f, id_) == ALPINE
    assert award(f, id_).costs == {"alpine": 8 * 20.0}


def test_a_site_takes_the_cheaper_of_its_partitions_and_remembers_no_other_prices() -> None:
    dear = rack("a", 2, partitions=("gpu",))
    cheap = rack("b", 2, partitions=("burst",))
    site = SiteScheduler(("gpu", "burst"))
    site.update([*dear, *cheap], ())
    request = bid_request(id=WorkloadId(1), jobs=(gang(1),))

    def partition() -> tuple[str, float]:
        (answer,) = site.bid([request])
        assert answer.bid is not None
        return answer.bid.jobs[0].partition, answer.bid.cost

    assert partition() == ("gpu", 0.0)
    site.expect({}, {"gpu": {"a100": 20.0}, "burst": {"a100": 7.0}})
    assert partition() == ("burst", 56.0)
    site.update([*dear, *cheap, *rack("c", 1)], ())  # the site is built differently
    assert partition() == ("burst", 56.0)
    site.expect({}, {"gpu": {"a100": 7.0}, "burst": {"a100": 20.0}})
    assert partition() == ("gpu", 56.0)


# ---- leaving spot ----


def revoke(f: Loopback) -> None:
    """All of baker is gone soon, and back a little later."""
    deadline_s = f.clock.now_s + 20.0
    f.observe(
        DrainAsked(
            client=-1, site=BAKER, reason="spot", by="root", deadline_s=deadline_s, revoked=True
        )
    )
    f.run_for(60.0)
    f.observe(ResumeAsked(client=-1, site=BAKER, by="root"))


def crowded(rules: Rules, limit_s: float = 100_000.0) -> tuple[Loopback, WorkloadId, WorkloadId]:
    """A job that runs at baker, and another one that fills alpine."""
    f = fleet(rules, nodes=1)
    id_ = f.submit(draft(gang(1), time_limit_s=limit_s))
    assert started_at(f, id_) == BAKER
    other = f.submit(draft(gang(1)))
    assert started_at(f, other) == ALPINE
    return f, id_, other


def test_a_job_that_was_interrupted_too_often_leaves_spot_for_a_day() -> None:
    f, id_, other = crowded(SPOT_FIRST)
    revoke(f)
    assert started_at(f, id_) == BAKER  # once is not too often
    revoke(f)
    f.run_for(400.0)
    entry = f.federation.ledger.entries[id_]
    assert entry.state is WorkloadState.PENDING
    refusal = f.federation.refusals_of(entry)[BAKER]
    assert refusal.reasons[0].code is ReasonCode.SPOT
    assert refusal.reasons[0].until_s == pytest.approx(f.clock.now_s + 86_400, abs=1000)
    third = f.submit(draft(gang(1)))
    assert started_at(f, third) == BAKER  # the rule is for that job alone
    f.cancel(other)
    assert started_at(f, id_) == ALPINE


def test_a_job_returns_to_spot_when_its_interruptions_are_a_day_ago() -> None:
    f, id_, _ = crowded(SPOT_FIRST)
    revoke(f)
    f.run_for(30.0)
    revoke(f)
    f.run_for(80_000.0)
    assert f.state(id_) is WorkloadState.PENDING
    f.run_for(7_000.0)
    assert started_at(f, id_) == BAKER


@pytest.mark.parametrize(
    "rules",
    [
        replace(SPOT_FIRST, spot_interruptions=0),
        replace(SPOT_FIRST, prices=tuple(replace(rule, tier="") for rule in PRICES)),
        replace(SPOT_FIRST, prices=tuple(replace(rule, tier="spot") for rule in PRICES)),
    ],
    ids=["off", "no spot", "nothing else"],
)
def test_spot_is_left_for_something_else_only(rules: Rules) -> None:
    f, id_, _ = crowded(rules)
    for _ in range(3):
        revoke(f)
        f.run_for(30.0)
    assert started_at(f, id_) == BAKER


@pytest.mark.parametrize("why", ["drained", "down", "too small"])
def test_a_site_that_cannot_have_a_workload_is_no_reason_to_leave_spot(why: str) -> None:
    nodes = rack("a", 1, gpus=4) if why == "too small" else rack("a", 1)
    f = Loopback({"alpine": nodes, "baker": rack("b", 1)}, SPOT_FIRST)
    id_ = f.submit(draft(gang(1)))
    f.run_for(10.0)
    assert f.entry(id_).site == BAKER
    if why == "drained":
        f.observe(DrainAsked(client=-1, site=ALPINE, by="root", cordon=True))
    elif why == "down":
        f.site_down("alpine")
    for _ in range(3):
        revoke(f)
        f.run_for(30.0)
    assert len(f.entry(id_).interruptions) >= 2
    assert started_at(f, id_) == BAKER


def test_interruptions_outlive_a_restart() -> None:
    f, id_, _ = crowded(SPOT_FIRST)
    revoke(f)
    before = f.federation.ledger.entries[id_].interruptions
    f.compact()
    assert [(site, partition) for _, site, partition, _ in before] == [(BAKER, "gpu")]
    f.restart()
    assert f.federation.ledger.entries[id_].interruptions == before
