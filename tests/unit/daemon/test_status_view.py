"""The federation as a whole, in the numbers of ``federator status``."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from federator.daemon.view_calls import ViewCalls
from federator.history.service import JobHistory
from federator.model.lending import Lending, LendingPlan, LoadForecast
from federator.model.message import PlanAsked
from federator.model.site_mode import SiteMode
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import TenantName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.wire.client_protocol import StatusCall, StatusReply
from federator.wire.replies import Reply
from federator.wire.status_rows import LendingRow, TenantModeRow
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import CONFIG, Desk

RULES = Rules(preempt_gpus=16, preempt_window_s=300.0, grace_s=60.0, cooldown_s=600.0)
TENANTS = (
    Tenant(name=TenantName("guest")),
    Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=64)),
)


def status(federation: Loopback) -> StatusReply:
    reply = Desk(federation).ask(StatusCall())
    assert isinstance(reply, StatusReply)
    return reply


def test_the_queue_the_last_pass_and_what_is_held_are_counted() -> None:
    f = Loopback({"alpine": rack("a", 2), "baker": rack("b", 2)})
    for _ in range(6):
        f.submit(draft(gang(1, 8)))
    f.run_for(10.0)
    found = status(f)
    assert found.queue == {
        "PENDING": 2,
        "INELIGIBLE": 0,
        "HELD": 0,
        "AWARDED": 0,
        "LAUNCHING": 0,
        "RUNNING": 4,
        "PREEMPTING": 0,
        "CANCELLING": 0,
    }
    assert found.gpus_held == 32
    assert found.last_pass is not None
    assert found.last_pass.ended_s >= found.last_pass.began_s > 0
    assert (found.budget.gpus, found.claims) == (0.0, ())
    assert [site.name for site in found.sites] == ["alpine", "baker"]


def test_evictions_and_claims_are_shown_with_what_is_to_come() -> None:
    f = Loopback({"alpine": rack("a", 8)}, RULES, None, Mast(), TENANTS)
    for _ in range(8):
        f.submit(replace(draft(gang(1, 8)), tenant=TenantName("guest")))
    f.run_for(10.0)
    owner = f.submit(replace(draft(gang(6, 8)), tenant=TenantName("owner")))
    f.run_for(20.0)
    found = status(f)
    assert found.budget.gpus == 16.0
    assert (found.budget.evictions, found.budget.evicted_gpus) == (2, 16)
    assert found.budget.left_gpus == 0.0
    (claim,) = found.claims
    assert (claim.id, claim.site, claim.gpus, claim.to_evict_gpus) == (owner, "alpine", 48, 32)
    assert claim.starts_by_s > found.now_s


def test_a_victim_larger_than_the_budget_is_shown_until_it_is_paid_for() -> None:
    f = Loopback({"alpine": rack("a", 8)}, RULES, None, Mast(), TENANTS)
    f.submit(replace(draft(gang(8, 8)), tenant=TenantName("guest")))
    f.run_for(10.0)
    f.submit(replace(draft(gang(6, 8)), tenant=TenantName("owner")))
    f.run_for(2 * RULES.preempt_window_s)
    budget = status(f).budget
    assert (budget.evictions, budget.evicted_gpus, budget.left_gpus) == (1, 64, 0.0)
    assert RULES.preempt_window_s < budget.whole_in_s < 2 * RULES.preempt_window_s + 1.0


def test_lending_is_shown_with_its_plan_and_what_may_be_lent_now() -> None:
    tenants = (Tenant(name=TenantName("vision"), quota=Allowance(gpus=16)), *TENANTS[:1])
    f = Loopback({"alpine": rack("a", 4)}, Rules(lending=Lending.ON), None, Mast(), tenants)
    assert status(f).lending == LendingRow(mode="on")
    forecasts = (LoadForecast(tenant="vision", new_gpus=(4, 99)),)
    now_s = f.clock()
    plan = LendingPlan(
        made_at_s=now_s, expires_at_s=now_s + 60, windows_s=(300.0, 3600.0), forecasts=forecasts
    )
    f.observe(PlanAsked(client=1, plan=plan))
    found = status(f).lending
    assert (found.mode, found.usable_gpus) == ("on", (28, 16))
    assert (found.made_at_s, found.forecasts) == (now_s, forecasts)
    f.run_for(60.0)
    assert status(f).lending == LendingRow(mode="on", expires_at_s=now_s + 60)


def test_tenants_that_are_not_in_mode_enforced_are_named() -> None:
    guest, owner = TENANTS
    watched = (replace(guest, mode=SiteMode.OPT_IN), owner)
    f = Loopback({"alpine": rack("a", 1)}, RULES, None, Mast(), watched)
    assert status(f).tenant_modes == (TenantModeRow(tenant="guest", mode="opt-in"),)


def test_sites_whose_job_ids_went_back_are_named_with_when() -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 1)})
    back = {"alpine": 7.0, "gone": 9.0}  # the last is not configured any more
    history = cast(JobHistory, SimpleNamespace(went_back_at_s=back))
    replies: list[Reply] = []
    for kept in (history, None):
        views = ViewCalls(CONFIG, f.federation, f.clock, kept)
        views.take(StatusCall(), None, replies.append)
    told = [reply.job_ids_back for reply in replies if isinstance(reply, StatusReply)]
    assert told == [{"alpine": 7.0}, {}]
