"""Sites are drained, cordoned and resumed: the whole federation in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.draft import Draft
from federator.model.drain import DrainRefusalCode
from federator.model.event import Awarded, SiteDrained, SiteResumed
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.message import (
    AnswerDrained,
    AnswerDrainRefused,
    AnswerTested,
    DrainAsked,
    ResumeAsked,
    SiteSent,
)
from federator.model.reason import ReasonCode
from federator.model.site import AttemptReport, SiteJobState
from federator.model.site_message import Report
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.drains import LEAVES_EARLY_S
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
WINDOW_S = 300.0
RULES = Rules(preempt_gpus=16, preempt_window_s=WINDOW_S, grace_s=60.0, cooldown_s=600.0)
GUEST = Tenant(name=TenantName("guest"))
OWNER = Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=64))
LEAD_S = RULES.grace_s + LEAVES_EARLY_S


def fleet(
    alpine: int = 4, baker: int = 4, rules: Rules = RULES, duration_s: float | None = None
) -> Loopback:
    """Two sites of 8-GPU nodes in one region; a window has a budget of two nodes."""
    sites = {"alpine": rack("a", alpine), "baker": rack("b", baker)}
    return Loopback(sites, rules, duration_s, Mast(), (GUEST, OWNER))


def work(limit_s: float = 36_000.0, **more: object) -> Draft:
    wanted = replace(draft(gang(1, 8)), tenant=TenantName("guest"), time_limit_s=limit_s)
    return replace(wanted, **more)  # type: ignore[arg-type]


def ask(f: Loopback, asked: DrainAsked | ResumeAsked) -> AnswerDrained | AnswerDrainRefused:
    f.observe(asked)
    answer = f.answers.pop(asked.client)
    assert isinstance(answer, AnswerDrained | AnswerDrainRefused)
    return answer


def drain(f: Loopback, site: SiteName = ALPINE, **more: object) -> AnswerDrained:
    answer = ask(f, _drain(site, **more))
    assert isinstance(answer, AnswerDrained), answer
    return answer


def _drain(site: SiteName, **more: object) -> DrainAsked:
    wanted: dict[str, object] = {"reason": "new switch", "by": "root", **more}
    return DrainAsked(client=-1, site=site, **wanted)  # type: ignore[arg-type]


def resume(f: Loopback, site: SiteName = ALPINE, *nodes: str) -> None:
    answer = ask(f, ResumeAsked(client=-1, site=site, nodes=nodes, by="root"))
    assert isinstance(answer, AnswerDrained), answer


def refusal(f: Loopback, asked: DrainAsked | ResumeAsked) -> DrainRefusalCode:
    before = len(f.log)
    answer = ask(f, asked)
    assert isinstance(answer, AnswerDrainRefused), answer
    assert len(f.log) == before
    return answer.refusal.code


def running_at(f: Loopback, site: SiteName) -> list[WorkloadId]:
    return [e.workload.id for e in f.federation.ledger.in_state(RUNS) if e.site == site]


def filled(f: Loopback, number: int, **more: object) -> list[WorkloadId]:
    """So many workloads, each on one node; sites fill in the order of their scores."""
    ids = [f.submit(work(**more)) for _ in range(number)]  # type: ignore[arg-type]
    f.run_for(10.0)
    assert [f.state(id_) for id_ in ids] == [RUNS] * number
    return ids


def test_nothing_starts_at_a_cordoned_site_and_what_runs_there_runs_on() -> None:
    f = fleet()
    filled(f, 8)
    here = running_at(f, ALPINE)
    assert drain(f, cordon=True).running == len(here) == 4
    late = f.submit(work())
    f.slurm("alpine").end(f.entry(here[0]).attempt_id)
    f.run_for(900.0)
    assert f.state(late) is WAITS
    assert running_at(f, ALPINE) == here[1:]
    resume(f)
    f.run_for(30.0)
    assert f.entry(late).site == ALPINE


def test_a_workload_that_waits_learns_that_a_site_is_drained_and_why() -> None:
    f = fleet()
    drain(f)
    filled(f, 4)
    late = f.submit(replace(work(), jobs=(gang(4, 8),)))
    f.run_for(10.0)
    assert f.state(late) is WAITS
    (reason,) = f.refusals(late)[ALPINE].reasons
    assert (reason.code, reason.detail) == (ReasonCode.DRAINED, "new switch")


def test_a_trial_says_that_a_site_is_drained() -> None:
    f = fleet()
    drain(f)
    answer = f.ask(work(), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner == BAKER
    refused = answer.answers[ALPINE].refusal
    assert refused is not None
    assert refused.reasons[0].code is ReasonCode.DRAINED


def test_a_drained_site_empties_as_its_workloads_end() -> None:
    f = fleet(duration_s=500.0)
    ids = [f.submit(work()) for _ in range(12)]
    f.run_for(10.0)
    drain(f)
    f.run_for(600.0)
    assert not running_at(f, ALPINE)
    f.run_until_all_end()
    after = [e for e in f.log[_when(f) :] if isinstance(e, Awarded)]
    assert {e.site for e in after} == {BAKER}
    assert all(f.state(id_) is WorkloadState.COMPLETED for id_ in ids)
    assert all(f.entry(id_).attempt == 1 for id_ in ids)


def _when(f: Loopback) -> int:
    return next(k for k, e in enumerate(f.log) if isinstance(e, SiteDrained))


def test_what_was_submitted_there_and_does_not_run_yet_is_withdrawn_and_goes_elsewhere() -> None:
    f = fleet(alpine=8, baker=8)
    f.slurm("alpine").starts_jobs = f.slurm("baker").starts_jobs = False
    ids = [f.submit(work()) for _ in range(8)]
    f.run_until(lambda: all(f.state(id_) is WorkloadState.LAUNCHING for id_ in ids))
    there = [id_ for id_ in ids if f.entry(id_).site == ALPINE]
    assert drain(f).withdrawn == len(there) > 0
    f.slurm("baker").starts_jobs = True
    f.run_for(60.0)
    assert [f.entry(id_).site for id_ in ids] == [BAKER] * 8
    assert all(f.state(id_) is RUNS for id_ in ids)
    assert not any(f.entry(id_).avoid_until_s.get(ALPINE) for id_ in ids)  # nobody failed


def test_an_award_whose_order_is_on_its_way_does_not_start_there() -> None:
    f = fleet(alpine=8, baker=1)
    f.slurm("alpine").starts_jobs = False  # or else it would run as soon as the order arrives
    id_ = f.submit(replace(work(), jobs=(gang(2, 8),)))
    f.run_until(lambda: f.state(id_) is WorkloadState.AWARDED)
    drain(f)
    f.run_for(60.0)
    assert f.state(id_) is WAITS
    assert not f.live_jobs(id_)
    f.slurm("alpine").starts_jobs = True
    resume(f)
    f.run_for(60.0)
    assert f.state(id_) is RUNS


def test_an_award_to_a_site_that_is_away_ends_when_that_comes_back() -> None:
    f = fleet(alpine=8, baker=1)
    id_ = f.submit(replace(work(), jobs=(gang(2, 8),)))
    f.run_until(lambda: f.state(id_) is WorkloadState.AWARDED)
    f.site_down("alpine")
    drain(f)
    f.run_for(60.0)
    f.site_up("alpine")
    f.run_for(60.0)
    assert f.state(id_) is WAITS
    assert not f.live_jobs(id_)


def test_an_award_that_was_withdrawn_stays_so_though_the_site_is_resumed() -> None:
    f = fleet(alpine=8, baker=1)
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(replace(work(), jobs=(gang(2, 8),)))
    f.run_until(lambda: f.state(id_) is WorkloadState.AWARDED)
    attempt = f.entry(id_).attempt_id
    drain(f)
    resume(f)
    f.restart()
    assert f.entry(id_).withdrawing
    # The site may act on the order late: on a job that sbatch has submitted after all.
    late = AttemptReport(
        attempt=attempt, user="ada", site_job_id=77, state=SiteJobState.CANCELLED, ended_at_s=2e6
    )
    f.site_down("baker")
    f.federation.handle(SiteSent(site=ALPINE, message=Report(attempts=(late,))), f.clock.now_s)
    assert f.state(id_) is WAITS


def test_offers_of_an_open_round_do_not_hold_for_a_site_that_is_drained() -> None:
    f = fleet(alpine=8, baker=1)
    id_ = f.submit(replace(work(), jobs=(gang(2, 8),)))
    drain(f)  # the question is on its way
    f.run_for(60.0)
    assert f.state(id_) is WAITS
    assert not [e for e in f.log if isinstance(e, Awarded)]


def test_migrated_workloads_leave_at_the_pace_of_the_budget_and_go_on_elsewhere() -> None:
    f = fleet(alpine=6, baker=12)
    drain(f, BAKER, cordon=True)
    ids = filled(f, 6)
    resume(f, BAKER)
    began_s = f.clock.now_s
    drain(f, migrate=True)
    f.run_for(30.0)
    assert len(running_at(f, ALPINE)) == 4  # a window's budget is two nodes
    f.run_for(2 * WINDOW_S + 30.0)
    assert not running_at(f, ALPINE)
    assert len(running_at(f, BAKER)) == 6
    assert all(f.entry(id_).saved_at and f.entry(id_).attempt == 2 for id_ in ids)
    times = [e.at_s for e in f.federation.ledger.evictions.within]
    assert all(sum(8 for t in times if a <= t < a + WINDOW_S) <= 16 for a in times)
    assert f.clock.now_s - began_s < 3 * WINDOW_S


def test_whoever_could_go_on_nowhere_else_is_not_moved_without_need() -> None:
    regions = {ALPINE: "west", BAKER: "east"}
    f = fleet(rules=replace(RULES, regions=regions))
    filled(f, 8)
    here = running_at(f, ALPINE)
    drain(f, migrate=True)
    f.run_for(3 * WINDOW_S)
    assert running_at(f, ALPINE) == here


def test_by_the_deadline_all_have_saved_and_left() -> None:
    f = fleet(alpine=8, baker=8)
    f.save_s = 40.0
    ids = filled(f, 16)
    until_s = f.clock.now_s + 3600.0
    drain(f, deadline_s=until_s)
    f.run_for(until_s - f.clock.now_s - LEAD_S - 4 * WINDOW_S - 20.0)
    assert len(running_at(f, ALPINE)) == 8  # they may finish until then
    f.run_for(until_s - f.clock.now_s)
    assert not f.slurm("alpine").live()
    moved = [id_ for id_ in ids if f.entry(id_).preemptions]
    assert len(moved) == 8
    assert all(f.entry(id_).saved_at == ALPINE for id_ in moved)
    times = [e.at_s for e in f.federation.ledger.evictions.within]
    assert max(times) <= until_s - LEAD_S + 10.0
    assert all(sum(8 for t in times if a <= t < a + WINDOW_S - 11) <= 16 for a in times)  # paced
    f.duration_s = 100.0
    for id_ in running_at(f, BAKER):
        f.slurm("baker").end(f.entry(id_).attempt_id)
    f.run_for(30.0)
    assert all(f.state(id_) in {RUNS, *TERMINAL} for id_ in ids)


def test_a_near_deadline_is_kept_beyond_the_budget() -> None:
    f = fleet(alpine=8, baker=8)
    filled(f, 16)
    until_s = f.clock.now_s + LEAD_S + 60.0
    drain(f, deadline_s=until_s)
    f.run_for(until_s - f.clock.now_s)
    assert not f.slurm("alpine").live()


def test_a_deadline_is_kept_where_nobody_may_be_evicted_for_others() -> None:
    f = fleet(rules=replace(RULES, preempt_gpus=0))
    filled(f, 8)
    until_s = f.clock.now_s + 1000.0
    drain(f, deadline_s=until_s)
    f.run_for(1000.0 - LEAD_S - 11.0)
    assert len(running_at(f, ALPINE)) == 4
    f.run_for(LEAD_S + 11.0)
    assert not f.slurm("alpine").live()


def test_one_that_may_not_be_requeued_runs_until_the_deadline_and_is_cancelled_then() -> None:
    f = fleet(alpine=4, baker=1)
    ids = filled(f, 4, requeue=False, tenant=TenantName("owner"))
    assert set(running_at(f, ALPINE)) >= set(ids[1:])
    here = running_at(f, ALPINE)
    until_s = f.clock.now_s + 1000.0
    assert drain(f, deadline_s=until_s, migrate=True).not_requeued == len(here)
    f.run_for(1000.0 - LEAD_S - 1.0)
    assert running_at(f, ALPINE) == here
    f.run_for(LEAD_S + 1.0)
    assert {f.state(id_) for id_ in here} == {WorkloadState.CANCELLED}
    assert f.entry(here[0]).reason.code is ReasonCode.DRAINED  # type: ignore[union-attr]


def test_a_daemon_killed_in_the_middle_of_a_drain_goes_on_with_it() -> None:
    f = fleet(alpine=8, baker=8)
    filled(f, 16)
    until_s = f.clock.now_s + 1800.0
    drain(f, deadline_s=until_s)
    before = f.federation.ledger.drains
    for compacts in (False, True, False):
        f.run_for(500.0)
        if compacts:
            f.compact()
        f.restart()
        assert f.federation.ledger.drains == before
    f.run_for(until_s - f.clock.now_s)
    assert not f.slurm("alpine").live()
    late = f.submit(work())
    f.run_for(30.0)
    assert f.entry(late).site != ALPINE


def test_a_claim_at_a_site_that_is_drained_ends() -> None:
    f = fleet(alpine=8, baker=1)
    filled(f, 8)
    gang_ = f.submit(replace(work(), tenant=TenantName("owner"), jobs=(gang(6, 8),)))
    f.run_for(10.0)
    assert f.federation.ledger.claims[gang_].site == ALPINE
    drain(f)
    assert not f.federation.ledger.claims
    f.run_for(900.0)
    assert f.state(gang_) is WAITS
    assert not f.federation.ledger.claims


def test_draining_twice_is_refused_and_a_cordon_may_become_a_drain() -> None:
    f = fleet()
    drain(f, cordon=True)
    assert refusal(f, _drain(ALPINE, cordon=True)) is DrainRefusalCode.DRAINED
    drain(f)
    assert refusal(f, _drain(ALPINE)) is DrainRefusalCode.DRAINED
    assert refusal(f, _drain(ALPINE, cordon=True)) is DrainRefusalCode.DRAINED
    resume(f)
    assert refusal(f, ResumeAsked(client=-1, site=ALPINE)) is DrainRefusalCode.NOT_DRAINED
    drain(f)


def test_unknown_sites_and_nodes_and_deadlines_too_near_are_refused() -> None:
    f = fleet()
    assert refusal(f, _drain(SiteName("nowhere"))) is DrainRefusalCode.UNKNOWN_SITE
    assert refusal(f, _drain(ALPINE, nodes=("a1", "z9"))) is DrainRefusalCode.UNKNOWN_NODES
    soon_s = f.clock.now_s + LEAD_S - 1.0
    assert refusal(f, _drain(ALPINE, deadline_s=soon_s)) is DrainRefusalCode.TOO_SOON
    nowhere = ResumeAsked(client=-1, site=SiteName("nowhere"))
    assert refusal(f, nowhere) is DrainRefusalCode.UNKNOWN_SITE


def test_who_is_on_revoked_nodes_saves_at_once_and_goes_on_elsewhere() -> None:
    f = fleet(alpine=2, baker=3, rules=replace(RULES, preempt_gpus=0))
    f.save_s = 20.0
    filled(f, 4)
    node = f.entry(running_at(f, ALPINE)[0]).node_names[0]
    (id_,) = (i for i in running_at(f, ALPINE) if f.entry(i).node_names == (node,))
    until_s = f.clock.now_s + 30.0
    assert refusal(f, _drain(ALPINE, nodes=(node,), deadline_s=until_s)) is (
        DrainRefusalCode.TOO_SOON
    )
    assert drain(f, nodes=(node,), deadline_s=until_s, revoked=True).running == 1
    assert f.state(id_) is WorkloadState.PREEMPTING
    f.run_for(60.0)
    entry = f.entry(id_)
    assert (entry.saved_at, entry.preemptions, f.state(id_)) == (ALPINE, 1, RUNS)
    assert entry.node_names != (node,)


def test_a_revocation_may_be_told_again_and_of_what_is_drained_for_later() -> None:
    f = fleet()
    drain(f, nodes=("a1",), deadline_s=f.clock.now_s + 3600.0)
    for _ in range(2):
        soon_s = f.clock.now_s + 20.0
        drain(f, nodes=("a1", "a2"), deadline_s=soon_s, revoked=True)
    (of_nodes,) = f.federation.ledger.drains.at(ALPINE)
    assert (of_nodes.nodes, of_nodes.deadline_s) == (("a1", "a2"), soon_s)
    drain(f)
    again = _drain(ALPINE, nodes=("a1",), deadline_s=soon_s, revoked=True)
    assert refusal(f, again) is DrainRefusalCode.DRAINED, "the site's drain is another matter"


def test_who_was_notified_leaves_though_the_site_is_resumed() -> None:
    f = fleet(alpine=2, baker=2)
    f.save_s = 30.0
    filled(f, 4)
    drain(f, migrate=True)
    leaving = [e.workload.id for e in f.federation.ledger.in_state(WorkloadState.PREEMPTING)]
    assert len(leaving) == 2
    resume(f)
    f.run_for(60.0)
    assert all(f.entry(id_).attempt == 2 and f.state(id_) is RUNS for id_ in leaving)


def test_a_drain_that_ended_is_in_the_log_with_its_end() -> None:
    f = fleet()
    drain(f)
    resume(f)
    (began,) = [e for e in f.log if isinstance(e, SiteDrained)]
    (ended,) = [e for e in f.log if isinstance(e, SiteResumed)]
    assert (began.by, ended.by, began.site) == ("root", "root", ALPINE)
    assert not f.replayed().drains


def test_evictions_of_a_drain_are_charged_to_nobody() -> None:
    f = fleet(alpine=2, baker=4)
    ids = filled(f, 4)
    drain(f, migrate=True)
    f.run_for(60.0)
    moved = [id_ for id_ in ids if f.entry(id_).preemptions]
    assert moved
    assert not any(f.entry(id_).evicted_for for id_ in moved)
    assert f.federation.ledger.tax.gpu_s == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("migrate", [False, True])
def test_none_of_250_workloads_of_a_drained_site_is_lost(migrate: bool) -> None:
    rules = replace(RULES, preempt_gpus=80.0)
    f = fleet(alpine=50, baker=30, rules=rules, duration_s=900.0)
    checked, f.check_invariants = f.check_invariants, lambda: None  # type: ignore[method-assign]
    ids = [f.submit(work(7200.0)) for _ in range(250)]
    f.run_for(60.0)
    assert len(running_at(f, ALPINE)) == 50
    until_s = f.clock.now_s + 600.0
    drain(f, migrate=migrate, deadline_s=until_s)
    f.run_for(until_s - f.clock.now_s)
    assert not f.slurm("alpine").live()
    checked()
    f.run_until_all_end(limit_s=40_000.0)
    assert all(f.state(id_) is WorkloadState.COMPLETED for id_ in ids)


# ---- single nodes ----


def nodes_at(f: Loopback, site: SiteName) -> set[str]:
    return {name for id_ in running_at(f, site) for name in f.entry(id_).node_names}


def test_nothing_starts_on_drained_nodes_and_the_others_go_on() -> None:
    f = fleet(alpine=4, baker=1)
    assert drain(f, nodes=("a1", "a3")).running == 0
    ids = [f.submit(work()) for _ in range(5)]
    f.run_for(30.0)
    assert nodes_at(f, ALPINE) == {"a2", "a4"}
    assert [f.state(id_) for id_ in ids].count(RUNS) == 3
    f.slurm("alpine").end(f.entry(running_at(f, ALPINE)[0]).attempt_id)
    f.run_for(30.0)
    assert nodes_at(f, ALPINE) == {"a2", "a4"}
    resume(f, ALPINE, "a1", "a3")
    f.run_for(30.0)
    assert not list(f.federation.ledger.in_state(WAITS))


def test_only_what_runs_on_drained_nodes_is_moved() -> None:
    f = fleet(alpine=4, baker=4)
    filled(f, 6)
    until_s = f.clock.now_s + 600.0
    busy = sorted(nodes_at(f, ALPINE))
    drain(f, nodes=(busy[0],), deadline_s=until_s)
    f.run_for(600.0)
    assert busy[0] not in nodes_at(f, ALPINE)
    assert set(busy[1:]) <= nodes_at(f, ALPINE)
    assert len(list(f.federation.ledger.in_state(RUNS))) == 6


def test_nobody_is_evicted_for_room_on_drained_nodes() -> None:
    f = fleet(alpine=4, baker=1)
    filled(f, 5)
    drain(f, nodes=("a1", "a2", "a3", "a4"))
    drain(f, BAKER)
    owner = f.submit(work(tenant=TenantName("owner")))
    f.run_for(2 * WINDOW_S)
    assert f.state(owner) is WAITS
    assert not f.federation.ledger.evictions.within
    resume(f, ALPINE, "a1")
    f.run_for(60.0)
    assert f.entry(owner).node_names == ("a1",)


def test_an_older_agents_bid_for_drained_nodes_is_not_taken() -> None:
    f = fleet(alpine=2, baker=1)
    for site in f.sites.values():
        assert site.agent is not None
        site.agent.knows_claims = False
    drain(f, nodes=("a1", "a2"))
    drain(f, BAKER)
    id_ = f.submit(work())
    f.run_for(60.0)
    assert f.state(id_) is WAITS
    (reason,) = f.refusals(id_)[ALPINE].reasons
    assert reason.code is ReasonCode.DRAINED
    answer = f.ask(work(), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner is None


def test_nodes_that_were_drained_by_name_are_resumed_by_name() -> None:
    f = fleet()
    drain(f, nodes=("a1", "a2"))
    assert refusal(f, _drain(ALPINE, nodes=("a2", "a3"))) is DrainRefusalCode.DRAINED
    assert refusal(f, ResumeAsked(client=-1, site=ALPINE)) is DrainRefusalCode.NOT_DRAINED
    nodes = ResumeAsked(client=-1, site=ALPINE, nodes=("a1", "a4"))
    assert refusal(f, nodes) is DrainRefusalCode.NOT_DRAINED
    resume(f, ALPINE, "a1")
    f.compact()
    f.restart()
    assert f.federation.ledger.drains.nodes_at(ALPINE) == ("a2",)
