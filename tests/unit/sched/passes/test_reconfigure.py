"""A reload: other tenants, rules and sites, while what runs goes on."""

from __future__ import annotations

from dataclasses import replace

from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerTested, SiteDown, SiteSent
from federator.model.site_message import BidsMade, Report
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName
from federator.policies.fifo import Fifo
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import LATENCY_S, Loopback

RUNNING, PENDING = WorkloadState.RUNNING, WorkloadState.PENDING
EVICTING = Rules(pass_interval_s=60.0, grace_s=10.0, preempt_gpus=40, preempt_window_s=60.0)


def tenant(name: str, gpus: int, limit: int | None = None, priority: int = 2) -> Tenant:
    bound = Allowance() if limit is None else Allowance(gpus=limit)
    return Tenant(name=TenantName(name), priority=priority, quota=Allowance(gpus=gpus), limit=bound)


def federation(rules: Rules = EVICTING, *tenants: Tenant) -> Loopback:
    sites = {"alpine": rack("a", 2), "baker": rack("b", 2)}
    return Loopback(sites, rules, policy=Mast(), tenants=tenants)


def test_a_limit_that_is_raised_lets_what_waits_start() -> None:
    f = federation(EVICTING, tenant("vision", 8, limit=8))
    first = f.submit(draft(gang(1, 8), tenant="vision"))
    second = f.submit(draft(gang(1, 8), tenant="vision"))
    f.run_for(5.0)
    assert (f.state(first), f.state(second)) == (RUNNING, PENDING)
    f.reload(tenants=[tenant("vision", 8, limit=16)])
    f.run_for(1.0)
    assert f.state(second) is RUNNING


def test_what_holds_gpus_counts_in_its_new_quota() -> None:
    f = federation(EVICTING, tenant("vision", 8))
    f.submit(draft(gang(2, 8), tenant="vision"))
    f.run_for(5.0)
    f.reload(tenants=[tenant("nlp", 4), tenant("vision", 32)])
    tenancy, holdings = f.federation.ledger.tenancy, f.federation.ledger.holdings
    assert [each.name for each in tenancy.tenants] == ["nlp", "vision"]
    assert holdings.used(tenancy.row(TenantName("vision")))[0] == 16
    assert holdings.used(tenancy.row(TenantName("nlp")))[0] == 0


def test_a_quota_that_is_given_makes_room_by_evicting_guests() -> None:
    f = federation(EVICTING)
    guests = [f.submit(draft(gang(1, 8), tenant="guest")) for _ in range(4)]
    owner = f.submit(draft(gang(1, 8), tenant="vision"))
    f.run_for(5.0)
    assert f.state(owner) is PENDING
    f.reload(tenants=[tenant("vision", 8)])
    f.run_for(30.0)
    assert f.state(owner) is RUNNING
    assert sorted(f.state(g).value for g in guests) == ["PENDING", "RUNNING", "RUNNING", "RUNNING"]


def test_without_a_budget_nobody_is_evicted_any_more() -> None:
    f = federation(EVICTING, tenant("vision", 8))
    for _ in range(4):
        f.submit(draft(gang(1, 8), tenant="guest"))
    f.run_for(5.0)
    f.reload(rules=replace(EVICTING, preempt_gpus=0.0))
    owner = f.submit(draft(gang(1, 8), tenant="vision"))
    f.run_for(120.0)
    assert f.state(owner) is PENDING


def test_the_policy_may_be_another_one() -> None:
    f = federation(EVICTING, tenant("vision", 8))
    f.reload(policy=Fifo())
    first = f.submit(draft(gang(2, 8), tenant="guest"))
    f.run_for(1.0)
    assert f.state(first) is RUNNING


def test_a_pass_that_is_open_begins_anew() -> None:
    f = federation()
    id_ = f.submit(draft(gang(1, 8)))
    f.run_for(LATENCY_S / 2)  # the question is on its way
    f.reload(tenants=[tenant("vision", 8)])
    f.run_for(1.0)
    assert f.state(id_) is RUNNING
    assert len(f.live_jobs(id_)) == 1


def test_the_news_of_a_site_that_was_taken_out_are_ignored() -> None:
    f = federation()
    f.reload(without="baker")
    baker = SiteName("baker")
    f.observe(SiteSent(site=baker, message=Report(attempts=())))
    f.observe(SiteSent(site=baker, message=BidsMade(pass_id=1, answers=())))
    f.observe(SiteDown(site=baker))
    id_ = f.submit(draft(gang(2, 8)))
    f.run_for(1.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, "alpine")
    assert list(f.federation.sites) == ["alpine"]


def test_a_trial_does_not_wait_for_a_site_that_was_taken_out() -> None:
    f = federation()
    f.site_down("baker")
    f.ask(draft(gang(1, 8)), test_only=False)
    f.reload(without="baker")
    answer = f.ask(draft(gang(1, 8)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert set(answer.answers) <= {"alpine"}


def test_a_site_that_stays_is_not_asked_to_begin_anew() -> None:
    f = federation()
    view = f.federation.sites[SiteName("alpine")]
    f.reload(tenants=[tenant("vision", 8)])
    assert f.federation.sites[SiteName("alpine")] is view
    assert view.ready
    gpus, _ = f.federation.eviction_budget(f.clock.now_s)
    assert gpus == EVICTING.preempt_gpus


def test_usage_goes_on() -> None:
    f = federation(EVICTING, tenant("vision", 8))
    f.submit(draft(gang(1, 8), tenant="vision"))
    f.run_for(3600.0)
    ledger, now_s = f.federation.ledger, f.clock.now_s
    before = ledger.holdings.averages(now_s)[ledger.tenancy.row(TenantName("vision"))]
    f.reload(tenants=[tenant("nlp", 1), tenant("vision", 8)])
    after = ledger.holdings.averages(now_s)[ledger.tenancy.row(TenantName("vision"))]
    assert before > 0
    assert abs(after - before) < 1e-9
