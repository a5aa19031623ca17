"""Optional array tasks, and optional jobs of a workload, go first: in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.errors import InvalidRequest
from federator.model.draft import Draft
from federator.model.event import Awarded, Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.plan import Bid, Shrink
from federator.model.reason import ReasonCode
from federator.model.score import Score
from federator.model.site import SiteJobState
from federator.model.site_message import ShrinkOrder
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.auction import Award
from federator.sched.passes.eviction import (
    EvictionLimits,
    against,
    budget_gpus,
    prices_of,
    victim_terms,
)
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, plan_on, rack, workload
from tests.fakes.loopback import Loopback, sent

RULES = Rules(preempt_gpus=64, preempt_window_s=300.0, grace_s=60.0, cooldown_s=600.0)
RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
OWNER = Tenant(name=TenantName("owner"), priority=2, quota=Allowance(gpus=40))
LIMITED = Tenant(name=TenantName("guest"), limit=Allowance(gpus=16))


def fleet(rules: Rules = RULES, nodes: int = 2, guest: Tenant | None = None) -> Loopback:
    """One site of 8-GPU nodes; ``owner`` has a quota of 40 GPUs, ``guest`` none."""
    tenants = (OWNER, guest or Tenant(name=TenantName("guest")))
    return Loopback({"alpine": rack("a", nodes)}, rules, None, Mast(), tenants)


def of_owner(gpus: int = 8, nodes: int = 1) -> Draft:
    return replace(draft(gang(nodes, gpus)), tenant=TenantName("owner"))


def shrinkable(*optional: int, jobs: int = 2) -> Draft:
    """A guest of jobs of 8 GPUs each, of which those of these numbers are optional."""
    gangs = tuple(gang(1, 8, f"job{k}") for k in range(jobs))
    return replace(draft(*gangs), tenant=TenantName("guest"), optional=optional)


def array_of_guests(indices: tuple[int, ...], *optional: int) -> Draft:
    tasks = draft(gang(1, 8), array_indices=indices)
    return replace(tasks, tenant=TenantName("guest"), optional=optional)


def happenings(f: Loopback, id_: WorkloadId) -> list[WorkloadEvent]:
    return [e.happening for e in f.log if isinstance(e, Changed) and e.workload == id_]


def shrunk(f: Loopback) -> tuple[WorkloadId, WorkloadId]:
    """A guest that has lost its second job, and the one who has its nodes."""
    guest = f.submit(shrinkable(1))
    f.run_for(5.0)
    owner = f.submit(of_owner())
    f.run_for(5.0)
    assert (f.state(guest), f.state(owner)) == (RUNS, RUNS)
    assert f.entry(guest).taken_jobs == {1}
    return guest, owner


# ---- arrays ----


def test_optional_tasks_of_an_array_go_before_others_that_have_run_as_long_or_longer() -> None:
    f = fleet()
    first = f.submit(array_of_guests((0, 1), 1))
    f.run_for(5.0)
    owner = f.submit(of_owner())
    f.run_for(5.0)
    assert [f.state(WorkloadId(first + k)) for k in (0, 1)] == [RUNS, WAITS]
    assert f.state(owner) is RUNS


def test_an_optional_task_is_spared_where_somebody_of_lower_priority_runs() -> None:
    mild = Tenant(name=TenantName("mild"), priority=4, quota=Allowance(gpus=8))
    tenants = (OWNER, mild, Tenant(name=TenantName("guest")))
    f = Loopback({"alpine": rack("a", 2)}, RULES, None, Mast(), tenants)
    task = f.submit(
        replace(draft(gang(1, 8), array_indices=(3,)), tenant=TenantName("mild"), optional=(3,))
    )
    f.run_for(5.0)
    guest = f.submit(replace(draft(gang(1, 8)), tenant=TenantName("guest")))
    f.run_for(5.0)
    f.submit(of_owner())
    f.run_for(5.0)
    assert (f.state(task), f.state(guest)) == (RUNS, WAITS)


def test_an_optional_task_starts_again_when_there_is_room() -> None:
    f = fleet(nodes=1)
    task = f.submit(array_of_guests((0,), 0))
    f.run_for(5.0)
    owner = f.submit(of_owner())
    f.run_for(5.0)
    f.slurm("alpine").end(f.entry(owner).attempt_id)
    f.run_for(20.0)
    assert (f.state(task), f.entry(task).attempt) == (RUNS, 2)


# ---- optional jobs ----


def test_an_optional_job_is_taken_alone_and_the_rest_runs_on() -> None:
    f = fleet()
    guest, owner = shrunk(f)
    entry = f.entry(guest)
    assert (entry.attempt, entry.preemptions) == (1, 0)
    assert [len(plan.nodes) for plan in entry.plan] == [1, 0]
    assert entry.reason is not None
    assert (entry.reason.code, entry.reason.detail) == (ReasonCode.SHRUNK, str(owner))
    assert happenings(f, guest)[-2:] == [WorkloadEvent.SHRUNK, WorkloadEvent.SHRINK_DONE]
    award = next(e for e in f.log if isinstance(e, Awarded) and e.attempt.workload == owner)
    assert (award.victims, award.shrinks) == ((), (Shrink(guest, 1),))


def test_optional_jobs_go_before_whole_workloads_of_their_priority() -> None:
    f = fleet(nodes=3)
    whole = f.submit(replace(draft(gang(1, 8)), tenant=TenantName("guest")))
    f.run_for(5.0)
    guest, _ = shrunk(f)
    assert (f.state(whole), f.state(guest)) == (RUNS, RUNS)


def test_without_leave_nothing_is_taken_from_a_workload() -> None:
    f = fleet()
    guest = f.submit(shrinkable())
    f.run_for(5.0)
    owner = f.submit(of_owner())
    f.run_for(5.0)
    assert (f.state(guest), f.state(owner)) == (WAITS, RUNS)


def test_who_is_evicted_as_a_whole_loses_no_job_besides() -> None:
    f = fleet()
    guest = f.submit(shrinkable(1))
    f.run_for(5.0)
    owner = f.submit(of_owner(nodes=2))
    f.run_for(5.0)
    assert (f.state(guest), f.state(owner)) == (WAITS, RUNS)
    award = next(e for e in f.log if isinstance(e, Awarded) and e.attempt.workload == owner)
    assert (award.victims, award.shrinks) == ((guest,), ())


def test_what_was_taken_is_no_use_of_its_tenant_any_more() -> None:
    f = fleet(nodes=3, guest=LIMITED)
    guest = f.submit(shrinkable(1))
    f.run_for(5.0)
    f.submit(of_owner(nodes=2))
    f.run_for(5.0)
    ledger = f.federation.ledger
    row = ledger.tenancy.row(TenantName("guest"))
    assert (f.entry(guest).held_gpus, ledger.holdings.own(row)[0]) == (8, 8)
    f.slurm("alpine").end(f.entry(guest).attempt_id)
    f.run_for(20.0)
    assert f.state(guest) is WorkloadState.COMPLETED
    assert ledger.holdings.own(row)[0] == 0


def test_a_cancelled_optional_job_does_not_cancel_its_workload() -> None:
    f = fleet()
    guest, _ = shrunk(f)
    f.slurm("alpine").end(f.entry(guest).attempt_id, SiteJobState.FAILED, 3)
    f.run_for(20.0)
    assert (f.state(guest), f.entry(guest).exit_code) == (WorkloadState.FAILED, 3)


def test_a_shrunk_workload_that_a_user_cancels_is_cancelled() -> None:
    f = fleet()
    guest, _ = shrunk(f)
    f.cancel(guest)
    f.run_for(20.0)
    assert f.state(guest) is WorkloadState.CANCELLED


def test_evicted_after_that_it_starts_again_with_all_its_jobs() -> None:
    f = fleet()
    guest, owner = shrunk(f)
    second = f.submit(of_owner())
    f.run_for(5.0)
    assert (f.state(guest), f.state(second)) == (WAITS, RUNS)
    assert f.entry(guest).taken_jobs == frozenset()
    for id_ in (owner, second):
        f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_for(30.0)
    assert (f.state(guest), f.entry(guest).held_gpus) == (RUNS, 16)


def test_the_winners_lease_counts_from_when_the_taken_jobs_are_gone() -> None:
    f = fleet(replace(RULES, launch_lease_s=20.0, grace_s=1.0))
    f.save_s = f.kill_wait_s = 100.0
    guest = f.submit(shrinkable(1))
    f.run_for(5.0)
    owner = f.submit(of_owner())
    f.run_for(90.0)
    assert (f.state(guest), f.state(owner)) == (RUNS, WorkloadState.LAUNCHING)
    f.run_for(20.0)
    assert (f.state(owner), f.entry(owner).attempt) == (RUNS, 1)


def test_a_winner_that_its_site_declines_has_taken_nothing() -> None:
    f = fleet()
    f.refuse_launches("alpine", refuses=False)
    guest = f.submit(shrinkable(1))
    f.run_for(5.0)
    f.refuse_launches("alpine")
    owner = f.submit(of_owner())
    f.run_for(5.0)
    assert f.state(owner) is WAITS
    assert not sent(f.commands, ShrinkOrder)
    assert (f.entry(guest).held_gpus, f.entry(guest).promised_jobs) == (16, {})


def test_a_restart_of_the_daemon_finishes_what_was_begun() -> None:
    f = fleet()
    f.save_s = f.kill_wait_s = 30.0
    guest = f.submit(shrinkable(1))
    f.run_for(5.0)
    owner = f.submit(of_owner())
    f.run_until(lambda: bool(f.entry(guest).leaving_jobs))
    f.restart()
    f.run_for(60.0)
    assert (f.state(guest), f.state(owner), f.entry(guest).leaving_jobs) == (RUNS, RUNS, {})


def test_the_order_is_repeated_until_the_site_says_that_they_are_gone() -> None:
    f = fleet()
    f.save_s = f.kill_wait_s = 35.0
    f.submit(shrinkable(1))
    f.run_for(5.0)
    f.submit(of_owner())
    f.run_for(120.0)
    orders = sent(f.commands, ShrinkOrder)
    assert 3 <= len(orders) <= 5
    assert len(set(orders)) == 1


def test_the_log_alone_tells_what_was_taken() -> None:
    f = fleet()
    guest, _ = shrunk(f)
    entry = f.replayed().entries[guest]
    entry.refusals = f.refusals(guest)
    assert entry == f.entry(guest)


def test_what_is_taken_counts_in_the_budget_and_in_the_tax() -> None:
    f = fleet()
    guest, _ = shrunk(f)
    ledger = f.federation.ledger
    assert budget_gpus(ledger, RULES, 16, f.clock.now_s) == 64 - 8
    assert f.entry(guest).lost_gpu_s > 0
    assert ledger.tax.by_preemptor == {TenantName("owner"): f.entry(guest).lost_gpu_s}


def test_no_more_is_taken_than_the_budget_allows() -> None:
    f = fleet(replace(RULES, preempt_gpus=8), nodes=3)
    guest = f.submit(shrinkable(1, 2, jobs=3))
    f.run_for(5.0)
    owners = [f.submit(of_owner()) for _ in range(2)]
    f.run_for(20.0)
    assert f.entry(guest).held_gpus == 16
    assert sorted(f.state(id_).value for id_ in owners) == ["PENDING", "RUNNING"]


def test_two_in_one_pass_take_a_job_each() -> None:
    f = fleet(nodes=3)
    guest = f.submit(shrinkable(1, 2, jobs=3))
    f.run_for(5.0)
    owners = [f.submit(of_owner()) for _ in range(2)]
    f.run_for(20.0)
    assert [f.state(id_) for id_ in (guest, *owners)] == [RUNS] * 3
    assert f.entry(guest).taken_jobs == {1, 2}


# ---- what a site may not say ----


@pytest.mark.parametrize(
    ("victims", "taken", "wrong"),
    [
        ((), ((0, 1),), None),
        ((), ((0, 0),), "is not optional"),
        ((), ((0, 2),), "is not optional"),
        ((), ((0, -1),), "is not optional"),
        ((), ((0, 1), (0, 1)), "named twice"),
        ((0,), ((0, 1),), "as a whole and in part"),
        ((), ((7, 1),), "may not be evicted"),
    ],
)
def test_only_what_was_declared_optional_may_be_taken(
    victims: tuple[int, ...], taken: tuple[tuple[int, int], ...], wrong: str | None
) -> None:
    f = fleet(nodes=3)
    guest = f.submit(shrinkable(1, jobs=3))
    f.run_for(5.0)
    ledger = f.federation.ledger
    nodes = [name for plan in f.entry(guest).plan for name in plan.nodes]
    bid = Bid(
        score=Score(),
        jobs=plan_on(*nodes),
        victims=tuple(guest + k for k in victims),
        shrinks=tuple(Shrink(guest + k, number) for k, number in taken),
    )
    limits = EvictionLimits(
        priority=2,
        budget_gpus=64,
        prices=prices_of(ledger, RULES, 0, f.clock.now_s),
        terms=victim_terms(ledger, RULES, f.clock.now_s),
        now_s=f.clock.now_s,
    )
    offer = Award(id=WorkloadId(guest + 99), site=SiteName("alpine"), bid=bid)
    refusal = against(offer, ledger, limits)
    if wrong is None:
        assert refusal is None
        return
    assert refusal is not None
    assert refusal.reasons[0].code is ReasonCode.BAD_BID
    assert wrong in refusal.reasons[0].detail


def test_the_first_job_of_a_workload_is_never_optional() -> None:
    with pytest.raises(InvalidRequest, match="all but the first"):
        replace(workload(0, gang(1), gang(1)), optional_jobs=(0,))
