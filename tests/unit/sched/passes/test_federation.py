"""Scenarios: the whole federation against simulated sites, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from federator.model.event import Awarded, Changed, EpochBegan
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import (
    AnswerCancelled,
    AnswerKeyUsed,
    AnswerRefused,
    AnswerSubmitted,
    AnswerTested,
    LaunchAt,
    Note,
    Record,
    SendTo,
    SiteSent,
)
from federator.model.partition import PartitionSummary
from federator.model.plan import Bid
from federator.model.reason import Reason, ReasonCode, RefusalKind
from federator.model.score import Score
from federator.model.site import AttemptReport, NodeShare, SiteJobState
from federator.model.site_message import Ask, AttemptAbsent, CancelOrder, LaunchDeclined, Report
from federator.model.submission import Option, pack_submission
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import AttemptId, Job, SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.bid_validation import contradiction
from federator.sched.passes.federation import FIRST_PASS_S
from federator.sched.passes.limits import wait
from federator.sched.passes.site_view import SiteView
from federator.sched.state.bad_nodes import AVOID_NODE_S
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, plan_on, rack, submission, tenant
from tests.fakes.loopback import Loopback, sent

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")


def two_sites() -> Loopback:
    """alpine is the larger and wins ties."""
    return Loopback({"alpine": rack("a", 4), "baker": rack("b", 2)})


def happened(federation: Loopback, id_: WorkloadId) -> list[WorkloadEvent]:
    return [e.happening for e in federation.log if isinstance(e, Changed) and e.workload == id_]


def launches(federation: Loopback, id_: WorkloadId) -> list[SiteName]:
    return [c.site for c in federation.commands if isinstance(c, LaunchAt) and c.workload.id == id_]


# ---- gangs ----


def test_a_gang_starts_whole_or_not_at_all() -> None:
    f = Loopback({"alpine": rack("a", 2), "baker": rack("b", 2)})
    first = f.submit(draft(gang(1)))
    f.run_for(1.0)
    gang_of_three = f.ask(draft(gang(3)))
    assert isinstance(gang_of_three, AnswerRefused)
    second, third = f.submit(draft(gang(2))), f.submit(draft(gang(2)))
    f.run_for(1.0)
    assert [f.state(i) for i in (first, second, third)] == [
        WorkloadState.RUNNING,
        WorkloadState.RUNNING,
        WorkloadState.PENDING,
    ]
    assert not f.live_jobs(third)
    f.slurm("alpine").end(f.entry(first).attempt_id)
    f.run_for(20.0)
    assert f.state(third) is WorkloadState.RUNNING
    assert len(f.entry(third).plan[0].nodes) == 2


def test_a_het_workload_is_placed_on_one_site_whole() -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 3)})
    id_ = f.submit(draft(gang(2, 8, "train"), gang(1, 4, "serve")))
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.RUNNING
    assert f.entry(id_).site == BAKER
    assert [p.name for p in f.entry(id_).plan] == ["train", "serve"]
    ((_, job),) = f.live_jobs(id_)
    assert len(job.jobs) == 2


def test_a_het_workload_never_splits_over_sites() -> None:
    f = Loopback({"alpine": rack("a", 2), "baker": rack("b", 2)})
    answer = f.ask(draft(gang(2, 8, "train"), gang(2, 8, "serve")))
    assert isinstance(answer, AnswerRefused)


def test_workloads_of_one_queue_spread_over_sites_in_one_pass() -> None:
    f = two_sites()
    ids = [f.submit(draft(gang(2))) for _ in range(3)]
    f.run_for(1.0)
    assert [f.state(i) for i in ids] == [WorkloadState.RUNNING] * 3
    assert sorted(f.entry(i).site for i in ids) == [ALPINE, ALPINE, BAKER]


# ---- submissions ----


def test_a_retry_with_the_same_submit_key_returns_the_same_id() -> None:
    f = two_sites()
    first = f.submit(draft(), key="same-key")
    assert f.submit(draft(), key="same-key") == first
    f.restart()
    assert f.submit(draft(), key="same-key") == first
    assert len(f.federation.ledger.entries) == 1


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"script": "#!/bin/sh\nfalse\n"}, "another script"),
        ({"components": ((Option(name="nodes", value="2"),),)}, "other options"),
        ({"args": ("--lr=1",)}, "other arguments"),
        ({"work_dir": "/elsewhere"}, "another working directory"),
    ],
)
@pytest.mark.parametrize("meanwhile", ["nothing", "restart", "compact"])
@pytest.mark.parametrize("array", [(), (3, 4)])
def test_a_submit_key_of_another_submission_queues_nothing_and_names_the_job(
    other: dict[str, Any], difference: str, meanwhile: str, array: tuple[int, ...]
) -> None:
    f = two_sites()
    first = f.submit(draft(array_indices=array), key="same-key")
    if meanwhile == "compact":
        f.compact()
    if meanwhile != "nothing":
        f.restart()
    changed = pack_submission(structs.replace(submission(), **other))
    answer = f.ask(replace(draft(array_indices=array), submission=changed), key="same-key")
    assert isinstance(answer, AnswerKeyUsed)
    assert (answer.id, answer.differences) == (first, (difference,))
    assert len(f.federation.ledger.entries) == (len(array) or 1)
    f.ask(replace(draft(), submission=changed), key="another-key")
    assert len(f.federation.ledger.entries) == (len(array) or 1) + 1


def test_a_retry_from_another_terminal_or_with_options_in_another_order_is_the_same() -> None:
    f = two_sites()
    options = (Option(name="nodes", value="1"), Option(name="exclusive"))
    first = structs.replace(submission(), components=(options,), environment={"TERM": "xterm"})
    again = structs.replace(first, components=(options[::-1],), environment={}, umask=0o077)
    ids = {
        f.submit(replace(draft(), submission=pack_submission(each)), key="same-key")
        for each in (first, again)
    }
    assert len(ids) == 1


def test_a_job_that_fits_nowhere_is_rejected_at_once_with_each_sites_reason() -> None:
    f = two_sites()
    answer = f.ask(draft(gang(5)))
    assert isinstance(answer, AnswerRefused)
    assert {s: r.kind for s, r in answer.refusals.items()} == {
        ALPINE: RefusalKind.REJECT,
        BAKER: RefusalKind.REJECT,
    }
    assert [r.reasons[0].free for r in answer.refusals.values()] == [4, 2]
    assert not f.federation.ledger.entries


def test_a_job_that_fits_one_site_only_is_queued_while_that_site_is_down() -> None:
    f = two_sites()
    f.site_down("alpine")
    id_ = f.submit(draft(gang(4)))
    f.run_for(30.0)
    assert f.state(id_) is WorkloadState.PENDING
    assert f.refusals(id_)[ALPINE].reasons[0].code is ReasonCode.SITE_DOWN
    assert f.refusals(id_)[BAKER].kind is RefusalKind.REJECT
    f.site_up("alpine")
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.RUNNING


def test_nothing_is_rejected_before_every_site_is_known() -> None:
    f = Loopback({"alpine": rack("a", 1)})
    f.federation = f.new_federation()
    assert isinstance(f.ask(draft(gang(99))), AnswerSubmitted)


def test_what_is_acknowledged_is_recorded_before_the_answer() -> None:
    f = two_sites()
    f.commands.clear()
    f.submit(draft())
    kinds = [type(c) for c in f.commands]
    assert kinds.index(Record) < kinds.index(AnswerSubmitted)


def test_an_award_is_recorded_before_its_launch_is_ordered() -> None:
    f = two_sites()
    f.submit(draft())
    f.run_for(1.0)
    award = next(
        k
        for k, c in enumerate(f.commands)
        if isinstance(c, Record) and isinstance(c.event, Awarded)
    )
    launch = next(k for k, c in enumerate(f.commands) if isinstance(c, LaunchAt))
    assert award < launch


def test_a_trial_names_the_winner_and_queues_nothing() -> None:
    f = two_sites()
    answer = f.ask(draft(gang(2)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner == ALPINE
    assert all(a.bid is not None for a in answer.answers.values())
    assert not f.federation.ledger.entries


def test_a_trial_with_every_site_down_has_no_winner() -> None:
    f = two_sites()
    f.site_down("alpine")
    f.site_down("baker")
    answer = f.ask(draft(gang(2)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner is None
    assert _codes(answer) == {ALPINE: ReasonCode.SITE_DOWN, BAKER: ReasonCode.SITE_DOWN}


def _codes(answer: AnswerTested) -> dict[SiteName, ReasonCode]:
    return {
        site: each.refusal.reasons[0].code
        for site, each in answer.answers.items()
        if each.refusal is not None
    }


def test_of_a_site_that_is_down_a_trial_says_never_only_where_it_is_known_to_be_too_small() -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 2)})
    f.site_down("baker")
    answer = f.ask(draft(gang(2)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert _codes(answer) == {ALPINE: ReasonCode.TOO_FEW_NODES, BAKER: ReasonCode.SITE_DOWN}
    assert answer.answers[BAKER].refusal == wait(ReasonCode.SITE_DOWN)
    f.site_up("baker")
    f.site_down("alpine")
    f.run_for(1.0)
    answer = f.ask(draft(gang(2)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert _codes(answer) == {ALPINE: ReasonCode.TOO_FEW_NODES}
    assert answer.winner == BAKER


def test_what_only_a_site_that_is_down_could_run_is_queued_also_by_a_daemon_that_never_saw_it() -> (
    None
):
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 2)})
    f.site_down("baker")
    f.restart()
    f.run_for(1.0)
    answer = f.ask(draft(gang(2)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert _codes(answer) == {ALPINE: ReasonCode.TOO_FEW_NODES, BAKER: ReasonCode.SITE_DOWN}
    id_ = f.submit(draft(gang(2)))
    f.run_for(2.0)
    assert f.refusals(id_)[BAKER] == wait(ReasonCode.SITE_DOWN)
    f.site_up("baker")
    f.run_for(2.0)
    assert f.entry(id_).state is WorkloadState.RUNNING


def test_why_a_workload_waits_is_kept_for_each_site() -> None:
    f = two_sites()
    for _ in range(3):
        f.submit(draft(gang(2)))
    id_ = f.submit(draft(gang(2)))
    f.run_for(2.0)
    codes = {s: r.reasons[0].code for s, r in f.refusals(id_).items()}
    assert codes == {ALPINE: ReasonCode.RESOURCES, BAKER: ReasonCode.RESOURCES}


def test_higher_priority_goes_first_whenever_nodes_come_free() -> None:
    f = Loopback({"alpine": rack("a", 1)})
    running = f.submit(draft())
    f.run_for(1.0)
    low, high = f.submit(draft(priority=5)), f.submit(draft(priority=1))
    f.run_for(1.0)
    f.slurm("alpine").end(f.entry(running).attempt_id)
    f.run_for(20.0)
    assert f.state(high) is WorkloadState.RUNNING
    assert f.state(low) is WorkloadState.PENDING


# ---- arrays ----


def test_an_array_runs_no_more_tasks_at_once_than_its_throttle() -> None:
    f = two_sites()
    wanted = draft(gang(1, 1), array_indices=(0, 1, 2, 3, 4), array_max_running=2)
    first = f.submit(wanted)
    ids = [WorkloadId(first + k) for k in range(5)]
    most = 0
    for _ in range(60):
        f.run_for(1.0)
        at_site = [i for i in ids if f.live_jobs(i)]
        most = max(most, len(at_site))
        if at_site:
            entry = f.entry(at_site[0])
            f.slurm(entry.site).end(entry.attempt_id)
    assert most == 2
    assert {f.state(i) for i in ids} == {WorkloadState.COMPLETED}


def test_a_throttled_task_says_why_it_waits() -> None:
    f = two_sites()
    first = f.submit(draft(gang(1, 1), array_indices=(0, 1), array_max_running=1))
    f.run_for(1.0)
    (refusal,) = f.entry(WorkloadId(first + 1)).refusals.values()
    assert refusal.reasons[0].code is ReasonCode.ARRAY_LIMIT


def test_an_array_is_named_by_its_first_task() -> None:
    f = two_sites()
    first = f.submit(draft(gang(1, 1), array_indices=(3, 7)))
    arrays = [e.workload.array for e in f.federation.ledger.entries.values()]
    assert [(a.array_id, a.index) for a in arrays if a is not None] == [(first, 3), (first, 7)]


# ---- leases ----


def test_a_launch_that_does_not_start_is_withdrawn_and_placed_elsewhere() -> None:
    f = two_sites()
    f.shared_nodes = True
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(draft(gang(2)))
    f.run_for(1.0)
    assert (f.entry(id_).site, f.state(id_)) == (ALPINE, WorkloadState.LAUNCHING)
    f.run_for(70.0)
    assert (f.entry(id_).site, f.state(id_)) == (BAKER, WorkloadState.RUNNING)
    assert happened(f, id_) == [
        WorkloadEvent.ACCEPTED,
        WorkloadEvent.LEASE_OVER,
        WorkloadEvent.WITHDRAWN,
        WorkloadEvent.ACCEPTED,
        WorkloadEvent.STARTED,
    ]
    assert f.entry(id_).avoid_until_s[ALPINE] > 0


def test_what_a_site_has_given_up_and_shows_all_the_same_is_withdrawn_and_placed_again() -> None:
    """An sbatch came through beyond every limit, before the daemon heard that it was given up."""
    f = two_sites()
    f.shared_nodes = True
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(draft(gang(2)))
    f.run_until(lambda: f.state(id_) is WorkloadState.LAUNCHING)
    reason = Reason(code=ReasonCode.LAUNCH_REFUSED, detail="given up before")
    declined = LaunchDeclined(attempt=f.entry(id_).attempt_id, reason=reason)
    f.observe(SiteSent(site=ALPINE, message=declined))
    f.run_for(20.0)
    assert happened(f, id_)[:3] == [
        WorkloadEvent.ACCEPTED,
        WorkloadEvent.LEASE_OVER,
        WorkloadEvent.WITHDRAWN,
    ]
    assert (f.entry(id_).attempt, f.state(id_)) == (2, WorkloadState.RUNNING)
    assert len(f.live_jobs(id_)) == 1


def test_a_withdrawal_of_what_its_site_does_not_have_ends() -> None:
    f = two_sites()
    f.shared_nodes = True
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(draft(gang(2)))
    f.run_until(lambda: f.entry(id_).withdrawing)
    absent = AttemptAbsent(attempt=f.entry(id_).attempt_id)
    f.observe(SiteSent(site=ALPINE, message=absent))
    assert f.state(id_) is WorkloadState.FAILED


def test_what_runs_is_not_lost_because_its_site_had_given_it_up() -> None:
    f = two_sites()
    id_ = f.submit(draft(gang(2)))
    f.run_for(2.0)
    reason = Reason(code=ReasonCode.LAUNCH_REFUSED, detail="given up before")
    declined = LaunchDeclined(attempt=f.entry(id_).attempt_id, reason=reason)
    f.observe(SiteSent(site=ALPINE, message=declined))
    f.run_for(20.0)
    assert (f.entry(id_).attempt, f.state(id_)) == (1, WorkloadState.RUNNING)


def test_a_lease_is_over_on_time_when_only_a_report_told_of_the_acceptance() -> None:
    f = Loopback({"alpine": rack("a", 1)}, rules=Rules(launch_lease_s=60.0, pass_interval_s=3000.0))
    f.shared_nodes = True
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(draft())
    f.run_until(lambda: bool(f.live_jobs(id_)))
    f.site_down("alpine")  # the agent's answer to the order is lost
    f.site_up("alpine")
    f.run_for(75.0)
    assert WorkloadEvent.WITHDRAWN in happened(f, id_)


def test_a_lease_outlives_a_restart_of_the_daemon() -> None:
    f = Loopback({"alpine": rack("a", 1)}, rules=Rules(launch_lease_s=60.0, pass_interval_s=3000.0))
    f.shared_nodes = True
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(draft())
    f.run_for(2.0)
    f.restart()
    f.run_for(75.0)
    assert WorkloadEvent.WITHDRAWN in happened(f, id_)


def test_a_job_that_is_requeued_at_its_site_is_taken_back_and_started_once_more() -> None:
    f = two_sites()
    f.shared_nodes = True
    id_ = f.submit(draft(gang(2)))
    f.run_for(2.0)
    f.slurm("alpine").starts_jobs = False
    f.slurm("alpine").requeue(f.entry(id_).attempt_id)
    f.run_for(15.0)
    assert happened(f, id_)[2:4] == [WorkloadEvent.SITE_REQUEUED, WorkloadEvent.WITHDRAWN]
    assert (f.entry(id_).attempt, len(f.live_jobs(id_))) == (2, 1)
    assert f.entry(id_).setbacks[ALPINE].code is ReasonCode.REQUEUED
    assert f.entry(id_).avoid_until_s == {}  # nobody is to blame


def test_a_requeued_job_that_starts_before_it_is_taken_back_runs_on() -> None:
    f = two_sites()
    f.shared_nodes = True
    id_ = f.submit(draft(gang(2)))
    f.run_for(2.0)
    job = f.slurm("alpine").jobs[f.entry(id_).site_job_id]
    job.restarts, job.state = 1, SiteJobState.PENDING
    f.run_until(lambda: f.state(id_) is WorkloadState.LAUNCHING)
    job.state = SiteJobState.RUNNING
    f.run_for(30.0)
    assert (f.state(id_), f.entry(id_).attempt) == (WorkloadState.RUNNING, 1)
    assert len(f.live_jobs(id_)) == 1


def test_what_a_site_preempts_comes_back_and_leaves_that_site_alone_for_a_while() -> None:
    f = two_sites()
    f.shared_nodes = True
    id_ = f.submit(draft(gang(2)))
    f.run_for(2.0)
    f.slurm("alpine").starts_jobs = False
    f.slurm("alpine").requeue(f.entry(id_).attempt_id, preempted=True)
    f.run_for(15.0)
    entry = f.entry(id_)
    assert (entry.site, entry.state, entry.attempt) == (BAKER, WorkloadState.RUNNING, 2)
    assert len(f.live_jobs(id_)) == 1
    assert entry.setbacks[ALPINE] == Reason(code=ReasonCode.PREEMPTED, detail="by the site")
    assert entry.avoid_until_s[ALPINE] > f.clock.now_s


def test_what_a_site_ends_for_work_of_its_own_comes_back_unless_it_may_not_requeue() -> None:
    f = two_sites()
    ids = [f.submit(draft(gang(1), requeue=requeue)) for requeue in (True, False)]
    f.run_for(2.0)
    for id_ in ids:
        f.slurm("alpine").end(f.entry(id_).attempt_id, SiteJobState.PREEMPTED)
    f.run_for(15.0)
    comes_back, ended = (f.entry(id_) for id_ in ids)
    assert (comes_back.state, comes_back.attempt) == (WorkloadState.RUNNING, 2)
    assert (ended.state, ended.site_state) == (WorkloadState.FAILED, "PREEMPTED")


def test_a_site_that_failed_a_workload_is_asked_again_after_a_while() -> None:
    f = Loopback({"alpine": rack("a", 1)}, rules=Rules(pass_interval_s=3000.0))
    f.refuse_launches("alpine")
    id_ = f.submit(draft())
    f.run_for(2.0)
    assert f.state(id_) is WorkloadState.PENDING
    assert happened(f, id_) == [WorkloadEvent.DECLINED]
    f.refuse_launches("alpine", False)
    f.run_for(6.0)
    assert f.state(id_) is WorkloadState.RUNNING


def test_what_is_stranded_for_those_who_ask_makes_no_pass_due() -> None:
    """It changes with what is asked, so each pass would make the next one due."""
    view = SiteView(partitions=("gpu",))
    row = PartitionSummary(partition="gpu", gpu_type="a100", gpus=8, gpus_alloc=2)
    assert view.shows((row,))
    stranded = structs.replace(row, gpus_stranded=4.0)
    assert not view.shows((stranded,))
    assert view.summary == (stranded,)
    assert view.shows((structs.replace(stranded, gpus_alloc=1),))


def test_a_refused_launch_goes_to_another_site_at_once() -> None:
    f = two_sites()
    f.refuse_launches("alpine")
    id_ = f.submit(draft(gang(2)))
    f.run_for(1.0)
    assert (f.entry(id_).site, f.state(id_)) == (BAKER, WorkloadState.RUNNING)
    assert f.entry(id_).attempt == 2


def test_a_workload_that_started_as_it_was_withdrawn_runs_on_through_a_reconnect() -> None:
    f = Loopback({"alpine": rack("a", 1)})
    f.shared_nodes = True
    slurm = f.slurm("alpine")
    slurm.starts_jobs = False
    id_ = f.submit(draft())
    f.run_until(lambda: WorkloadEvent.LEASE_OVER in happened(f, id_))
    slurm.starts_jobs = True  # it wins the race with the withdrawal
    slurm.start_what_can()
    f.run_for(15.0)
    assert f.state(id_) is WorkloadState.RUNNING
    f.site_down("alpine")
    f.site_up("alpine")
    f.run_for(15.0)
    assert f.state(id_) is WorkloadState.RUNNING
    assert launches(f, id_) == [ALPINE]


# ---- cancels ----


def test_a_waiting_workload_is_cancelled_without_asking_anyone() -> None:
    f = Loopback({"alpine": rack("a", 1)})
    f.submit(draft())
    f.run_for(1.0)
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.cancel(id_)
    assert f.state(id_) is WorkloadState.CANCELLED
    assert not launches(f, id_)


def test_a_running_workload_is_cancelled_when_its_site_says_so() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.cancel(id_)
    assert f.state(id_) is WorkloadState.CANCELLING
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.CANCELLED
    assert not f.live_jobs(id_)


def test_a_cancel_that_crosses_the_launch_order_still_wins() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_until(lambda: f.state(id_) is not WorkloadState.PENDING)
    assert f.state(id_) is WorkloadState.AWARDED
    f.cancel(id_)
    f.run_for(30.0)
    assert f.state(id_) is WorkloadState.CANCELLED
    assert not f.live_jobs(id_)


def test_a_cancel_asked_while_the_site_is_down_is_carried_out_when_it_is_back() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.site_down("alpine")
    f.cancel(id_)
    f.run_for(100.0)
    assert f.state(id_) is WorkloadState.CANCELLING
    assert f.live_jobs(id_)
    f.site_up("alpine")
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.CANCELLED


def test_a_cancel_ends_even_when_the_site_has_lost_the_job() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.site_down("alpine")
    f.cancel(id_)
    attempt = f.entry(id_).attempt_id
    f.slurm("alpine").end(attempt)
    f.slurm("alpine").forget(attempt)
    f.site_up("alpine")
    f.run_for(60.0)
    assert f.state(id_) is WorkloadState.CANCELLED


def test_a_cancel_that_is_too_late_changes_nothing() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_for(15.0)
    f.cancel(id_)
    assert f.state(id_) is WorkloadState.COMPLETED
    assert [c.ids for c in f.commands if isinstance(c, AnswerCancelled)] == [()]


def test_cancelling_twice_in_one_call_counts_once() -> None:
    f = two_sites()
    f.shared_nodes = True
    id_ = f.submit(draft(gang(4), name="w"))
    f.cancel(id_, id_)
    assert [c.ids for c in f.commands if isinstance(c, AnswerCancelled)] == [(id_,)]


# ---- sites that come and go ----


def test_the_other_sites_go_on_when_one_is_down() -> None:
    f = two_sites()
    there = f.submit(draft(gang(2)))
    f.run_for(1.0)
    f.site_down("alpine")
    here = f.submit(draft(gang(2)))
    f.run_for(1.0)
    assert (f.entry(here).site, f.state(here)) == (BAKER, WorkloadState.RUNNING)
    assert f.state(there) is WorkloadState.RUNNING  # as far as anybody knows
    assert launches(f, there) == [ALPINE]


def test_what_ended_while_its_site_was_unheard_is_learnt_on_reconnect() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.site_down("alpine")
    f.slurm("alpine").end(f.entry(id_).attempt_id, SiteJobState.FAILED, exit_code=3)
    f.run_for(500.0)
    assert f.state(id_) is WorkloadState.RUNNING
    f.site_up("alpine")
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.FAILED
    assert f.entry(id_).exit_code == 3


def test_what_a_site_has_no_record_of_any_more_ends_as_lost() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.site_down("alpine")
    attempt = f.entry(id_).attempt_id
    f.slurm("alpine").end(attempt)
    f.slurm("alpine").forget(attempt)
    f.site_up("alpine")
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.FAILED
    reason = f.entry(id_).reason
    assert reason is not None
    assert reason.code is ReasonCode.LOST


@pytest.mark.parametrize(("unnotified", "ends"), [(True, "FAILED"), (False, "PENDING")])
def test_who_is_gone_without_having_been_told_to_leave_may_have_completed(
    unnotified: bool, ends: str
) -> None:
    rules = Rules(preempt_gpus=64, preempt_window_s=60.0, grace_s=30.0)
    owner = Tenant(name=TenantName("vision"), priority=2, quota=Allowance(gpus=8))
    f = Loopback({"alpine": rack("a", 1)}, rules, policy=Mast(), tenants=(owner,))
    guest = f.submit(draft(gang(1, 8), tenant="guest"))
    f.run_for(1.0)
    f.submit(draft(gang(1, 8), tenant="vision"))
    f.run_until(lambda: f.state(guest) is WorkloadState.PREEMPTING)
    attempt = f.entry(guest).attempt_id
    gone = Report(attempts=(), gone=(attempt,), unnotified=(attempt,) if unnotified else ())
    f.federation.handle(SiteSent(site=SiteName("alpine"), message=gone), f.clock.now_s)
    assert f.state(guest).value == ends


def test_a_bid_of_a_site_that_went_down_since_is_not_awarded() -> None:
    f = two_sites()
    id_ = f.submit(draft(gang(2)))
    f.run_for(0.0)
    asked = [c for c in f.commands if isinstance(c, SendTo) and isinstance(c.message, Ask)]
    assert len(asked) == 2
    agent = f.sites[ALPINE].agent
    assert agent is not None
    for message in agent.do(asked[0]):
        f.observe(SiteSent(site=ALPINE, message=message))  # alpine has answered, baker not yet
    f.site_down("alpine")
    f.run_for(1.0)
    assert launches(f, id_) == [BAKER]
    assert f.state(id_) is WorkloadState.RUNNING


def test_a_silent_site_does_not_hold_up_the_pass() -> None:
    f = two_sites()
    f.sites[ALPINE].agent = None  # it hangs: the channel is up, nobody answers
    id_ = f.submit(draft(gang(2)))
    f.run_for(4.0)
    assert f.state(id_) is WorkloadState.PENDING
    f.run_for(2.0)
    assert (f.entry(id_).site, f.state(id_)) == (BAKER, WorkloadState.RUNNING)


def test_a_node_failure_sends_the_workload_back_to_the_queue() -> None:
    f = two_sites()
    f.shared_nodes = True
    id_ = f.submit(draft(gang(2)))
    f.run_for(1.0)
    f.slurm("alpine").fail_node("a1")
    f.run_for(20.0)
    entry = f.entry(id_)
    assert (entry.state, entry.site, entry.attempt) == (WorkloadState.RUNNING, ALPINE, 2)
    assert "a1" not in entry.node_names
    assert entry.avoid_until_s == {}  # the node is to blame, not its site
    (again,) = (e for e in f.log if isinstance(e, Changed) and e.failed_nodes)
    assert again.failed_nodes == ("a1",)


def test_a_node_that_is_back_is_avoided_for_a_while_by_whom_it_failed_alone() -> None:
    f = Loopback({"alpine": rack("a", 2)}, rules=Rules(pass_interval_s=3000.0))
    f.shared_nodes = True
    id_ = f.submit(draft(gang(2)))
    f.run_for(1.0)
    f.slurm("alpine").fail_node("a2")
    f.run_for(10.0)
    f.slurm("alpine").repair_node("a2")
    f.run_for(60.0)
    (refusal,) = f.refusals(id_).values()
    assert refusal.kind is RefusalKind.WAIT
    assert Reason(code=ReasonCode.NODE_FAILED, detail="a2") in refusal.reasons
    other = f.submit(draft(gang(2)))
    f.run_for(2.0)
    assert f.state(other) is WorkloadState.RUNNING  # of the same shape: the refusal taught nothing
    f.slurm("alpine").end(f.entry(other).attempt_id)
    f.run_for(AVOID_NODE_S)
    assert (f.state(id_), f.entry(id_).attempt) == (WorkloadState.RUNNING, 2)


def test_a_failed_prolog_sends_the_workload_elsewhere_at_once_without_that_node() -> None:
    f = two_sites()
    f.shared_nodes = True
    id_ = f.submit(draft(gang(2)))
    f.run_for(1.0)
    bad, _ = f.entry(id_).node_names
    f.slurm("alpine").fail_prolog(bad)
    f.run_for(10.0)  # the lease is 60 s
    entry = f.entry(id_)
    assert (entry.state, entry.attempt) == (WorkloadState.RUNNING, 2)
    assert bad not in entry.node_names


def test_a_node_failure_costs_no_place_in_the_queue() -> None:
    f = Loopback({"alpine": rack("a", 1)})
    f.shared_nodes = True
    first = f.submit(draft())
    f.run_for(5.0)
    second = f.submit(draft())
    f.slurm("alpine").fail_node("a1")
    f.run_for(10.0)
    assert [ranked.id for ranked in f.federation.ranked(f.clock.now_s)] == [first, second]


def test_a_bid_on_a_node_that_is_avoided_is_not_believed() -> None:
    job = replace(gang(1), avoid=("a1",))
    assert "a node that the workload avoids" in contradiction(
        (job,), Bid(score=Score(), jobs=plan_on("a1"))
    )
    assert not contradiction((job,), Bid(score=Score(), jobs=plan_on("a2")))


def test_a_node_failure_ends_a_workload_that_may_not_requeue() -> None:
    f = two_sites()
    f.shared_nodes = True
    id_ = f.submit(draft(gang(2), requeue=False))
    f.run_for(1.0)
    f.slurm("alpine").fail_node("a1")
    f.run_for(20.0)
    assert f.state(id_) is WorkloadState.FAILED


def test_a_local_job_that_overtakes_a_plan_costs_only_time() -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 1)})
    f.shared_nodes = True
    f.slurm("alpine").take_locally("a1", NodeShare(gpus=8, cpus=8))
    id_ = f.submit(draft())
    f.run_for(1.0)
    assert (f.entry(id_).site, f.state(id_)) == (BAKER, WorkloadState.RUNNING)


# ---- attempts that should not be ----


def stray(f: Loopback, id_: WorkloadId, nth: int, job_id: int, user: str = "ada") -> SiteSent:
    report = AttemptReport(
        attempt=AttemptId(workload=id_, attempt=nth),
        user=user,
        site_job_id=job_id,
        state=SiteJobState.RUNNING,
    )
    return SiteSent(site=BAKER, message=Report(attempts=(report,)))


def cancels(f: Loopback) -> list[tuple[SiteName, int, bool]]:
    cancels = sent(f.commands, CancelOrder)
    return [(site, order.site_job_id, order.pending_only) for site, order in cancels]


def test_a_stale_attempt_found_running_is_cancelled() -> None:
    f = two_sites()
    f.refuse_launches("alpine")
    id_ = f.submit(draft(gang(2)))
    f.run_for(1.0)
    f.observe(stray(f, id_, 1, 55))
    assert cancels(f) == [(BAKER, 55, False)]
    assert f.state(id_) is WorkloadState.RUNNING


def test_a_stale_attempt_is_cancelled_outright_while_the_present_one_is_withdrawn() -> None:
    f = two_sites()
    f.shared_nodes = True
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(draft(gang(2)))
    f.run_until(lambda: f.entry(id_).withdrawing)
    f.commands.clear()
    f.observe(stray(f, id_, 1, 55))
    assert cancels(f) == [(BAKER, 55, False)]


def test_an_attempt_of_a_workload_that_is_over_is_cancelled_when_found_running() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.site_down("alpine")
    slurm, attempt = f.slurm("alpine"), f.entry(id_).attempt_id
    ((_, job),) = f.live_jobs(id_)
    slurm.forget(attempt)  # slurmctld came up with old state
    f.site_up("alpine")
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.FAILED
    found = AttemptReport(
        attempt=attempt, user="ada", site_job_id=job.job_id, state=SiteJobState.RUNNING
    )
    f.observe(SiteSent(site=ALPINE, message=Report(attempts=(found,))))
    assert cancels(f) == [(ALPINE, job.job_id, False)]


def test_an_attempt_of_an_unknown_workload_is_noted_and_left_alone() -> None:
    f = two_sites()
    f.observe(stray(f, WorkloadId(2**32 + 99), 1, 55))
    assert cancels(f) == []
    assert [c.event for c in f.commands if isinstance(c, Note)] == ["stray_attempt"]


def test_a_comment_that_pretends_moves_nothing() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.observe(stray(f, id_, 1, 55, user="mallory"))
    assert cancels(f) == []
    assert f.state(id_) is WorkloadState.RUNNING


def test_late_news_is_noted_and_dropped() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_for(15.0)
    records = len(f.log)
    f.repeat_last_report("alpine")
    f.run_for(1.0)
    assert len(f.log) == records
    assert f.state(id_) is WorkloadState.COMPLETED


# ---- restarts ----


def test_a_running_workload_survives_a_restart_of_the_daemon() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.restart()
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.RUNNING
    assert launches(f, id_) == [ALPINE]
    f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_for(15.0)
    assert f.state(id_) is WorkloadState.COMPLETED


def test_an_award_whose_order_was_lost_with_the_daemon_is_ordered_again() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_until(lambda: f.state(id_) is not WorkloadState.PENDING)
    assert not f.live_jobs(id_)
    f.restart()
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.RUNNING
    assert f.entry(id_).attempt == 1


def test_an_award_whose_answer_was_lost_with_the_daemon_is_not_launched_twice() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_until(lambda: bool(f.live_jobs(id_)))
    assert f.state(id_) is WorkloadState.AWARDED
    f.restart()
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.RUNNING
    assert len(f.slurm("alpine").jobs) == 1


def test_after_a_restart_no_pass_is_made_before_a_site_is_there_for_some_seconds() -> None:
    """Nobody could be asked; on a long queue that pass would hold up those who come."""
    f = two_sites()
    f.site_down("alpine")
    f.site_down("baker")
    id_ = f.submit(draft())
    f.restart()
    f.run_for(FIRST_PASS_S - 1.0)
    later = f.submit(draft())
    f.run_for(0.5)
    assert (f.entry(id_).refusals, f.entry(later).refusals) == ({}, {})
    f.run_for(1.0)
    assert set(f.entry(id_).refusals) == set(f.entry(later).refusals) == {"alpine", "baker"}
    f.site_up("baker")
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.RUNNING


def test_a_launching_workload_survives_a_restart_of_the_daemon() -> None:
    f = two_sites()
    f.shared_nodes = True
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(draft())
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.LAUNCHING
    f.restart()
    f.slurm("alpine").starts_jobs = True
    f.slurm("alpine").start_what_can()
    f.run_for(15.0)
    assert f.state(id_) is WorkloadState.RUNNING
    assert len(f.slurm("alpine").jobs) == 1


def test_a_cancel_survives_a_restart_of_the_daemon() -> None:
    f = two_sites()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.cancel(id_)
    f.restart()
    f.run_for(1.0)
    assert f.state(id_) is WorkloadState.CANCELLED


def test_every_daemon_begins_a_new_epoch() -> None:
    f = two_sites()
    f.restart()
    f.restart()
    epochs = [e.epoch for e in f.log if isinstance(e, EpochBegan)]
    assert len(epochs) == 3
    assert sorted(set(epochs)) == epochs


@pytest.mark.parametrize("window", [1, 2, 500])
def test_a_long_queue_is_settled_window_by_window_in_one_pass(window: int) -> None:
    f = Loopback({"alpine": rack("a", 4), "baker": rack("b", 2)}, rules=Rules(window=window))
    ids = [f.submit(draft(gang(1))) for _ in range(8)]
    f.run_for(2.0)
    states = [f.state(i) for i in ids]
    assert states == [WorkloadState.RUNNING] * 6 + [WorkloadState.PENDING] * 2


def test_a_withdrawal_that_the_site_refused_is_ordered_again() -> None:
    f = Loopback({"alpine": rack("a", 1)}, rules=Rules(pass_interval_s=3000.0))
    f.shared_nodes = True
    slurm = f.slurm("alpine")
    slurm.starts_jobs = False
    id_ = f.submit(draft())
    slurm.refuses_cancels = True
    f.run_until(lambda: f.entry(id_).withdrawing)
    f.run_for(5.0)
    slurm.refuses_cancels = False
    f.run_for(30.0)
    assert WorkloadEvent.WITHDRAWN in happened(f, id_)


def test_a_job_that_wants_what_no_site_has_says_what() -> None:
    f = two_sites()
    answer = f.ask(draft(Job(name="t", nodes=1, gpus_per_node=1, gpu_types=("b200",))))
    assert isinstance(answer, AnswerRefused)
    assert answer.refusals[ALPINE].reasons[0].detail == "b200"


# ---- quotas and limits ----


def shared_by(*tenants: Tenant, nodes: int = 4, rules: Rules | None = None) -> Loopback:
    """One site, large enough that only tenants are in each other's way."""
    return Loopback({"alpine": rack("a", nodes)}, rules, None, Mast(), tenants)


def why(f: Loopback, id_: WorkloadId) -> tuple[ReasonCode, int, int, str, str]:
    (refusal,) = f.refusals(id_).values()
    (reason,) = refusal.reasons
    return (reason.code, reason.needed, reason.free, reason.unit, reason.detail)


def states(f: Loopback, *ids: WorkloadId) -> list[WorkloadState]:
    f.run_for(1.0)
    return [f.state(i) for i in ids]


RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING


def test_a_limit_holds_back_the_third_of_three_until_one_of_them_ends() -> None:
    f = shared_by(tenant("vision", 16, limit=16))
    ids = [f.submit(draft()) for _ in range(3)]
    assert states(f, *ids) == [RUNS, RUNS, WAITS]
    assert why(f, ids[2]) == (ReasonCode.LIMIT, 8, 0, "GPUs", "vision")
    f.slurm("alpine").end(f.entry(ids[0]).attempt_id)
    f.run_for(20.0)
    assert states(f, *ids) == [WorkloadState.COMPLETED, RUNS, RUNS]


def test_a_limit_holds_over_several_awards_of_one_round() -> None:
    f = shared_by(tenant("vision", limit=20))
    f.site_down("alpine")
    ids = [f.submit(draft(gang(1, gpus))) for gpus in (8, 8, 8, 4)]
    f.site_up("alpine")
    assert states(f, *ids) == [RUNS, RUNS, WAITS, RUNS]  # a smaller one still fits
    assert why(f, ids[2])[:3] == (ReasonCode.LIMIT, 8, 0)


def test_a_limit_of_the_parent_holds_for_the_sum_of_its_children() -> None:
    lab = (tenant("lab", limit=16), tenant("vision", parent="lab"), tenant("speech", parent="lab"))
    f = shared_by(*lab)
    ids = [f.submit(draft(tenant=name)) for name in ("vision", "speech", "vision")]
    assert states(f, *ids) == [RUNS, RUNS, WAITS]
    assert why(f, ids[2]) == (ReasonCode.LIMIT, 8, 0, "GPUs", "lab")


def test_one_tenants_limit_holds_up_nobody_else() -> None:
    f = shared_by(tenant("vision", limit=8), tenant("speech"))
    first, second = f.submit(draft()), f.submit(draft())
    other = f.submit(draft(tenant="speech"))
    assert states(f, first, second, other) == [RUNS, WAITS, RUNS]


def test_a_limit_counts_what_an_exclusive_plan_really_takes() -> None:
    f = shared_by(tenant("vision", limit=12))
    exclusive = Job(name="train", nodes=1, gpus_per_node=2, exclusive=True)
    first, second = f.submit(draft(exclusive)), f.submit(draft(exclusive))
    assert states(f, first, second) == [RUNS, WAITS]  # 2 asked for each, 8 taken by the first
    assert why(f, second) == (ReasonCode.LIMIT, 8, 4, "GPUs", "vision")
    third = f.submit(draft(gang(1, 4)))
    assert states(f, second, third) == [WAITS, RUNS]


def test_an_exclusive_plan_that_takes_more_than_the_quota_goes_over_quota() -> None:
    f = shared_by(tenant("vision", 4, priority=2))
    exclusive = f.submit(draft(Job(name="train", nodes=1, gpus_per_node=2, exclusive=True)))
    assert states(f, exclusive) == [RUNS]
    award = f.entry(exclusive).award
    assert award is not None
    assert (award.priority, award.within_quota) == (7, False)  # 8 GPUs of 4


def test_a_plan_on_a_type_with_a_quota_of_its_own_counts_against_it() -> None:
    typed = Tenant(
        name=TenantName("vision"), priority=2, quota=Allowance(gpus=64, gpu_types={"a100": 8})
    )
    f = shared_by(typed)
    ids = [f.submit(draft()) for _ in range(2)]  # of any type; this site has a100 alone
    assert states(f, *ids) == [RUNS, RUNS]
    awards = [f.entry(i).award for i in ids]
    assert [(a.priority, a.within_quota) for a in awards if a] == [(2, True), (7, False)]


def test_who_is_over_quota_borrows_what_nobody_within_quota_wants() -> None:
    f = shared_by(tenant("vision", 8, priority=2), tenant("speech", 16, priority=5), nodes=2)
    f.site_down("alpine")
    mine, borrowed = f.submit(draft()), f.submit(draft())
    f.run_for(1.0)
    guaranteed = f.submit(draft(tenant="speech"))
    f.site_up("alpine")
    assert states(f, mine, borrowed, guaranteed) == [RUNS, WAITS, RUNS]
    f.cancel(guaranteed)
    f.run_for(20.0)
    assert f.state(borrowed) is RUNS
    award = f.entry(borrowed).award
    assert award is not None
    assert (award.priority, award.within_quota) == (7, False)


def test_an_award_keeps_the_standing_and_the_credit_it_went_at() -> None:
    f = shared_by(tenant("vision", 8, priority=2))
    id_ = f.submit(draft(nice=100))
    assert states(f, id_) == [RUNS]
    award = f.entry(id_).award
    assert award is not None
    assert (award.priority, award.within_quota) == (2, True)
    assert award.credit == pytest.approx(24.0 - 1.0, abs=0.01)


def test_an_array_keeps_to_its_throttle_and_its_tenant_to_the_limit() -> None:
    f = shared_by(tenant("vision", limit=20))
    wanted = draft(gang(1, 8), array_indices=(0, 1, 2, 3), array_max_running=3)
    first = f.submit(wanted)
    tasks = [WorkloadId(first + k) for k in range(4)]
    assert states(f, *tasks) == [RUNS, RUNS, WAITS, WAITS]
    assert why(f, tasks[2])[0] is ReasonCode.LIMIT
    small = draft(gang(1, 1), array_indices=(0, 1, 2), array_max_running=2)
    first = f.submit(small)
    few = [WorkloadId(first + k) for k in range(3)]
    assert states(f, *few) == [RUNS, RUNS, WAITS]
    assert why(f, few[2])[0] is ReasonCode.ARRAY_LIMIT


def test_what_is_held_survives_a_restart_of_the_daemon_and_so_does_the_limit() -> None:
    f = shared_by(tenant("vision", 8, limit=16))
    ids = [f.submit(draft()) for _ in range(3)]
    assert states(f, *ids) == [RUNS, RUNS, WAITS]
    held = list(f.federation.ledger.holdings.used(0))
    f.restart()
    assert states(f, *ids) == [RUNS, RUNS, WAITS]
    assert list(f.federation.ledger.holdings.used(0)) == held == [16, 2]
    assert list(f.federation.ledger.holdings.within(0)) == [8, 1]


def test_a_refused_launch_gives_back_what_it_held() -> None:
    f = shared_by(tenant("vision", 8, limit=8))
    f.refuse_launches("alpine")
    id_ = f.submit(draft())
    assert states(f, id_) == [WAITS]
    assert list(f.federation.ledger.holdings.used(0)) == [0, 0]
    f.refuse_launches("alpine", False)
    f.run_for(30.0)
    assert f.state(id_) is RUNS
