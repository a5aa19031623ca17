"""Evictions while sites are cut off, limits are near or numbers are odd: in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.draft import Draft
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import PreemptAt, SiteSent, Tick
from federator.model.reason import ReasonCode
from federator.model.site import AttemptReport, Capacity, Leave, NodeShare, SiteJobState
from federator.model.site_message import Report
from federator.model.tenant import Allowance
from federator.model.workload import Job, SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.eviction import budget_gpus, victim_terms
from federator.sched.passes.site_view import MOST_GPUS
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import POLL_S, Loopback
from tests.unit.sched.passes.test_eviction import (
    GUEST,
    OWNER,
    RULES,
    RUNS,
    WAITS,
    filled_by_guests,
    fleet,
    happenings,
    of,
)

LEAVES = WorkloadState.PREEMPTING
ALPINE, BIRCH = SiteName("alpine"), SiteName("birch")


def two_sites(rules: Rules = RULES) -> Loopback:
    """Two sites of one node each."""
    return Loopback(
        {"alpine": rack("a", 1), "birch": rack("b", 1)}, rules, None, Mast(), (OWNER, GUEST)
    )


def cpu_only(cpus: int) -> Draft:
    """A guest that holds no GPU."""
    job = Job(name="train", nodes=1, gpus_per_node=0, cpus_per_node=cpus)
    return replace(draft(job), tenant=TenantName("guest"))


def ticks_of_the_last(f: Loopback, seconds: float) -> int:
    since_s = f.clock.now_s - seconds
    return sum(isinstance(seen, Tick) and at_s > since_s for seen, at_s in f.history)


def evicted(f: Loopback) -> list[tuple[float, int]]:
    return [(e.at_s, e.gpus) for e in f.federation.ledger.evictions.within]


# ---- a site that is cut off ----


def test_the_federation_is_not_woken_more_and_more_while_a_site_in_mid_eviction_is_away() -> None:
    """Whatever wakes it meanwhile must not set off a row of wakings of its own."""
    f = two_sites()
    f.save_s = 30.0
    guests = filled_by_guests(f, 2)
    owner = f.submit(of("owner"))
    f.run_until(lambda: any(f.state(id_) is LEAVES for id_ in guests))
    f.site_down(f.entry(owner).site)
    for _ in range(300):
        f.observe(Tick())
        f.run_for(1.0313)
    assert f.state(owner) is WorkloadState.LAUNCHING
    assert ticks_of_the_last(f, 60.0) <= 60.0 + 60.0 / POLL_S


def test_promises_older_than_the_window_are_held_against_the_budget_once_more() -> None:
    """Others may have had the budget while the winner's site was cut off."""
    f = two_sites(replace(RULES, preempt_gpus=8, preempt_window_s=100.0))
    f.save_s = 30.0
    filled_by_guests(f, 2)
    first = f.submit(of("owner"))
    f.run_until(lambda: f.state(first) is WorkloadState.AWARDED)
    away = f.entry(first).site
    f.site_down(away)
    f.run_for(300.0)
    second = f.submit(of("owner"))
    f.run_until(lambda: f.state(second) is WorkloadState.AWARDED)
    f.site_up(away)
    f.run_for(5.0)
    assert [gpus for _, gpus in evicted(f)] == [8]
    f.run_for(600.0)  # its turn comes when the window has moved on
    assert [f.state(id_) for id_ in (first, second)] == [RUNS, RUNS]
    (earlier_s, _), (later_s, _) = evicted(f)
    assert later_s - earlier_s >= 100.0


def test_promises_older_than_the_window_are_kept_if_nobody_had_the_budget() -> None:
    f = two_sites(replace(RULES, preempt_gpus=8, preempt_window_s=100.0))
    filled_by_guests(f, 2)
    owner = f.submit(of("owner"))
    f.run_until(lambda: f.state(owner) is WorkloadState.AWARDED)
    away = f.entry(owner).site
    f.site_down(away)
    f.run_for(300.0)
    f.site_up(away)
    f.run_for(20.0)
    assert (f.state(owner), f.entry(owner).attempt) == (RUNS, 1)


# ---- victims ----


@pytest.mark.parametrize(
    ("state", "exit_code", "signal"),
    [
        (SiteJobState.FAILED, 1, 0),
        (SiteJobState.FAILED, 0, 10),
        (SiteJobState.FAILED, 0, 11),
        (SiteJobState.OUT_OF_MEMORY, 0, 0),
    ],
)
def test_a_victim_that_has_acknowledged_comes_back_however_it_exits(
    state: SiteJobState, exit_code: int, signal: int
) -> None:
    f = fleet()
    f.save_s = 30.0
    victim, _ = filled_by_guests(f)
    f.submit(of("owner"))
    f.run_until(lambda: f.state(victim) is LEAVES)
    f.run_for(2.0)
    entry, now_s = f.entry(victim), f.clock.now_s
    report = AttemptReport(
        attempt=entry.attempt_id,
        user="ada",
        site_job_id=entry.site_job_id,
        state=state,
        exit_code=exit_code,
        signal=signal,
        started_at_s=entry.started_at_s,
        ended_at_s=now_s,
        leave=Leave(told_at_s=now_s - 1.0, saved_at_s=now_s - 0.5),
    )
    f.federation.handle(SiteSent(site=ALPINE, message=Report(attempts=(report,))), now_s)
    assert f.state(victim) is WAITS
    assert f.entry(victim).saved_at == "alpine"


def test_a_victim_that_saves_makes_up_for_fruitless_attempts_before_it() -> None:
    f = Loopback(
        {"alpine": rack("a", 1)}, replace(RULES, cooldown_s=1.0), None, Mast(), (OWNER, GUEST)
    )
    f.enforces_limits = True
    f.save_s = 1e6
    chain = f.submit(of("guest", continues=True, time_limit_s=600.0))
    f.run_until(lambda: f.entry(chain).attempt == 3 and f.state(chain) is RUNS, 2000.0)
    assert f.entry(chain).fruitless_attempts == 2
    f.run_for(20.0)
    f.save_s = 1.0
    owner = f.submit(of("owner"))
    f.run_until(lambda: f.state(owner) is RUNS)
    assert (f.state(chain), f.entry(chain).preemptions) == (WAITS, 1)
    assert f.entry(chain).fruitless_attempts == 0
    assert f.replayed().entries[chain].fruitless_attempts == 0


def test_a_victim_that_saves_nothing_does_not() -> None:
    f = Loopback(
        {"alpine": rack("a", 1)}, replace(RULES, cooldown_s=1.0), None, Mast(), (OWNER, GUEST)
    )
    f.enforces_limits = True
    f.save_s = 1e6
    chain = f.submit(of("guest", continues=True, time_limit_s=600.0))
    f.run_until(lambda: f.entry(chain).attempt == 2 and f.state(chain) is RUNS, 2000.0)
    f.run_for(20.0)
    owner = f.submit(of("owner"))
    f.run_until(lambda: f.state(owner) is RUNS)
    assert (f.state(chain), f.entry(chain).fruitless_attempts) == (WAITS, 1)


# ---- victims near their time limit ----

_LIMITED = of("guest", continues=True, time_limit_s=7200.0, signal_lead_s=3600.0)
_TOLD_AFTER_S = 7200.0 / 2  # its lead and a minute would be more than half of its limit


def test_one_that_is_promised_as_a_victim_is_told_as_that_and_not_for_its_limit() -> None:
    """Else it would have the whole lead to leave in, and the winner wait for that."""
    f = fleet(nodes=1)
    (victim,) = [f.submit(_LIMITED)]
    f.run_until(lambda: f.state(victim) is RUNS)
    due_s = f.entry(victim).started_at_s + _TOLD_AFTER_S
    f.run_for(due_s - f.clock.now_s - 0.035)
    owner = f.submit(of("owner"))
    f.run_until(lambda: f.entry(victim).promised_to == owner)
    assert f.clock.now_s < due_s
    f.run_until(lambda: f.state(victim) is not RUNS)
    assert f.clock.now_s >= due_s  # so both were due
    assert WorkloadEvent.LIMIT_NEAR not in happenings(f, victim)
    assert {c.grace_s for c in f.commands if isinstance(c, PreemptAt)} == {RULES.grace_s}
    f.run_for(60.0)
    assert (f.state(victim), f.state(owner)) == (WAITS, RUNS)


def test_one_that_is_about_to_be_told_of_its_limit_is_offered_to_nobody() -> None:
    f = fleet(nodes=1)
    id_ = f.submit(_LIMITED)
    f.run_until(lambda: f.state(id_) is RUNS)
    due_s = f.entry(id_).started_at_s + _TOLD_AFTER_S
    ledger = f.federation.ledger
    assert id_ in victim_terms(ledger, RULES, due_s - 0.1)
    assert id_ not in victim_terms(ledger, RULES, due_s)


@pytest.mark.parametrize("requeued", [True, False])
def test_one_that_its_site_has_preempted_is_spared_as_after_an_eviction(requeued: bool) -> None:
    """A guest was thrown out by its site, then by the federation, and so on."""
    f = two_sites()
    guest = f.submit(of("guest"))
    f.run_for(5.0)
    site = f.entry(guest).site
    f.slurm(site).starts_jobs = False
    if requeued:
        f.slurm(site).requeue(f.entry(guest).attempt_id, preempted=True)
    else:
        f.slurm(site).end(f.entry(guest).attempt_id, SiteJobState.PREEMPTED)
    thrown_out_s = f.clock.now_s
    f.run_until(lambda: f.state(guest) is RUNS and f.entry(guest).site != site, limit_s=60.0)
    f.site_down(site)
    owner = f.submit(of("owner"))
    f.run_for(RULES.cooldown_s - 60.0)
    assert (f.state(guest), f.state(owner)) == (RUNS, WAITS)
    f.restart()  # the log knows it
    f.run_until(lambda: f.state(owner) is RUNS, limit_s=400.0)
    assert f.clock.now_s >= thrown_out_s + RULES.cooldown_s


# ---- the budget ----


def test_each_victim_without_a_gpu_counts_in_the_budget_as_one_gpu() -> None:
    f = Loopback(
        {"alpine": rack("a", 5)},
        replace(RULES, preempt_gpus=2),
        None,
        Mast(),
        (replace(OWNER, quota=Allowance(gpus=40)), GUEST),
    )
    guests = [f.submit(cpu_only(64)) for _ in range(5)]
    f.run_for(5.0)
    assert {f.state(id_) for id_ in guests} == {RUNS}
    for _ in range(5):
        f.submit(of("owner"))
    f.run_for(20.0)
    assert [gpus for _, gpus in evicted(f)] == [1, 1]
    assert [f.state(id_) for id_ in guests].count(RUNS) == 3


def test_without_a_budget_not_even_one_that_holds_no_gpu_goes() -> None:
    f = fleet(replace(RULES, preempt_gpus=0.0), nodes=1)
    guest = f.submit(cpu_only(64))
    f.run_for(5.0)
    owner = f.submit(of("owner"))
    f.run_for(30.0)
    assert (f.state(guest), f.state(owner)) == (RUNS, WAITS)


def test_a_budget_below_one_gpu_lets_one_go_in_as_many_windows_as_make_one() -> None:
    f = fleet(replace(RULES, preempt_gpus=0.5, preempt_window_s=300.0, cooldown_s=1.0), nodes=2)
    guests = [f.submit(cpu_only(64)) for _ in range(2)]
    f.run_for(5.0)
    owners = [f.submit(of("owner")) for _ in range(2)]
    f.run_for(590.0)
    assert [f.state(id_) for id_ in owners].count(RUNS) == 1
    f.run_for(100.0)
    assert [f.state(id_) for id_ in (*owners, *guests)] == [RUNS, RUNS, WAITS, WAITS]


def test_a_plan_beyond_the_quota_evicts_nobody_not_even_one_that_holds_no_gpu() -> None:
    f = Loopback(
        {"alpine": rack("a", 1)},
        RULES,
        None,
        Mast(),
        (replace(OWNER, quota=Allowance(gpus=6)), GUEST),
    )
    guest = f.submit(cpu_only(8))
    f.run_for(5.0)
    whole = replace(gang(1, 4), exclusive=True)  # 4 GPUs asked for, 8 taken
    owner = f.submit(replace(draft(whole), tenant=TenantName("owner")))
    f.run_for(30.0)
    assert (f.state(guest), f.state(owner)) == (RUNS, WAITS)


@pytest.mark.parametrize(("claimed_gpus", "believed_gpus"), [(10**9, MOST_GPUS), (-(10**9), 0)])
def test_a_site_that_claims_absurd_capacity_hardly_moves_the_budget(
    claimed_gpus: int, believed_gpus: int
) -> None:
    rules = replace(RULES, preempt_gpus=0, preempt_frac=0.5)
    f = two_sites(rules)
    (node,) = rack("b", 1)
    lies = Capacity(nodes=(replace(node, gpus=claimed_gpus),))
    f.observe(SiteSent(site=BIRCH, message=Report(attempts=(), capacity=lies)))
    fleet_gpus = sum(site.gpus for site in f.federation.sites.values())
    assert fleet_gpus == 8 + believed_gpus
    budget = budget_gpus(f.federation.ledger, rules, fleet_gpus, f.clock.now_s)
    assert budget == fleet_gpus / 2


# ---- where a checkpoint is ----


REGIONS = {ALPINE: "eu", BIRCH: "us"}


def saved_at_one_of_two() -> tuple[Loopback, WorkloadId, SiteName]:
    """Two sites; a guest that saved at one of them waits, and nothing else is left."""
    f = two_sites(replace(RULES, regions=REGIONS))
    guests = filled_by_guests(f, 2)
    owner = f.submit(of("owner"))
    f.run_until(lambda: any(f.state(id_) is WAITS for id_ in guests))
    (victim,) = [id_ for id_ in guests if f.state(id_) is WAITS]
    f.cancel(owner)
    f.run_until(lambda: f.state(owner) is WorkloadState.CANCELLED)
    gone = f.entry(victim).saved_at
    f.site_down(gone)
    f.cancel(*(id_ for id_ in guests if id_ != victim))
    f.run_for(30.0)
    return f, victim, gone


def test_a_checkpoint_in_another_region_is_waited_for_while_its_site_is_only_away() -> None:
    f, victim, gone = saved_at_one_of_two()
    f.run_for(2000.0)
    assert f.state(victim) is WAITS
    f.site_up(gone)
    f.run_for(20.0)
    assert (f.state(victim), f.entry(victim).site) == (RUNS, gone)


def test_a_checkpoint_at_a_site_that_was_taken_out_does_not_hold_it_for_ever() -> None:
    f, victim, gone = saved_at_one_of_two()
    f.take_out(gone)
    f.run_for(30.0)
    assert f.state(victim) is RUNS
    assert f.entry(victim).site != gone


def struck(how: str, saved_at_s: float) -> tuple[Loopback, WorkloadId]:
    """A chain at alpine, alone in its region, whose attempt ends untold, not to fit there again."""
    f = two_sites(replace(RULES, regions=REGIONS))
    id_ = f.submit(of("owner", continues=True))
    f.run_until(lambda: f.state(id_) is RUNS)
    assert f.entry(id_).site == ALPINE
    slurm, attempt = f.slurm(ALPINE), f.entry(id_).attempt_id
    ((_, job),) = f.live_jobs(id_)
    job.saved_at_s = saved_at_s
    f.shared_nodes = True
    if how == "requeue":
        slurm.starts_jobs = False
        slurm.requeue(attempt, preempted=True)
    elif how == "node":
        slurm.fail_node("a1")
    else:
        slurm.end(attempt, SiteJobState(how))
    slurm.take_locally("a1", NodeShare(gpus=8, cpus=8))
    f.run_for(100.0)
    return f, id_


UNTOLD = ["node", "requeue", "PREEMPTED", "TIMEOUT"]


@pytest.mark.parametrize("how", UNTOLD)
def test_what_ends_untold_goes_on_only_where_its_checkpoint_is(how: str) -> None:
    f, id_ = struck(how, saved_at_s=50.0)
    entry = f.entry(id_)
    assert (entry.state, entry.saved_at) == (WAITS, ALPINE)
    assert [r.code for r in entry.refusals[BIRCH].reasons] == [ReasonCode.CHECKPOINT]
    assert f.replayed().entries[id_].saved_at == ALPINE
    f.slurm(ALPINE).take_locally("a1", NodeShare())
    f.slurm(ALPINE).repair_node("a1")
    f.slurm(ALPINE).starts_jobs = True
    f.run_for(4000.0)
    assert (f.state(id_), entry.site, entry.attempt > 1) == (RUNS, ALPINE, True)


@pytest.mark.parametrize("how", UNTOLD)
def test_what_ends_untold_with_nothing_saved_may_go_on_anywhere(how: str) -> None:
    f, id_ = struck(how, saved_at_s=0.0)
    assert (f.state(id_), f.entry(id_).site, f.entry(id_).saved_at) == (RUNS, BIRCH, "")


def test_a_victim_that_ends_before_it_is_told_goes_on_where_its_checkpoint_is() -> None:
    f = fleet()
    f.save_s = 30.0
    victim, _ = filled_by_guests(f)
    f.submit(of("owner"))
    f.run_until(lambda: f.state(victim) is LEAVES)
    entry, now_s = f.entry(victim), f.clock.now_s
    report = AttemptReport(
        attempt=entry.attempt_id,
        user="ada",
        site_job_id=entry.site_job_id,
        state=SiteJobState.NODE_FAIL,
        started_at_s=entry.started_at_s,
        ended_at_s=now_s,
        saved_at_s=now_s,
    )
    f.federation.handle(SiteSent(site=ALPINE, message=Report(attempts=(report,))), now_s)
    assert (f.state(victim), f.entry(victim).saved_at) == (WAITS, ALPINE)
