"""What a site remembers and the log does not hold is taken in as it stands there, and runs once."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from math import inf, nan
from typing import Any

import pytest

from federator.errors import LogIsOld
from federator.model.data_output import DataOutput
from federator.model.data_use import DataUse
from federator.model.lifecycle import WorkloadState
from federator.model.message import (
    AnswerSubmitted,
    AskAbout,
    AttemptsShown,
    LaunchAt,
    Note,
    Remembered,
    SiteSent,
    SiteUp,
)
from federator.model.reason import ReasonCode
from federator.model.site import AttemptReport, Leave, NodeShare, SiteJobState
from federator.model.site_message import Ask, CancelOrder, Report
from federator.model.submission import NodeRange, Submission, pack_submission
from federator.model.tenant import Tenant
from federator.model.workload import (
    FIRST_WORKLOAD_ID,
    ArrayTask,
    AttemptId,
    SiteName,
    TenantName,
    Workload,
)
from federator.sched.passes.adoption import _submitted
from federator.sched.passes.pending_reconciliation import TELLS_WITHIN_S, PendingReconciliation
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback, sent

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
TENANTS = (Tenant(name=TenantName("vision")),)
BEGAN_S = 1_795_000_000.0  # ids grow with time
RUNNING, COMPLETED = SiteJobState.RUNNING, SiteJobState.COMPLETED


def lost() -> tuple[Loopback, Remembered]:
    """A federation that launched a workload, and another that has lost all of its log."""
    f = Loopback({"alpine": rack("a", 4), "baker": rack("b", 2)}, tenants=TENANTS, began_s=BEGAN_S)
    f.submit(draft(gang(2)), key="mine")
    f.run_for(1.0)
    (order,) = [c for c in f.commands if isinstance(c, LaunchAt)]
    told = Remembered(
        attempt=order.attempt,
        user=order.workload.user,
        site_job_id=101,
        workload=order.workload,
        jobs=order.jobs,
        key=order.key,
        priority=order.priority,
        report=report(order.workload),
    )
    new = Loopback(
        {"alpine": rack("a", 4), "baker": rack("b", 2)},
        tenants=TENANTS,
        began_s=f.clock.now_s + 1.0,
    )
    new.run_for(1.0)
    return new, told


def report(
    workload: Workload, state: SiteJobState = RUNNING, attempt: int = 1, **fields: Any
) -> AttemptReport:
    started_s = 0.0 if state is SiteJobState.PENDING else 1000.0
    return replace(
        AttemptReport(
            attempt=AttemptId(workload=workload.id, attempt=attempt),
            user=workload.user,
            site_job_id=101,
            state=state,
            started_at_s=started_s,
        ),
        **fields,
    )


def show(f: Loopback, told: Remembered, site: SiteName = ALPINE) -> WorkloadState | None:
    """Its state, once the site has told; invariants of the simulated site do not hold here."""
    commands = f.federation.handle(AttemptsShown(site=site, attempts=(told,)), f.clock.now_s)
    f.commands += commands
    entry = f.federation.ledger.entries.get(told.attempt.workload)
    return entry.state if entry is not None else None


def ending(told: Remembered, state: SiteJobState, **fields: Any) -> Remembered:
    assert told.workload is not None
    return replace(told, report=report(told.workload, state, **fields))


def test_what_runs_and_is_unknown_is_adopted_with_id_attempt_key_and_plan() -> None:
    f, told = lost()
    assert show(f, told) is WorkloadState.RUNNING
    entry = f.entry(told.attempt.workload)
    assert entry.workload == told.workload
    assert (entry.attempt, entry.site, entry.site_job_id) == (1, ALPINE, 101)
    assert entry.plan == told.jobs
    assert f.federation.ledger.keys.id_of["mine"] == entry.workload.id
    assert f.federation.ledger.next_id > entry.workload.id
    assert f.federation.ledger.keys.of(entry.workload) == "mine"
    assert not [c for c in f.commands if isinstance(c, LaunchAt)]
    assert not sent(f.commands, CancelOrder)


def test_it_is_asked_about_when_a_report_shows_it() -> None:
    f, told = lost()
    assert told.report is not None
    seen = SiteSent(site=ALPINE, message=Report(attempts=(told.report,)))
    asked = [c for c in f.federation.handle(seen, f.clock.now_s) if isinstance(c, AskAbout)]
    assert asked == [AskAbout(site=ALPINE, attempts=(told.attempt,))]


@pytest.mark.parametrize(
    ("state", "becomes"),
    [
        (SiteJobState.PENDING, WorkloadState.LAUNCHING),
        (SiteJobState.COMPLETED, WorkloadState.COMPLETED),
        (SiteJobState.FAILED, WorkloadState.FAILED),
        (SiteJobState.CANCELLED, WorkloadState.CANCELLED),
        (SiteJobState.TIMEOUT, WorkloadState.TIMEOUT),
        (SiteJobState.NODE_FAIL, WorkloadState.PENDING),
    ],
)
def test_it_stands_as_its_site_says(state: SiteJobState, becomes: WorkloadState) -> None:
    f, told = lost()
    assert show(f, ending(told, state)) is becomes


def test_what_nobody_knows_the_end_of_is_not_run_again() -> None:
    f, told = lost()
    assert show(f, replace(told, report=None)) is WorkloadState.FAILED
    reason = f.entry(told.attempt.workload).reason
    assert reason is not None
    assert reason.code is ReasonCode.LOST


def test_what_the_site_refused_waits_again() -> None:
    f, told = lost()
    refused = replace(told, report=None, void=True, site_job_id=0)
    assert show(f, refused) is WorkloadState.PENDING
    assert f.entry(told.attempt.workload).attempt == 1


def test_what_its_user_cancelled_stays_cancelled() -> None:
    f, told = lost()
    void = replace(told, report=None, void=True, site_job_id=0, cancelled=True)
    assert show(f, void) is WorkloadState.CANCELLED
    f, told = lost()
    assert show(f, replace(told, cancelled=True)) is WorkloadState.CANCELLING
    assert show(f, ending(told, SiteJobState.CANCELLED)) is WorkloadState.CANCELLED


def test_what_we_withdrew_waits_again() -> None:
    f, told = lost()
    gone = ending(told, SiteJobState.CANCELLED, started_at_s=0.0, ended_at_s=f.clock.now_s)
    assert show(f, replace(gone, withdrawn=True)) is WorkloadState.PENDING


def test_what_was_evicted_and_has_left_waits_again() -> None:
    f, told = lost()
    left = ending(
        told,
        SiteJobState.FAILED,
        exit_code=143,
        ended_at_s=1010.0,
        leave=Leave(told_at_s=1001.0, saved_at_s=1005.0),
    )
    assert show(f, left) is WorkloadState.PENDING
    assert f.entry(told.attempt.workload).saved_at == ALPINE


def test_a_task_keeps_its_array() -> None:
    f, told = lost()
    assert told.workload is not None
    array = ArrayTask(array_id=told.workload.id, index=3, max_running=2)
    id_ = type(told.workload.id)(told.workload.id + 3)
    task = replace(told.workload, id=id_, array=array)
    told = replace(told, workload=task, attempt=AttemptId(workload=id_, attempt=1))
    assert show(f, replace(told, report=report(task))) is WorkloadState.RUNNING
    assert f.entry(id_).workload == task
    assert f.federation.ledger.keys.id_of["mine"] == array.array_id


def test_a_later_attempt_than_the_logs_is_its_workloads_present_one() -> None:
    f, told = lost()
    assert show(f, told) is WorkloadState.RUNNING
    second = replace(told.attempt, attempt=2)
    assert told.workload is not None
    later = replace(told, attempt=second, report=report(told.workload, attempt=2))
    assert show(f, later, BAKER) is WorkloadState.RUNNING
    entry = f.entry(told.attempt.workload)
    assert (entry.attempt, entry.site) == (2, BAKER)
    stray = SiteSent(site=ALPINE, message=Report(attempts=(report(told.workload),)))
    ended = sent(f.federation.handle(stray, f.clock.now_s), CancelOrder)
    assert [(site, order.attempt) for site, order in ended] == [(ALPINE, told.attempt)]


def test_a_completed_workload_waits_no_more_though_its_site_has_put_its_order_aside() -> None:
    """It waits in an export that is older than its launch."""
    f, told = lost()
    refused = replace(told, report=None, void=True, site_job_id=0)
    assert show(f, refused) is WorkloadState.PENDING
    second = replace(told.attempt, attempt=2)
    assert told.workload is not None
    done = report(told.workload, COMPLETED, attempt=2)
    bare = replace(told, attempt=second, workload=None, jobs=(), report=done)
    assert show(f, bare) is WorkloadState.COMPLETED


def test_without_its_submission_only_what_has_completed_is_adopted() -> None:
    nothing = pack_submission(Submission(components=(), script=""))
    f, told = lost()
    assert told.workload is not None
    trimmed = replace(told, workload=replace(told.workload, submission=nothing))
    assert show(f, trimmed) is None
    left = Leave(told_at_s=1001.0)  # it waits again, and would have no script
    assert show(f, ending(trimmed, COMPLETED, ended_at_s=1010.0, leave=left)) is None
    another = ending(trimmed, COMPLETED, site_job_id=102)  # its own end is not told
    assert show(f, another) is None
    assert show(f, ending(trimmed, COMPLETED)) is WorkloadState.COMPLETED


@pytest.mark.parametrize("site", ["", "alpine:"])
@pytest.mark.parametrize("known", [False, True])
def test_what_runs_on_nodes_or_in_a_reservation_that_its_user_named_is_adopted_and_runs_once(
    site: str, known: bool
) -> None:
    f, told = lost()
    assert told.workload is not None
    (job,) = told.workload.jobs
    (plan,) = told.jobs
    job = replace(
        job, nodelist=tuple(site + name for name in plan.nodes), reservation=(site + "r1",)
    )
    workload = replace(told.workload, jobs=(replace(job, exclude=("baker:b1", site + "a4")),))
    told = replace(told, workload=workload, jobs=(replace(plan, reservation="r1"),))
    if known:  # the log has lost its end only
        f.federation.ledger.apply(_submitted(workload, "mine"))
    assert show(f, told) is WorkloadState.RUNNING
    assert not [c for c in f.commands if isinstance(c, Note) and c.event == "attempt_not_adopted"]
    assert not launched(f)


def every_field(workload: Workload) -> Workload:
    """The workload with another value than the default in each field that has one."""
    return replace(
        workload,
        jobs=(*workload.jobs, replace(gang(1), name="more")),
        asked_priority=5,
        nice=7,
        time_limit_s=3600.0,
        requeue=False,
        no_preempt=True,
        continues=True,
        migrates=True,
        signal_lead_s=30.0,
        array=ArrayTask(array_id=workload.id, index=3, max_running=2),
        optional=True,
        deadline_at_s=workload.submitted_at_s + 9_000.0,
        spare=1,
        starts_by_s=workload.submitted_at_s + 5_000.0,
        interactive=True,
        watched=True,
        project="p",
        datasets=("d",),
        data=(DataUse(name="d", version="1", owner="ada"),),
        output=DataOutput(name="maps", version="v1"),
        elastic=NodeRange(least=1, most=4),
    )


def test_no_field_of_a_workload_is_forgotten_when_it_is_adopted() -> None:
    _, told = lost()
    assert told.workload is not None
    alone = every_field(told.workload)
    het = replace(alone, array=None, optional=False, optional_jobs=(1,))
    for workload in (alone, het):
        draft_ = _submitted(workload, "mine").draft
        first = workload.id
        array_id = None if workload.array is None else workload.array.array_id
        assert draft_.workloads(first, workload.submitted_at_s, array_id) == (workload,)
    untested = {
        field.name
        for field in fields(Workload)
        if field.default is not MISSING
        and all(getattr(w, field.name) == field.default for w in (alone, het))
    }
    assert not untested  # give a new field another value above


def test_a_plan_on_other_nodes_than_were_named_is_not_adopted() -> None:
    f, told = lost()
    assert told.workload is not None
    (job,) = told.workload.jobs
    for named in ("a4", "alpine:a4", "baker:a1"):
        workload = replace(told.workload, jobs=(replace(job, nodelist=(named,)),))
        assert show(f, replace(told, workload=workload)) is None


def test_words_that_do_not_fit_each_other_change_nothing() -> None:
    f, told = lost()
    assert told.workload is not None
    other = replace(told.workload, user="mallory")
    wrong_id = replace(told.workload, id=type(told.workload.id)(told.workload.id + 1))
    for workload in (other, wrong_id):
        assert show(f, replace(told, workload=workload)) is None
    assert show(f, replace(told, jobs=())) is None
    notes = [c.event for c in f.commands if isinstance(c, Note)]
    assert notes.count("attempt_not_adopted") == 3


def test_a_report_of_another_attempt_proves_nothing() -> None:
    f, told = lost()
    assert told.report is not None
    other = replace(told.attempt, attempt=2)
    assert show(f, replace(told, report=replace(told.report, attempt=other))) is None
    assert show(f, replace(told, report=replace(told.report, user="mallory"))) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 0},
        {"priority": 8},
        {"tenant": TenantName("nobody")},
        {"submitted_at_s": inf},
        {"submitted_at_s": nan},
        {"signal_lead_s": inf},
        {"time_limit_s": nan},
        {"time_limit_s": -1.0},
    ],
)
def test_a_workload_whose_numbers_make_no_sense_is_not_adopted(fields: dict[str, Any]) -> None:
    f, told = lost()
    assert told.workload is not None
    assert show(f, replace(told, workload=replace(told.workload, **fields))) is None


@pytest.mark.parametrize(
    "fields", [{"priority": 8}, {"priority": -1}, {"credit": inf}, {"credit": nan}]
)
def test_an_award_whose_numbers_make_no_sense_is_not_adopted(fields: dict[str, Any]) -> None:
    f, told = lost()
    assert show(f, replace(told, **fields)) is None


def test_nobody_is_adopted_with_less_than_nothing() -> None:
    """A negative share would take from what the tenant is charged for all others."""
    f, told = lost()
    (plan,) = told.jobs
    for share in (NodeShare(gpus=-1000, cpus=1), NodeShare(gpus=2**60, cpus=1), NodeShare()):
        wrong = replace(plan, nodes=dict.fromkeys(plan.nodes, share))
        assert show(f, replace(told, jobs=(wrong,))) is None


@pytest.mark.parametrize("number", [0, 2**31, 2**63 - 1])
def test_an_attempt_after_which_there_is_no_number_left_is_not_adopted(number: int) -> None:
    """The next award could not be stored, nor would the daemon start again."""
    f, told = lost()
    assert told.workload is not None
    who = replace(told.attempt, attempt=number)
    seen = report(told.workload, attempt=number)
    assert show(f, replace(told, attempt=who, report=seen)) is None


def test_what_was_submitted_by_a_clock_ahead_of_this_one_was_submitted_now() -> None:
    f, told = lost()
    assert told.workload is not None
    ahead = replace(told.workload, submitted_at_s=f.clock.now_s + 60.0)
    assert show(f, replace(told, workload=ahead)) is WorkloadState.RUNNING
    assert f.entry(ahead.id).workload.submitted_at_s == f.clock.now_s


def test_a_site_cannot_use_up_ids_or_take_anothers_key_or_join_anothers_array() -> None:
    f, told = lost()
    assert told.workload is not None
    kind = type(told.workload.id)
    for id_ in (kind(2**62), kind(7)):
        far = replace(told.workload, id=id_)
        who = AttemptId(workload=id_, attempt=1)
        assert show(f, replace(told, attempt=who, workload=far, report=report(far))) is None
    others = f.submit(replace(draft(gang(1)), user="eve", array_indices=(1, 2)), key="eves")
    array = ArrayTask(array_id=others, index=5)
    joins = replace(told.workload, id=kind(others + 5), array=array)
    who = AttemptId(workload=joins.id, attempt=1)
    assert show(f, replace(told, attempt=who, workload=joins, report=report(joins))) is None
    own = replace(told.workload, id=kind(others - 50))
    who = AttemptId(workload=own.id, attempt=1)
    named = replace(told, attempt=who, workload=own, report=report(own), key="eves")
    assert show(f, named) is WorkloadState.RUNNING
    assert f.federation.ledger.keys.id_of["eves"] == others


def test_the_retry_of_a_submission_that_was_adopted_when_it_had_completed_is_told_its_id() -> None:
    """Of what has completed no site keeps the submission, so there is nothing to compare with."""
    f, told = lost()
    assert told.workload is not None
    bare = replace(told.workload, submission=pack_submission(Submission(components=(), script="")))
    assert show(f, replace(ending(told, COMPLETED), workload=bare)) is WorkloadState.COMPLETED
    answer = f.ask(draft(gang(2)), key="mine")
    assert isinstance(answer, AnswerSubmitted)
    assert answer.id == told.attempt.workload


def test_what_an_earlier_term_began_is_adopted_though_the_log_has_lost_its_tail() -> None:
    """Ids of a term are above all that earlier terms gave out, recorded or not."""
    f = Loopback({"alpine": rack("a", 4)}, tenants=TENANTS, began_s=BEGAN_S)
    kept = f.submit(draft(gang(1)))
    f.run_for(1.0)
    log = list(f.log)
    f.submit(draft(gang(2)), key="mine")
    f.run_for(1.0)
    order = [c for c in f.commands if isinstance(c, LaunchAt)][-1]
    assert order.attempt.workload > kept
    told = Remembered(
        attempt=order.attempt,
        user=order.workload.user,
        site_job_id=102,
        workload=order.workload,
        jobs=order.jobs,
        key=order.key,
        priority=order.priority,
        report=report(order.workload, site_job_id=102),
    )
    f.log[:] = log
    f.clock.now_s += 1.0
    f.restart()
    assert f.federation.ledger.entries.keys() == {kept}
    assert show(f, told) is WorkloadState.RUNNING
    assert f.federation.ledger.keys.id_of["mine"] == order.attempt.workload
    assert f.submit(draft(gang(1))) > order.attempt.workload


def test_what_is_over_is_ended_if_a_later_attempt_lives() -> None:
    f, told = lost()
    assert show(f, ending(told, COMPLETED)) is WorkloadState.COMPLETED
    assert told.workload is not None
    second = replace(told.attempt, attempt=2)
    later = replace(told, attempt=second, report=report(told.workload, attempt=2))
    assert show(f, later) is WorkloadState.COMPLETED
    assert [order.attempt for _, order in sent(f.commands, CancelOrder)] == [second]


def test_telling_it_again_changes_nothing() -> None:
    f, told = lost()
    show(f, told)
    records = len(f.commands)
    show(f, told)
    assert len(f.commands) == records


# ---- a log from the past ----


def restarted(f: Loopback) -> tuple[int, int]:
    """Epochs: the last one of the log, and the one that begins."""
    before = f.federation.ledger.epoch
    f.clock.now_s += 1000.0
    f.restart()
    return before, f.federation.ledger.epoch


def test_a_log_that_is_older_than_what_a_site_has_seen_is_not_scheduled_from() -> None:
    f = Loopback({"alpine": rack("a", 1)})
    before, now = restarted(f)
    for known in (0, before - 1, before, now):
        up = SiteUp(site=ALPINE, last_epoch=known)
        assert not f.federation.handle(up, f.clock.now_s)
    with pytest.raises(LogIsOld, match=r"older copy.*federator recover"):
        f.federation.handle(SiteUp(site=ALPINE, last_epoch=before + 1), f.clock.now_s)


def test_a_new_log_may_begin_where_another_was_served_and_says_so() -> None:
    f = Loopback({"alpine": rack("a", 1)})
    up = SiteUp(site=ALPINE, last_epoch=f.federation.ledger.epoch - 1)
    (note,) = f.federation.handle(up, f.clock.now_s)
    assert isinstance(note, Note)
    assert note.event == "log_is_new"


# ---- a log from the past that no epoch gives away ----


def waiting(fleet: tuple[str, ...] = ("alpine", "baker")) -> tuple[Loopback, Workload]:
    """A workload that waits in the log, and room for it everywhere."""
    f = Loopback({name: rack(name[0], 4) for name in fleet})
    f.run_for(1.0)
    id_ = f.submit(draft(gang(2)))
    return f, f.entry(id_).workload


def seen(f: Loopback, told: AttemptReport, site: SiteName = ALPINE) -> list[AskAbout]:
    """What the site is asked about once it has shown this."""
    shown = SiteSent(site=site, message=Report(attempts=(told,)))
    commands = f.federation.handle(shown, f.clock.now_s)
    return [c for c in commands if isinstance(c, AskAbout)]


def launched(f: Loopback) -> list[AttemptId]:
    return [c.attempt for c in f.commands if isinstance(c, LaunchAt)]


def test_what_has_ended_at_a_site_and_waits_in_the_log_is_asked_about_and_not_run_again() -> None:
    f, workload = waiting()
    done = report(workload, COMPLETED)
    assert seen(f, done) == [AskAbout(site=ALPINE, attempts=(done.attempt,))]
    f.run_for(300.0)
    assert not launched(f)
    told = Remembered(attempt=done.attempt, user=workload.user, site_job_id=101, report=done)
    assert show(f, told) is WorkloadState.COMPLETED
    assert not seen(f, done)


def test_what_runs_at_a_site_and_waits_in_the_log_starts_nowhere_until_the_site_has_told() -> None:
    f, workload = waiting()
    shown = report(workload)
    assert seen(f, shown)
    f.run_for(300.0)
    assert not launched(f)
    (why,) = f.refusals(workload.id).values()
    assert why.reasons[0].code is ReasonCode.NO_ANSWER
    told = Remembered(attempt=shown.attempt, user=workload.user, site_job_id=101, report=shown)
    assert show(f, told) is WorkloadState.RUNNING


def test_it_is_not_awarded_either_if_it_is_shown_while_bids_are_awaited() -> None:
    f, workload = waiting(("alpine",))
    while not sent(f.commands, Ask):
        f.run_for(0.01)
    assert seen(f, report(workload))
    f.run_for(300.0)
    assert not launched(f)


def test_once_the_site_has_told_that_nothing_came_of_it_it_may_start() -> None:
    f, workload = waiting()
    shown = report(workload)
    assert seen(f, shown)
    void = Remembered(attempt=shown.attempt, user=workload.user, void=True)
    assert show(f, void) is WorkloadState.PENDING
    f.run_for(60.0)
    assert launched(f) == [AttemptId(workload=workload.id, attempt=2)]


def test_a_comment_that_pretends_holds_nobody_else_and_its_own_user_not_for_ever() -> None:
    f, workload = waiting()
    assert not seen(f, replace(report(workload), user="mallory"))
    assert seen(f, report(workload))
    f.run_for(TELLS_WITHIN_S - 60.0)
    assert not launched(f)
    f.run_for(120.0)
    assert launched(f)


def test_a_site_that_is_down_is_waited_for() -> None:
    unsure, id_ = PendingReconciliation(), AttemptId(workload=FIRST_WORKLOAD_ID, attempt=1)
    unsure.ask(ALPINE, (id_,), 0.0)
    unsure.lapse(10.0 * TELLS_WITHIN_S, lambda _: False)
    assert id_.workload in unsure
    unsure.lapse(10.0 * TELLS_WITHIN_S, lambda _: True)
    assert id_.workload not in unsure
