"""Idle quota of others is lent only to who gives it back: in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.draft import Draft
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerRefused, AnswerTested
from federator.model.reason import ReasonCode, RefusalKind
from federator.model.tenant import Tenant
from federator.model.workload import SiteName, TenantName
from federator.policies.fifo import Fifo
from federator.policies.mast import Mast
from federator.sched.queue.policy import Policy
from federator.sched.queue.quota_status import quota_statuses
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
EVICTING = Rules(preempt_gpus=64)
TENANTS = (tenant("vision", 16), tenant("nlp", 16), Tenant(name=TenantName("guest")))
NO_PREEMPT = draft(gang(1), tenant="vision", no_preempt=True)
NO_REQUEUE = draft(gang(1), tenant="vision", requeue=False)
FIRM = pytest.mark.parametrize("firm", [NO_PREEMPT, NO_REQUEUE])


def fleet(
    rules: Rules = EVICTING, tenants: tuple[Tenant, ...] = TENANTS, policy: Policy | None = None
) -> Loopback:
    """Four nodes of 8 GPUs; vision and nlp have 16 GPUs each, guest none."""
    return Loopback({"alpine": rack("a", 4)}, rules, None, policy or Mast(), tenants)


@FIRM
def test_who_may_not_be_evicted_starts_within_quota_and_waits_beyond_it(firm: Draft) -> None:
    f = fleet()
    ids = [f.submit(firm) for _ in range(3)]
    f.run_for(5.0)
    assert [f.state(id_) for id_ in ids] == [RUNS, RUNS, WAITS]
    (reason,) = f.refusals(ids[2])[SiteName("")].reasons
    assert (reason.code, reason.detail) == (ReasonCode.NOT_LENT, "vision")
    f.slurm("alpine").end(f.entry(ids[0]).attempt_id)
    f.run_for(20.0)
    assert f.state(ids[2]) is RUNS


@FIRM
def test_what_else_the_tenant_runs_does_not_keep_it_waiting(firm: Draft) -> None:
    """Else small workloads, which start wherever a little quota is free, would starve it."""
    f = fleet()
    small = [f.submit(draft(gang(1), tenant="vision")) for _ in range(2)]
    f.run_for(5.0)
    large = f.submit(replace(firm, jobs=(gang(2),)))
    f.run_for(5.0)
    assert f.state(large) is RUNS
    assert {f.state(id_) for id_ in small} == {RUNS}
    found = quota_statuses(f.federation.ledger)  # what may be evicted is what is borrowed now
    assert found[large].within_quota
    assert not any(found[id_].within_quota for id_ in small)


def test_who_may_be_evicted_borrows() -> None:
    f = fleet()
    ids = [f.submit(draft(gang(1), tenant="vision")) for _ in range(3)]
    f.run_for(5.0)
    assert [f.state(id_) for id_ in ids] == [RUNS, RUNS, RUNS]


@FIRM
@pytest.mark.parametrize("tenant_and_nodes", [("guest", 1), ("vision", 3)])
def test_what_can_never_be_within_quota_is_refused_at_once(
    firm: Draft, tenant_and_nodes: tuple[str, int]
) -> None:
    name, nodes = tenant_and_nodes
    answer = fleet().ask(replace(firm, tenant=TenantName(name), jobs=(gang(nodes),)))
    assert isinstance(answer, AnswerRefused)
    refusal = answer.refusals[SiteName("")]
    assert (refusal.kind, refusal.reasons[0].code) == (RefusalKind.REJECT, ReasonCode.NOT_LENT)


@FIRM
def test_a_plan_that_takes_more_than_the_quota_is_not_taken(firm: Draft) -> None:
    f = fleet()
    whole = replace(gang(1, 2), nodes=3, exclusive=True)  # asks for 6 GPUs, takes 24
    id_ = f.submit(replace(firm, jobs=(whole,)))
    f.run_for(5.0)
    assert f.state(id_) is WAITS
    refusal = f.refusals(id_)[SiteName("")]
    assert (refusal.kind, refusal.reasons[0].code) == (RefusalKind.REJECT, ReasonCode.NOT_LENT)


@FIRM
def test_a_question_whether_it_would_start_is_answered_likewise(firm: Draft) -> None:
    f = fleet()
    for _ in range(2):
        f.submit(firm)
    f.run_for(5.0)
    answer = f.ask(firm, test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner is None
    refusal = answer.answers[SiteName("")].refusal
    assert refusal is not None
    assert refusal.reasons[0].code is ReasonCode.NOT_LENT


@FIRM
@pytest.mark.parametrize(
    "f",
    [
        fleet(replace(EVICTING, preempt_gpus=0.0)),
        fleet(tenants=(Tenant(name=TenantName("vision")),)),
        fleet(policy=Fifo()),
    ],
    ids=["nobody is evicted", "nobody has a quota", "the policy knows no quota"],
)
def test_where_no_quota_is_given_back_by_evictions_all_may_borrow(f: Loopback, firm: Draft) -> None:
    ids = [f.submit(replace(firm, jobs=(gang(1, 1),))) for _ in range(3)]
    f.run_for(5.0)
    assert {f.state(id_) for id_ in ids} == {RUNS}
