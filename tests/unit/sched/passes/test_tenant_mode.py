"""Nothing of a tenant in mode shadow or advisory is started, at whatever site."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerTested
from federator.model.reason import ReasonCode
from federator.model.site_mode import SiteMode
from federator.model.tenant import Tenant
from federator.model.workload import SiteName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback

ALPINE = SiteName("alpine")
WATCHED = (SiteMode.SHADOW, SiteMode.ADVISORY)


def in_mode(mode: SiteMode, *others: Tenant) -> tuple[Tenant, ...]:
    return (*others, replace(tenant("bio", 16), mode=mode), tenant("nlp", 16))


def fleet(mode: SiteMode) -> Loopback:
    return Loopback({"alpine": rack("a", 2)}, tenants=in_mode(mode))


def submit(f: Loopback, whose: str) -> WorkloadId:
    return f.submit(draft(gang(1, 8), tenant=whose))


def codes(f: Loopback, id_: WorkloadId) -> dict[SiteName, ReasonCode]:
    said = f.federation.refusals_of(f.federation.ledger.entries[id_])
    return {site: refusal.reasons[0].code for site, refusal in said.items()}


@pytest.mark.parametrize("mode", WATCHED)
def test_its_work_waits_with_the_reason_beside_that_of_others(mode: SiteMode) -> None:
    f = fleet(mode)
    watched, other = submit(f, "bio"), submit(f, "nlp")
    f.run_for(600.0)
    assert (f.state(watched), f.state(other)) == (WorkloadState.PENDING, WorkloadState.RUNNING)
    assert codes(f, watched) == {SiteName(""): ReasonCode.TENANT_MODE}
    reason = f.federation.refusals_of(f.entry(watched))[SiteName("")].reasons[0]
    assert reason.detail == "bio"


@pytest.mark.parametrize("mode", [SiteMode.OPT_IN, SiteMode.ENFORCED])
def test_in_the_modes_above_it_starts(mode: SiteMode) -> None:
    f = fleet(mode)
    id_ = submit(f, "bio")
    f.run_for(5.0)
    assert f.state(id_) is WorkloadState.RUNNING


def test_the_lowest_mode_above_a_tenant_holds_for_it() -> None:
    lab = replace(tenant("lab"), mode=SiteMode.SHADOW)
    f = Loopback({"alpine": rack("a", 2)}, tenants=(lab, tenant("bio", 16, parent="lab")))
    id_ = submit(f, "bio")
    f.run_for(60.0)
    assert codes(f, id_) == {SiteName(""): ReasonCode.TENANT_MODE}


def test_a_step_down_lets_go_on_what_runs_and_a_step_up_starts_what_waits() -> None:
    f = fleet(SiteMode.ENFORCED)
    runs = submit(f, "bio")
    f.run_for(5.0)
    f.reload(tenants=in_mode(SiteMode.SHADOW))
    waits = submit(f, "bio")
    f.run_for(60.0)
    assert (f.state(runs), f.state(waits)) == (WorkloadState.RUNNING, WorkloadState.PENDING)
    f.restart()
    f.run_for(60.0)
    assert (f.state(runs), f.state(waits)) == (WorkloadState.RUNNING, WorkloadState.PENDING)
    f.reload(tenants=in_mode(SiteMode.OPT_IN))
    f.run_for(60.0)
    assert f.state(waits) is WorkloadState.RUNNING


@pytest.mark.parametrize("mode", WATCHED)
def test_a_question_is_answered_by_where_sbatch_would_start_it(mode: SiteMode) -> None:
    answer = fleet(mode).ask(draft(gang(1, 8), tenant="bio"), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert (answer.winner, answer.advised) == (None, (ALPINE,))
    refusal = answer.answers[SiteName("")].refusal
    assert refusal is not None
    assert refusal.reasons[0].code is ReasonCode.TENANT_MODE


def test_a_step_down_gives_up_the_nodes_that_were_to_come_free_for_a_tenant() -> None:
    rules = Rules(preempt_gpus=16, preempt_window_s=300.0, grace_s=60.0, cooldown_s=600.0)
    guest, owner = tenant("guest", priority=7), tenant("owner", 64)
    f = Loopback({"alpine": rack("a", 8)}, rules, None, Mast(), (guest, owner))
    for _ in range(8):
        submit(f, "guest")
    f.run_for(10.0)
    f.submit(draft(gang(6, 8), tenant="owner"))
    f.run_for(20.0)
    assert len(f.federation.claims()) == 1
    f.reload(tenants=(guest, replace(owner, mode=SiteMode.SHADOW)))
    f.run_for(20.0)
    assert f.federation.claims() == []
    evicted = f.federation.ledger.evictions.within
    f.run_for(600.0)
    assert f.federation.ledger.evictions.within == evicted
