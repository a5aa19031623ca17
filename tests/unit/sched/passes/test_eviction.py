"""Who is evicted for whom, when, and how much of it: the whole federation in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from federator.model.draft import Draft
from federator.model.event import Awarded, Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import LaunchAt, PreemptAt
from federator.model.reason import ReasonCode
from federator.model.site import START_UP_S, Leave, SiteJobState, VictimTerms
from federator.model.site_message import Ask
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.eviction import victim_terms
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import family_of
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback, sent

RULES = Rules(preempt_gpus=64, preempt_window_s=300.0, grace_s=60.0, cooldown_s=600.0)
RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
OWNER = Tenant(name=TenantName("owner"), priority=2, quota=Allowance(gpus=24))
GUEST = Tenant(name=TenantName("guest"))


def fleet(
    rules: Rules = RULES, nodes: int = 2, tenants: Sequence[Tenant] = (OWNER, GUEST)
) -> Loopback:
    """One site of 8-GPU nodes; ``owner`` has a quota of 24 GPUs, ``guest`` none."""
    return Loopback({"alpine": rack("a", nodes)}, rules, None, Mast(), tenants)


def of(tenant: str, nodes: int = 1, gpus: int = 8, **more: object) -> Draft:
    wanted = draft(gang(nodes, gpus))
    return replace(wanted, tenant=TenantName(tenant), **more)  # type: ignore[arg-type]


def filled_by_guests(f: Loopback, number: int = 2) -> list[WorkloadId]:
    ids = []
    for _ in range(number):
        ids.append(f.submit(of("guest")))
        f.run_for(5.0)
    assert [f.state(id_) for id_ in ids] == [RUNS] * number
    return ids


def happenings(f: Loopback, id_: WorkloadId) -> list[WorkloadEvent]:
    return [e.happening for e in f.log if isinstance(e, Changed) and e.workload == id_]


# ---- the course of an eviction ----


def test_who_is_within_quota_displaces_who_is_not() -> None:
    f = fleet()
    guests = filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_for(5.0)
    assert f.state(owner) is RUNS
    assert [f.state(id_) for id_ in guests] == [WAITS, RUNS]  # the longest running goes


def test_victims_leave_only_after_the_site_has_accepted() -> None:
    f = fleet()
    filled_by_guests(f)
    f.refuse_launches("alpine")
    owner = f.submit(of("owner"))
    f.run_for(5.0)
    assert f.state(owner) is WAITS
    assert not [c for c in f.commands if isinstance(c, PreemptAt)]


def test_a_victim_comes_back_to_the_queue_with_its_reason_and_goes_on_when_there_is_room() -> None:
    f = fleet()
    victim, _ = filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_for(5.0)
    entry = f.entry(victim)
    assert (entry.preemptions, entry.attempt) == (1, 1)
    assert entry.reason is not None
    assert (entry.reason.code, entry.reason.detail) == (ReasonCode.PREEMPTED, str(owner))
    f.slurm("alpine").end(f.entry(owner).attempt_id)
    f.run_for(20.0)
    assert (f.state(victim), f.entry(victim).attempt) == (RUNS, 2)


def test_no_site_is_avoided_for_having_evicted() -> None:
    f = fleet()
    victim, _ = filled_by_guests(f)
    f.submit(of("owner"))
    f.run_for(5.0)
    assert f.entry(victim).avoid_until_s == {}


def test_a_victim_that_saves_long_is_gone_at_its_deadline_and_the_winner_waits_for_it() -> None:
    f = fleet()
    f.save_s = 1e6
    victim, _ = filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_for(50.0)
    assert (f.state(victim), f.state(owner)) == (WorkloadState.PREEMPTING, WorkloadState.LAUNCHING)
    f.run_for(15.0)
    assert (f.state(victim), f.state(owner)) == (WAITS, RUNS)


@pytest.mark.parametrize(
    ("state", "exit_code", "then"),
    [
        (SiteJobState.FAILED, 1, WAITS),  # as launchers make of any status
        (SiteJobState.FAILED, 139, WorkloadState.FAILED),  # a crash
        (SiteJobState.COMPLETED, 0, WAITS),  # it may just have saved
        (SiteJobState.FAILED, 85, WAITS),
    ],
)
def test_one_that_exits_while_it_leaves_has_failed_or_comes_back(
    state: SiteJobState, exit_code: int, then: WorkloadState
) -> None:
    f = fleet()
    f.save_s = 30.0
    victim, _ = filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_for(5.0)
    f.slurm("alpine").end(f.entry(victim).attempt_id, state, exit_code)
    f.run_for(15.0)
    assert (f.state(victim), f.state(owner)) == (then, RUNS)


def test_a_restart_of_the_daemon_finishes_an_eviction() -> None:
    f = fleet()
    f.save_s = 30.0
    victim, _ = filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_until(lambda: f.state(victim) is WorkloadState.PREEMPTING)
    f.restart()
    f.run_for(60.0)
    assert (f.state(victim), f.state(owner)) == (WAITS, RUNS)


def test_the_log_alone_tells_who_was_evicted_for_whom() -> None:
    f = fleet()
    victim, _ = filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_for(5.0)
    award = next(e for e in f.log if isinstance(e, Awarded) and e.attempt.workload == owner)
    assert award.victims == (victim,)
    entry = f.replayed().entries[victim]
    assert (entry.state, entry.preemptions, entry.promised_to) == (WAITS, 1, None)
    assert happenings(f, victim)[-2:] == [WorkloadEvent.EVICTED, WorkloadEvent.PREEMPTED]


def test_a_cancelled_winner_spares_whom_it_had_not_evicted() -> None:
    f = fleet()
    guests = filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_until(lambda: f.state(owner) is WorkloadState.AWARDED)
    f.cancel(owner)
    f.run_for(30.0)
    assert [f.state(id_) for id_ in guests] == [RUNS, RUNS]
    assert [f.entry(id_).promised_to for id_ in guests] == [None, None]


def test_a_victim_can_be_cancelled_while_it_saves() -> None:
    f = fleet()
    f.save_s = 30.0
    victim, _ = filled_by_guests(f)
    f.submit(of("owner"))
    f.run_until(lambda: f.state(victim) is WorkloadState.PREEMPTING)
    f.cancel(victim)
    f.run_for(30.0)
    assert f.state(victim) is WorkloadState.CANCELLED


# ---- whom, and how many ----


def test_nobody_is_evicted_without_a_budget() -> None:
    f = fleet(replace(RULES, preempt_gpus=0))
    filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_for(30.0)
    assert f.state(owner) is WAITS


def test_who_is_over_quota_evicts_nobody() -> None:
    f = fleet()
    filled_by_guests(f)
    large = f.submit(of("guest"))
    f.run_for(30.0)
    assert f.state(large) is WAITS


def test_one_within_quota_is_not_evicted_for_its_equal() -> None:
    f = fleet(nodes=2)
    owners = [f.submit(of("owner")), f.submit(of("owner"))]
    f.run_for(5.0)
    more = f.submit(of("owner"))
    f.run_for(30.0)
    assert [f.state(id_) for id_ in owners] == [RUNS, RUNS]
    assert f.state(more) is WAITS


@pytest.mark.parametrize("firm", [{"requeue": False}, {"no_preempt": True}])
def test_a_workload_that_may_not_be_evicted_never_is(firm: dict[str, bool]) -> None:
    humble = Tenant(name=TenantName("humble"), priority=6, quota=Allowance(gpus=16))
    f = fleet(tenants=(OWNER, humble))
    keeps = [f.submit(of("humble", **firm)) for _ in range(2)]
    f.run_for(5.0)
    owner = f.submit(of("owner"))
    f.run_for(30.0)
    assert [f.state(id_) for id_ in keeps] == [RUNS, RUNS]
    assert f.state(owner) is WAITS


def test_the_budget_of_the_window_bounds_what_goes_and_is_renewed() -> None:
    f = fleet(replace(RULES, preempt_gpus=8))
    filled_by_guests(f)
    owners = [f.submit(of("owner")), f.submit(of("owner"))]
    f.run_for(60.0)
    assert sorted(f.state(id_).value for id_ in owners) == ["PENDING", "RUNNING"]
    f.run_for(400.0)
    assert [f.state(id_) for id_ in owners] == [RUNS, RUNS]


def test_two_in_one_pass_share_the_budget_and_never_a_victim() -> None:
    f = fleet(replace(RULES, preempt_gpus=16), nodes=2)
    guests = filled_by_guests(f)
    owners = [f.submit(of("owner")), f.submit(of("owner"))]
    f.run_for(10.0)
    assert [f.state(id_) for id_ in owners] == [RUNS, RUNS]
    awards = [e for e in f.log if isinstance(e, Awarded) and e.victims]
    assert sorted(v for award in awards for v in award.victims) == guests


def test_a_storm_of_submissions_stays_within_the_budget() -> None:
    f = fleet(replace(RULES, preempt_gpus=24), nodes=8)
    filled_by_guests(f, 8)
    for _ in range(50):
        f.submit(of("owner", gpus=2))
    f.run_for(250.0)
    evicted = [e for e in f.log if isinstance(e, Changed) and e.happening is WorkloadEvent.EVICTED]
    assert 1 <= len(evicted) <= 3


def test_within_its_cooldown_a_victim_is_left_in_peace() -> None:
    f = fleet(nodes=1)
    (victim,) = filled_by_guests(f, 1)
    first = f.submit(of("owner"))
    f.run_for(5.0)
    f.slurm("alpine").end(f.entry(first).attempt_id)
    f.run_for(20.0)
    assert f.state(victim) is RUNS
    second = f.submit(of("owner"))
    f.run_for(60.0)
    assert (f.state(victim), f.state(second)) == (RUNS, WAITS)
    f.run_for(900.0)
    assert f.state(second) is RUNS


def test_nobody_goes_who_has_just_begun() -> None:
    f = fleet(replace(RULES, min_run_s=400.0))
    filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_for(60.0)
    assert f.state(owner) is WAITS
    f.run_for(700.0)
    assert f.state(owner) is RUNS


def test_a_site_that_names_victims_it_may_not_have_is_not_believed() -> None:
    f = fleet()
    owner = f.submit(of("owner"))
    f.run_for(5.0)
    other = f.submit(of("owner"))
    f.run_for(5.0)
    agent = f.sites[SiteName("alpine")].agent
    assert agent is not None
    agent.believes_all_are_lowest()
    f.run_for(15.0)
    greedy = f.submit(of("owner", gpus=1))
    f.run_for(30.0)
    assert [f.state(id_) for id_ in (owner, other, greedy)] == [RUNS, RUNS, WAITS]
    (refusal,) = [r for r in f.refusals(greedy).values() if r.reasons[0].detail]
    assert refusal.reasons[0].code is ReasonCode.BAD_BID


def test_each_question_says_on_which_terms_who_runs_there_may_be_evicted() -> None:
    f = fleet()
    victim, _ = filled_by_guests(f)
    owner = f.submit(of("owner"))
    f.run_for(5.0)
    asked = [ask for _, ask in sent(f.commands, Ask) if victim in ask.victims]
    assert asked[-1].victims[victim] == VictimTerms(priority=7)
    orders = {c.workload.id: c for c in f.commands if isinstance(c, LaunchAt)}
    assert (orders[owner].victims, orders[victim].victims) == ((victim,), ())
    f.slurm("alpine").end(f.entry(owner).attempt_id, SiteJobState.COMPLETED)
    f.run_for(20.0)
    assert f.state(victim) is RUNS
    terms = victim_terms(f.federation.ledger, RULES, f.clock.now_s)[victim]
    assert terms.spared_until_s == f.entry(victim).evicted_at_s + 600.0


def test_the_terms_tell_how_long_a_victims_family_takes_to_save_and_to_restart() -> None:
    f = fleet()
    victim, _ = filled_by_guests(f)
    ledger = f.federation.ledger
    family = family_of(f.entry(victim).workload)
    ledger.saves.learn(family, Leave(told_at_s=100.0, saved_at_s=130.0), 0.0)
    terms = victim_terms(ledger, RULES, f.clock.now_s)[victim]
    assert (terms.save_s, terms.restart_s) == (30.0, START_UP_S + 30.0)
    for _ in range(3):  # cut off at the end of its grace: nobody knows how long it takes
        ledger.saves.learn(family, Leave(told_at_s=100.0, saved_at_s=90.0, forced=True), 0.0)
    terms = victim_terms(ledger, RULES, f.clock.now_s)[victim]
    assert (terms.save_s, terms.restart_s, terms.saves_in_time) == (0.0, START_UP_S, False)


# ---- what may come between ----


def test_what_is_over_quota_by_what_its_plan_takes_displaces_nobody() -> None:
    small = Tenant(name=TenantName("owner"), priority=2, quota=Allowance(gpus=4))
    f = Loopback({"alpine": rack("a", 1)}, RULES, None, Mast(), (small,))
    (guest,) = filled_by_guests(f, 1)
    whole = replace(gang(1, 4), exclusive=True)  # 4 GPUs asked for, 8 taken
    owner = f.submit(replace(draft(whole), tenant=TenantName("owner")))
    f.run_for(30.0)
    assert (f.state(guest), f.state(owner)) == (RUNS, WAITS)


def test_a_victim_whose_site_is_cut_off_has_its_whole_grace_afterwards_and_the_winner_waits() -> (
    None
):
    f = fleet(nodes=1)
    f.save_s = 30.0
    (victim,) = filled_by_guests(f, 1)
    owner = f.submit(of("owner"))
    f.run_until(lambda: f.state(victim) is WorkloadState.PREEMPTING)
    f.site_down("alpine")  # before the order has come
    f.run_for(1000.0)
    f.site_up("alpine")
    f.run_for(20.0)
    assert (f.state(victim), f.state(owner)) == (WorkloadState.PREEMPTING, WorkloadState.LAUNCHING)
    f.run_for(30.0)
    assert (f.state(victim), f.state(owner)) == (WAITS, RUNS)
    assert f.entry(owner).attempt == 1


def test_nobody_leaves_for_a_winner_that_is_over_when_it_is_heard_of() -> None:
    f = fleet(nodes=1)
    (victim,) = filled_by_guests(f, 1)
    owner = f.submit(of("owner"))
    f.run_until(lambda: bool(f.live_jobs(owner)))
    assert f.state(owner) is WorkloadState.AWARDED
    f.site_down("alpine")  # the confirmation is lost
    f.slurm("alpine").cancel(f.live_jobs(owner)[0][1].job_id, pending_only=False)
    f.run_for(5.0)
    f.site_up("alpine")
    f.run_for(20.0)
    assert (f.state(victim), f.state(owner)) == (RUNS, WorkloadState.CANCELLED)


def test_a_victim_that_its_site_has_forgotten_comes_back() -> None:
    f = fleet(nodes=1)
    f.save_s = 5.0
    (victim,) = filled_by_guests(f, 1)
    f.submit(of("owner"))
    f.run_until(lambda: f.state(victim) is WorkloadState.PREEMPTING)
    f.run_for(1.0)
    attempt = f.entry(victim).attempt_id
    f.site_down("alpine")
    f.run_for(30.0)
    f.slurm("alpine").forget(attempt)
    f.site_up("alpine")
    f.run_for(20.0)
    assert f.state(victim) is WAITS


def test_what_was_borrowed_and_is_the_tenants_own_by_now_is_left_in_peace() -> None:
    tenants = (
        replace(OWNER, quota=Allowance(gpus=8)),
        replace(OWNER, name=TenantName("rival"), priority=1),
    )
    f = Loopback({"alpine": rack("a", 2)}, RULES, None, Mast(), tenants)
    own = f.submit(of("owner"))
    f.run_for(5.0)
    borrowed = f.submit(of("owner"))
    f.run_for(5.0)
    assert f.entry(borrowed).award.priority == 7  # type: ignore[union-attr]
    f.slurm("alpine").end(f.entry(own).attempt_id)
    f.run_for(20.0)
    f.submit(of("guest"))  # the other node is full again
    f.run_for(5.0)
    again = f.submit(of("owner"))  # over quota: what was borrowed is within it now
    f.run_for(30.0)
    assert [f.state(id_) for id_ in (borrowed, again)] == [RUNS, WAITS]


def test_what_is_left_of_a_lease_counts_from_when_the_last_victim_has_left() -> None:
    f = fleet(replace(RULES, launch_lease_s=20.0), nodes=1)
    f.save_s = 55.0
    (victim,) = filled_by_guests(f, 1)
    owner = f.submit(of("owner"))
    f.slurm("alpine").starts_jobs = False
    f.shared_nodes = True
    f.run_until(lambda: f.state(victim) is WAITS)
    left_s = f.clock.now_s
    f.run_until(lambda: f.state(owner) is WAITS, limit_s=200.0)
    assert 20.0 <= f.clock.now_s - left_s < 100.0
