"""What is held, or whose begin time has not come, is in no queue, and comes back to it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from federator.model.draft import Draft
from federator.model.eligibility import Hold
from federator.model.event import Amended, Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import (
    AnswerRefused,
    ControlAsked,
    ControlRefusal,
    ControlVerb,
    LaunchAt,
)
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.eligibility import ineligible_reason
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

INELIGIBLE, PENDING = WorkloadState.INELIGIBLE, WorkloadState.PENDING
RUNNING, LAUNCHING = WorkloadState.RUNNING, WorkloadState.LAUNCHING
HOLD, USER_HOLD, RELEASE = ControlVerb.HOLD, ControlVerb.USER_HOLD, ControlVerb.RELEASE


def federation(nodes: int = 2) -> Loopback:
    return Loopback({"alpine": rack("a", nodes)})


def why(f: Loopback, id_: WorkloadId) -> ReasonCode:
    return ineligible_reason(f.entry(id_)).code


def steps(f: Loopback, id_: WorkloadId) -> list[WorkloadEvent]:
    return [e.happening for e in f.log if isinstance(e, Changed) and e.workload == id_]


# ---- holds ----


def test_what_is_submitted_held_waits_outside_of_the_queue_until_it_is_released() -> None:
    f = federation()
    id_ = f.submit(draft(hold=Hold.USER))
    f.run_for(400.0)
    assert (f.state(id_), why(f, id_)) == (INELIGIBLE, ReasonCode.USER_HOLD)
    assert len(f.federation.ledger.backlog) == 0
    assert f.control(RELEASE, id_).ids == (id_,)
    f.run_for(1.0)
    assert f.state(id_) is RUNNING


def test_no_pass_is_made_for_what_is_held() -> None:
    f = federation()
    before = len(f.commands)
    f.submit(draft(hold=Hold.USER, array_indices=tuple(range(50))))
    f.run_for(1.0)
    assert not [c for c in f.commands[before:] if isinstance(c, LaunchAt)]


def test_what_waits_in_the_queue_leaves_it_when_it_is_held() -> None:
    f = federation()
    first, second = f.submit(draft(gang(2))), f.submit(draft(gang(2)))
    f.run_for(1.0)
    assert (f.state(first), f.state(second)) == (RUNNING, PENDING)
    f.control(HOLD, second)
    f.slurm("alpine").end(f.entry(first).attempt_id, SiteJobState.COMPLETED)
    f.run_for(30.0)
    assert (f.state(second), why(f, second)) == (INELIGIBLE, ReasonCode.USER_HOLD)
    assert steps(f, second) == [WorkloadEvent.SET_ASIDE]


def test_an_operators_hold_is_not_the_users_to_release() -> None:
    f = federation()
    id_ = f.submit(draft(hold=Hold.USER))
    f.control(HOLD, id_, by="root", is_operator=True)
    assert why(f, id_) is ReasonCode.ADMIN_HOLD
    assert f.control(RELEASE, id_).refused == ((id_, ControlRefusal.DENIED),)
    assert f.control(HOLD, id_).refused == ((id_, ControlRefusal.DENIED),)
    assert f.state(id_) is INELIGIBLE
    f.control(RELEASE, id_, by="root", is_operator=True)
    f.run_for(1.0)
    assert f.state(id_) is RUNNING


def test_an_operators_uhold_is_the_users_to_release() -> None:
    f = federation()
    id_ = f.submit(draft(hold=Hold.USER))
    f.control(USER_HOLD, id_, by="root", is_operator=True)
    assert why(f, id_) is ReasonCode.USER_HOLD
    assert f.control(RELEASE, id_).ids == (id_,)


def test_a_hold_of_what_runs_counts_when_it_is_back_in_the_queue() -> None:
    f = federation()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.control(HOLD, id_)
    f.run_for(60.0)
    assert f.state(id_) is RUNNING
    f.slurm("alpine").end(f.entry(id_).attempt_id, SiteJobState.NODE_FAIL)
    f.run_for(60.0)
    assert (f.state(id_), f.entry(id_).attempt) == (INELIGIBLE, 1)
    f.control(RELEASE, id_)
    f.run_for(60.0)
    assert (f.state(id_), f.entry(id_).attempt) == (RUNNING, 2)


def test_what_its_site_has_and_has_not_started_comes_back_when_it_is_held() -> None:
    f = federation()
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(draft())
    f.run_until(lambda: f.state(id_) is LAUNCHING)
    f.control(HOLD, id_)
    f.run_for(20.0)
    assert (f.state(id_), f.live_jobs(id_)) == (INELIGIBLE, [])
    assert not f.entry(id_).avoid_until_s  # its site has done nothing wrong


def test_what_has_ended_cannot_be_held() -> None:
    f = federation()
    id_ = f.submit(draft(hold=Hold.USER))
    f.cancel(id_)
    assert f.state(id_) is WorkloadState.CANCELLED
    assert f.control(HOLD, id_).refused == ((id_, ControlRefusal.ENDED),)


def test_a_hold_outlives_restarts_and_snapshots() -> None:
    f = federation()
    held = f.submit(draft(hold=Hold.USER))
    f.control(HOLD, held, by="root", is_operator=True)
    later = f.submit(draft(begin_at_s=f.clock.now_s + 5_000.0))
    f.restart()
    f.run_for(10.0)
    f.compact()
    f.restart()
    f.run_for(400.0)
    assert (why(f, held), why(f, later)) == (ReasonCode.ADMIN_HOLD, ReasonCode.BEGIN_TIME)
    f.run_for(5_000.0)
    assert (f.state(held), f.state(later)) == (INELIGIBLE, RUNNING)


# ---- begin times ----


def test_what_may_begin_later_starts_then_and_not_before() -> None:
    f = federation()
    begin_s = f.clock.now_s + 1_000.0
    id_ = f.submit(draft(begin_at_s=begin_s))
    f.run_for(999.0)
    assert (f.state(id_), why(f, id_)) == (INELIGIBLE, ReasonCode.BEGIN_TIME)
    f.run_for(2.0)
    assert f.state(id_) is RUNNING
    assert f.entry(id_).eligible_at_s == begin_s


def test_a_begin_time_that_has_passed_says_nothing() -> None:
    f = federation()
    id_ = f.submit(draft(begin_at_s=f.clock.now_s))
    f.run_for(1.0)
    assert (f.state(id_), f.entry(id_).eligible_at_s) == (RUNNING, 0.0)


def test_a_released_workload_still_waits_for_its_begin_time() -> None:
    f = federation()
    id_ = f.submit(draft(hold=Hold.USER, begin_at_s=f.clock.now_s + 100.0))
    f.control(RELEASE, id_)
    assert (f.state(id_), why(f, id_)) == (INELIGIBLE, ReasonCode.BEGIN_TIME)
    f.run_for(101.0)
    assert f.state(id_) is RUNNING


# ---- age ----


def test_what_may_not_start_gains_no_age() -> None:
    f = federation()
    blocker = f.submit(draft(gang(2)))
    f.run_for(1.0)
    held = f.submit(draft(gang(2), hold=Hold.USER))
    f.run_for(100.0)
    waits = f.submit(draft(gang(2)))
    f.run_for(100.0)
    f.control(RELEASE, held)
    order = [
        id_
        for row in f.federation.ledger.backlog.rows()
        for lane in f.federation.ledger.backlog.lanes(row)
        for id_ in (lane.place(k)[1] for k in range(len(lane)))
    ]
    assert f.state(blocker) is RUNNING
    assert order == [waits, held]
    f.restart()
    assert f.entry(held).queued_since_s > f.entry(waits).queued_since_s


# ---- deadlines ----


def due(f: Loopback, wanted: Draft) -> Draft:
    """It is to have ended in two minutes, and takes one."""
    now_s = f.clock.now_s
    return replace(wanted, deadline_at_s=now_s + 120.0, starts_by_s=now_s + 60.0)


def test_a_job_that_cannot_end_by_its_deadline_any_more_has_ended_as_in_slurm() -> None:
    f = federation(nodes=1)
    f.submit(draft())
    id_ = f.submit(due(f, draft()))
    f.run_for(59.0)
    assert f.state(id_) is PENDING
    f.run_for(1.0)
    entry = f.entry(id_)
    assert (entry.state, entry.site_state) == (WorkloadState.FAILED, "DEADLINE")
    assert (entry.exit_code, entry.signal) == (0, 1)
    assert entry.reason is not None
    assert entry.reason.code is ReasonCode.DEADLINE
    assert f.replayed().entries[id_].state is WorkloadState.FAILED


def test_a_deadline_ends_what_is_held_and_every_task_of_an_array() -> None:
    f = federation()
    first = f.submit(due(f, draft(hold=Hold.USER, array_indices=(0, 1))))
    f.run_for(61.0)
    states = [f.state(id_) for id_ in (first, WorkloadId(first + 1))]
    assert states == [WorkloadState.FAILED] * 2


def test_what_runs_by_then_runs_on_and_does_not_wait_again() -> None:
    f = federation()
    id_ = f.submit(due(f, draft()))
    f.run_for(90.0)
    assert f.state(id_) is RUNNING
    f.control(ControlVerb.REQUEUE, id_)
    f.run_for(300.0)
    assert (f.state(id_), f.entry(id_).site_state) == (WorkloadState.FAILED, "DEADLINE")


def test_what_is_too_late_from_the_beginning_is_refused() -> None:
    f = federation()
    f.run_for(1.0)
    answer = f.ask(
        replace(draft(), deadline_at_s=f.clock.now_s + 30.0, starts_by_s=f.clock.now_s - 30.0)
    )
    assert isinstance(answer, AnswerRefused)
    assert answer.refusals[SiteName("")].reasons[0].code is ReasonCode.DEADLINE


def test_a_deadline_is_kept_by_the_daemon_that_comes_after() -> None:
    f = federation(nodes=1)
    f.submit(draft())
    id_ = f.submit(due(f, draft()))
    f.run_for(1.0)
    f.restart()
    f.run_for(80.0)
    assert (f.state(id_), f.entry(id_).site_state) == (WorkloadState.FAILED, "DEADLINE")


def test_a_deadline_that_is_taken_away_ends_nothing() -> None:
    f = federation(nodes=1)
    f.submit(draft())
    id_ = f.submit(due(f, draft()))
    change = Amended(at_s=0.0, workloads=(id_,), deadline_at_s=inf, starts_by_s=inf)
    f.observe(
        ControlAsked(
            client=99,
            verb=ControlVerb.UPDATE,
            ids=(id_,),
            by="ada",
            is_operator=True,
            amended=(change,),
        )
    )
    f.run_for(200.0)
    assert f.state(id_) is PENDING
