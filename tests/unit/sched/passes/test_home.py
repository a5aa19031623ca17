"""A tenant's quota may have a home: there it is guaranteed, elsewhere the tenant is a guest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from federator.model.draft import Draft
from federator.model.event import Awarded, Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.tenant import LOWEST_PRIORITY, Allowance, Tenancy, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.eviction import victim_terms
from federator.sched.queue.quota_status import quota_statuses
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
ALPINE, BIRCH = SiteName("alpine"), SiteName("birch")
RULES = Rules(preempt_gpus=64, preempt_window_s=300.0, grace_s=60.0, cooldown_s=0.0)


def owner(name: str, *home: SiteName, gpus: int = 32) -> Tenant:
    return Tenant(name=TenantName(name), priority=3, quota=Allowance(gpus=gpus), home=home)


A, B = owner("a", ALPINE), owner("b", BIRCH)
GUEST = Tenant(name=TenantName("guest"))


def fleet(tenants: Sequence[Tenant] = (A, B, GUEST), rules: Rules = RULES) -> Loopback:
    """Two sites of four 8-GPU nodes each; each is the home of one tenant, whose quota it is."""
    racks = {str(name): rack(name[0], 4) for name in (ALPINE, BIRCH)}
    return Loopback(racks, rules, None, Mast(), tuple(tenants))


def of(tenant: str, nodes: int = 1, gpus: int = 8, **more: object) -> Draft:
    wanted = draft(gang(nodes, gpus))
    return replace(wanted, tenant=TenantName(tenant), **more)  # type: ignore[arg-type]


def run(f: Loopback, *drafts: Draft) -> list[WorkloadId]:
    ids = [f.submit(each) for each in drafts]
    f.run_for(10.0)
    assert [f.state(id_) for id_ in ids] == [RUNS] * len(ids)
    return ids


def awards(f: Loopback, id_: WorkloadId) -> list[Awarded]:
    return [e for e in f.log if isinstance(e, Awarded) and e.attempt.workload == id_]


def evicted(f: Loopback) -> list[WorkloadId]:
    found = [e for e in f.log if isinstance(e, Changed) and e.happening is WorkloadEvent.EVICTED]
    return [e.workload for e in found]


def test_work_within_quota_starts_at_home_while_there_is_room() -> None:
    f = fleet()
    ids = run(f, *[of("b")] * 4)
    assert {f.entry(id_).site for id_ in ids} == {BIRCH}
    assert all(awards(f, id_)[0].within_quota for id_ in ids)


def test_away_from_home_a_tenant_is_a_guest_within_its_quota_too() -> None:
    f = fleet()
    guests = run(f, *[of("guest")] * 4)
    assert {f.entry(id_).site for id_ in guests} == {ALPINE}
    (id_,) = run(f, of("a"))
    assert f.entry(id_).site == BIRCH
    assert not awards(f, id_)[0].within_quota
    assert awards(f, id_)[0].priority == LOWEST_PRIORITY
    status = quota_statuses(f.federation.ledger)[id_]
    assert (status.priority, status.within_quota) == (LOWEST_PRIORITY, False)
    terms = victim_terms(f.federation.ledger, RULES, f.clock.now_s)
    assert terms[id_].priority == LOWEST_PRIORITY
    assert not evicted(f)  # a place elsewhere comes before an eviction at home


def test_an_owner_has_its_home_back_from_others_that_are_within_their_quota() -> None:
    f = fleet()
    blockers = run(f, *[of("guest")] * 4)  # alpine is full of guests
    lent = run(f, *[of("a")] * 4)  # so the owner of alpine is at birch
    assert {f.entry(id_).site for id_ in lent} == {BIRCH}
    (gang_,) = run(f, of("b", nodes=4))
    assert f.entry(gang_).site == BIRCH
    assert awards(f, gang_)[0].within_quota
    f.run_for(300.0)
    assert {f.entry(id_).site for id_ in lent} == {ALPINE}  # in its turn it evicts the guests
    assert [f.state(id_) for id_ in lent] == [RUNS] * 4
    assert [f.state(id_) for id_ in blockers] == [WAITS] * 4


def test_nobody_evicts_away_from_home() -> None:
    f = fleet((A, owner("b", BIRCH, gpus=64), GUEST))
    run(f, *[of("b")] * 4)
    guests = run(f, *[of("guest")] * 4)
    waiting = f.submit(of("b"))  # within its quota of 64, and its home has no more
    f.run_for(100.0)
    assert f.state(waiting) is WAITS
    assert [f.state(id_) for id_ in guests] == [RUNS] * 4


def test_work_that_may_not_be_evicted_starts_at_home_only() -> None:
    f = fleet((owner("a", ALPINE, gpus=64), B, GUEST))
    firm = run(f, *[replace(of("a"), requeue=False)] * 4)
    assert {f.entry(id_).site for id_ in firm} == {ALPINE}
    waiting = f.submit(replace(of("a"), requeue=False))  # birch is idle
    f.run_for(100.0)
    assert f.state(waiting) is WAITS
    (lent,) = run(f, of("a"))
    assert f.entry(lent).site == BIRCH


def test_children_share_the_home_of_their_parent_unless_they_have_their_own() -> None:
    parent = owner("parent", ALPINE)
    heir = Tenant(name=TenantName("heir"), parent=parent.name)
    settler = Tenant(name=TenantName("settler"), parent=parent.name, home=(BIRCH,))
    tenancy = Tenancy([parent, heir, settler])
    assert tenancy.is_home(tenancy.row(heir.name), ALPINE)
    assert not tenancy.is_home(tenancy.row(heir.name), BIRCH)
    assert tenancy.home(tenancy.row(settler.name)) == {BIRCH}
    assert tenancy.is_home(tenancy.row(TenantName("stranger")), BIRCH)


def test_a_claim_is_made_at_home_only() -> None:
    f = fleet(rules=replace(RULES, preempt_gpus=8))
    run(f, *[of("guest")] * 8)
    gang_ = f.submit(of("b", nodes=4))
    f.run_for(10.0)
    assert f.federation.ledger.claims[gang_].site == BIRCH
    f.run_until(lambda: f.state(gang_) is RUNS, limit_s=3 * 300.0 + 70.0)
    assert f.entry(gang_).site == BIRCH
