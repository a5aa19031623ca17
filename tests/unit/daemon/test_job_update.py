"""fscontrol update: jobs that wait ask for something else, under the checks of a submission."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from federator.config_policy import PolicyConfig
from federator.model.eligibility import Hold
from federator.model.event import Amended
from federator.model.lifecycle import WorkloadState
from federator.model.reason import ReasonCode
from federator.model.submission import unpack_submission
from federator.model.tenant import JobLimits
from federator.model.workload import WorkloadId
from federator.policies.mast import Mast
from federator.wire.client_protocol import ControlCall, ControlReply
from federator.wire.replies import Reply
from tests.fakes.build import rack, tenant
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import CONFIG, Desk

RUNNING, PENDING = WorkloadState.RUNNING, WorkloadState.PENDING
INELIGIBLE = WorkloadState.INELIGIBLE


@pytest.fixture
def desk() -> Desk:
    return Desk()


def call(id_: object, **fields: str) -> ControlCall:
    return ControlCall(verb="update", ids=(str(id_),), fields=fields)


def update(desk: Desk, id_: object, **fields: str) -> ControlReply:
    reply = desk.ask(call(id_, **fields))
    assert isinstance(reply, ControlReply), reply
    return reply


def release(desk: Desk, id_: object) -> None:
    desk.ask(ControlCall(verb="release", ids=(str(id_),)))


def options(desk: Desk, id_: WorkloadId) -> dict[str, str | None]:
    w = desk.federation.entry(id_).workload
    return {o.name: o.value for o in unpack_submission(w.submission).components[0]}


def waiting(desk: Desk, key: str = "key-00009", **given: str | None) -> WorkloadId:
    return desk.submit("ada", key, **{"hold": None, **given})


def test_what_a_job_asks_for_is_changed_everywhere(desk: Desk) -> None:
    id_ = waiting(desk, qos="low")
    reply = update(desk, id_, timelimit="2:00:00", nice="7", name="n2", comment="c", qos="")
    assert (reply.ids, reply.errors) == ((id_,), ())
    w = desk.federation.entry(id_).workload
    assert (w.time_limit_s, w.nice, w.name) == (7_200.0, 7, "n2")
    found = options(desk, id_)
    assert (found["time"], found["comment"], "qos" in found) == ("2:00:00", "c", False)


def test_a_job_in_the_queue_starts_with_what_it_asks_for_now(desk: Desk) -> None:
    blockers = [desk.submit(key=f"key-1000{k}", nodes="2") for k in range(2)]
    id_ = desk.submit(key="key-00009", nodes="2")
    assert [desk.federation.state(i) for i in (*blockers, id_)] == [RUNNING, RUNNING, PENDING]
    update(desk, id_, numnodes="1", gres="gpu:4")
    assert len(desk.federation.federation.ledger.backlog) == 1
    desk.federation.cancel(blockers[0])
    desk.federation.run_for(20.0)
    entry = desk.federation.entry(id_)
    assert (entry.state, len(entry.node_names), entry.held_gpus) == (RUNNING, 1, 4)


def test_a_change_keeps_its_place_in_the_queue(desk: Desk) -> None:
    for k in range(2):
        desk.submit(key=f"key-1000{k}", nodes="2")
    first, second = (desk.submit(key=f"key-2000{k}", nodes="2") for k in range(2))
    update(desk, first, timelimit="60")
    ranked = desk.federation.federation.ranked(desk.federation.clock.now_s)
    assert [each.id for each in ranked] == [first, second]


def test_a_change_outlives_restarts_and_snapshots(desk: Desk) -> None:
    id_ = waiting(desk, array="0-3", time="60")
    update(desk, f"{id_}_2", timelimit="30", comment="late")
    for _ in range(2):
        desk.federation.restart()
        limits = [
            desk.federation.entry(WorkloadId(id_ + k)).workload.time_limit_s for k in range(4)
        ]
        assert limits == [3_600.0, 3_600.0, 1_800.0, 3_600.0]
        assert options(desk, WorkloadId(id_ + 2))["comment"] == "late"
        assert "comment" not in options(desk, id_)
        desk.federation.compact()


def test_an_operator_sets_a_deadline_that_goes_by_the_time_limit_of_now(desk: Desk) -> None:
    id_ = waiting(desk, time="10")
    at_s = round(desk.federation.clock.now_s) + 3_600
    assert desk.refusal(call(id_, deadline=f"uts{at_s}")).startswith("Access/permission denied")
    operate(desk, id_, deadline=f"uts{at_s}")
    update(desk, id_, timelimit="20")
    w = desk.federation.entry(id_).workload
    assert (w.deadline_at_s, w.starts_by_s) == (at_s, at_s - 1_199)
    desk.federation.restart()
    desk.federation.compact()
    operate(desk, id_, deadline="")
    w = desk.federation.entry(id_).workload
    assert (w.deadline_at_s, w.starts_by_s) == (inf, inf)


def test_a_time_limit_is_changed_by_so_much(desk: Desk) -> None:
    id_ = waiting(desk, time="60")
    update(desk, id_, **{"timelimit+": "30"})
    assert desk.federation.entry(id_).workload.time_limit_s == 5_400.0
    update(desk, id_, **{"timelimit-": "1:00:00"})
    assert desk.federation.entry(id_).workload.time_limit_s == 1_800.0
    assert "leaves the job no time" in desk.refusal(call(id_, **{"timelimit-": "30"}))
    update(desk, id_, timelimit="UNLIMITED")
    assert desk.federation.entry(id_).workload.time_limit_s == inf
    assert "has no time limit" in desk.refusal(call(id_, **{"timelimit-": "30"}))


def test_begin_and_dependency_can_be_set_and_cleared(desk: Desk) -> None:
    first, id_ = waiting(desk, "key-00001"), waiting(desk)
    begin_s = desk.federation.clock.now_s + 50.0
    update(desk, id_, starttime=f"uts{begin_s:.0f}", dependency=f"afterany:{first}")
    release(desk, id_)
    desk.federation.run_for(100.0)
    assert desk.federation.state(id_) is INELIGIBLE
    update(desk, id_, dependency="")
    assert desk.federation.state(id_) is RUNNING


def test_a_running_job_of_the_queue_is_left_alone(desk: Desk) -> None:
    id_ = desk.submit()
    reply = update(desk, id_, nice="5")
    assert (reply.ids, reply.errors) == (
        (),
        (f"Job is no longer pending execution for job {id_}",),
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"colour": "red"}, "Update of this parameter is not supported: colour"),
        ({"timelimit": "soon"}, "Invalid --time specification"),
        ({"nice": "-5"}, "Invalid"),
        ({"numnodes": "99"}, "Requested node configuration is not available"),
        ({"requeue": "maybe"}, "Requeue=maybe: expected 0 or 1"),
        ({"starttime": "tomorrow"}, "Invalid --begin specification"),
        ({"dependency": "afterok:99"}, "Job dependency problem: job 99 is of one site"),
        ({"dependency": "x"}, "Job dependency problem: --dependency=x"),
    ],
)
def test_what_would_be_refused_at_submission_is_refused_now(
    desk: Desk, fields: dict[str, str], said: str
) -> None:
    id_ = waiting(desk)
    before = desk.federation.entry(id_).workload
    assert said in desk.refusal(call(id_, **fields))
    assert desk.federation.entry(id_).workload == before


def test_no_job_comes_to_depend_on_itself(desk: Desk) -> None:
    first = waiting(desk, "key-00001")
    second = waiting(desk, "key-00002", dependency=f"afterok:{first}")
    third = waiting(desk, "key-00003", dependency=f"afterok:{second}")
    for later in (first, second, third):
        said = desk.refusal(call(first, dependency=f"afterany:{later}"))
        assert said == f"Circular job dependency: job {first} would depend on itself"
    update(desk, third, dependency=f"afterok:{first}")


def test_a_singleton_that_is_renamed_waits_for_others(desk: Desk) -> None:
    ids = [
        desk.submit(key=f"key-0000{k}", dependency="singleton", **{"job-name": "s"})
        for k in range(3)
    ]
    assert [desk.federation.state(i) for i in ids] == [RUNNING, INELIGIBLE, INELIGIBLE]
    update(desk, ids[1], name="t")
    assert [desk.federation.state(i) for i in ids] == [RUNNING, RUNNING, INELIGIBLE]
    desk.federation.cancel(ids[0])
    desk.federation.run_for(20.0)
    assert desk.federation.state(ids[2]) is RUNNING


def test_a_job_that_no_site_took_is_tried_with_what_it_asks_for_now(desk: Desk) -> None:
    for site in ("alpine", "baker"):
        desk.federation.refuse_launches(site, code=ReasonCode.SBATCH_REFUSED)
    id_ = desk.submit(qos="wrong")
    desk.federation.run_for(10.0)
    assert desk.federation.state(id_) is WorkloadState.HELD
    for site in ("alpine", "baker"):
        desk.federation.refuse_launches(site, refuses=False)
    update(desk, id_, qos="right")
    desk.federation.run_for(5.0)
    assert desk.federation.state(id_) is RUNNING


def test_switches_that_a_job_has_given_up_are_wanted_again_only_if_they_are_set() -> None:
    desk = Desk(Loopback({"alpine": (*rack("a", 1), *rack("b", 1))}, tenants=(tenant("vision"),)))
    f = desk.federation
    first = desk.submit("ada", "key-000077", switches="1@1", nodes="2", time="10", array="0-1")
    f.run_for(30.0)
    desk.ask(ControlCall(verb="hold", ids=(str(first),)))
    f.run_for(60.0)
    late = f.entry(WorkloadId(first + 1)).workload
    again = Amended(
        at_s=f.clock.now_s,
        workloads=(late.id,),
        jobs=tuple(replace(job, switches=1) for job in late.jobs),
    )
    f.federation.ledger.apply(again)  # as if its wait were not over yet

    def wanted() -> list[int]:
        return [f.entry(WorkloadId(first + k)).workload.jobs[0].switches for k in range(2)]

    assert wanted() == [0, 1]
    update(desk, first, timelimit="5")
    assert wanted() == [0, 1]
    update(desk, first, switches="2@1")
    assert wanted() == [2, 2]


# ---- priority, account, throttle ----


def operate(desk: Desk, id_: object, **fields: str) -> ControlReply:
    """Change jobs as an operator on the daemon's host."""
    replies: list[Reply] = []
    desk.api.take_here("root", call(id_, **fields), replies.append)
    desk.federation.run_for(1.0)
    desk.pass_on_answers()
    (reply,) = replies
    assert isinstance(reply, ControlReply), reply
    return reply


def test_users_lower_the_priority_and_only_operators_raise_it_again(desk: Desk) -> None:
    (waits,) = queued(desk, 1)
    update(desk, waits, priority="5")
    w = desk.federation.entry(waits).workload
    assert (w.priority, w.asked_priority, options(desk, waits)["fed-priority"]) == (5, 5, "5")
    assert "Access/permission denied" in desk.refusal(call(waits, priority="4"))
    operate(desk, waits, priority="3")
    assert desk.federation.entry(waits).workload.asked_priority == 3


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1", "Access/permission denied"),
        ("8", "Priority=8: expected 1, the highest, to 7"),
        ("4294901750", "expected 1, the highest, to 7"),
    ],
)
def test_a_priority_that_cannot_be_is_refused(desk: Desk, value: str, said: str) -> None:
    (waits,) = queued(desk, 1)
    assert said in desk.refusal(call(waits, priority=value))
    said = desk.refusal(call(waiting(desk), priority="3"))
    assert said.startswith("Job is in held state, pending scheduler release")


def test_priority_zero_holds(desk: Desk) -> None:
    (id_,) = queued(desk, 1)
    update(desk, id_, priority="0")
    assert desk.federation.entry(id_).hold is Hold.USER
    release(desk, id_)
    operate(desk, id_, priority="0")
    assert desk.federation.entry(id_).hold is Hold.ADMIN
    update(desk, id_, priority="0")
    assert desk.federation.entry(id_).hold is Hold.ADMIN, "it is not the user's to release"


def test_a_job_goes_to_another_account_of_its_user(desk: Desk) -> None:
    id_ = waiting(desk)
    update(desk, id_, account="nlp")
    for _ in range(2):
        w = desk.federation.entry(id_).workload
        assert (w.tenant, w.priority, options(desk, id_)["account"]) == ("nlp", 5, "nlp")
        desk.federation.restart()
        desk.federation.compact()
    update(desk, id_, account="")
    assert desk.federation.entry(id_).workload.tenant == "vision"
    said = desk.refusal(call(id_, account="lab"))
    assert said.startswith("Invalid account or account/partition combination specified")


def test_jobs_that_go_to_another_account_together_do_not_pass_its_submit_limits() -> None:
    desk = limited(submit_per_user=2)
    ids = [waiting(desk, f"key-1000{k}") for k in range(4)]
    change = ControlCall(verb="update", ids=tuple(map(str, ids)), fields={"account": "nlp"})
    reply = desk.ask(change)
    assert isinstance(reply, ControlReply)
    assert reply.ids == tuple(ids[:2])
    words = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    assert reply.errors == tuple(f"{words} for job {id_}" for id_ in ids[2:])
    tenants = [desk.federation.entry(id_).workload.tenant for id_ in ids]
    assert tenants == ["nlp", "nlp", "vision", "vision"]


def test_an_array_goes_to_another_account_as_a_whole_or_not_at_all() -> None:
    desk = limited(submit=2)
    first = waiting(desk, array="0-2")
    assert desk.refusal(call(first, account="nlp")).startswith("AssocGrpSubmitJobsLimit")


def test_of_two_arrays_that_go_together_the_second_is_not_split_over_two_accounts() -> None:
    desk = limited(submit=3)
    a, b = (waiting(desk, f"key-1000{k}", array="0-1") for k in range(2))
    single = waiting(desk, "key-10009")
    ids = tuple(map(str, (a, b, single)))
    reply = desk.ask(ControlCall(verb="update", ids=ids, fields={"account": "nlp"}))
    assert isinstance(reply, ControlReply)
    assert (reply.ids, len(reply.errors)) == ((a, a + 1, single), 2)
    tenants = [desk.federation.entry(WorkloadId(b + k)).workload.tenant for k in range(2)]
    assert tenants == ["vision", "vision"]


def limited(**limits: float) -> Desk:
    """A desk where nlp takes only so many jobs."""
    sites = {"alpine": rack("a", 2)}
    nlp = replace(tenant("nlp", priority=5), jobs=JobLimits(**limits))
    return Desk(Loopback(sites, tenants=(tenant("vision"), nlp)))


def test_the_throttle_of_an_array_is_changed_while_some_of_it_run(desk: Desk) -> None:
    first = desk.submit(array="0-3%1")
    states = [desk.federation.state(WorkloadId(first + k)) for k in range(4)]
    assert states.count(RUNNING) == 1
    assert update(desk, first, arraytaskthrottle="3").errors == ()
    desk.federation.run_for(20.0)
    states = [desk.federation.state(WorkloadId(first + k)) for k in range(4)]
    assert states.count(RUNNING) == 3
    update(desk, first, arraytaskthrottle="0")
    desk.federation.run_for(20.0)
    desk.federation.restart()
    tasks = [desk.federation.entry(WorkloadId(first + k)).workload.array for k in range(4)]
    assert [task.max_running for task in tasks if task is not None] == [0, 0, 0, 0]


def test_a_throttle_is_of_a_whole_array(desk: Desk) -> None:
    first = waiting(desk, array="0-3%1")
    said = desk.refusal(call(f"{first}_2", arraytaskthrottle="3"))
    assert said == f"ArrayTaskThrottle is of a whole array: name it by its id, {first}"
    said = desk.refusal(call(waiting(desk, "key-00010"), arraytaskthrottle="3"))
    assert said.endswith("is no job array")
    assert "expected a number of tasks" in desk.refusal(call(first, arraytaskthrottle="x"))


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("contiguous", "yes", "contiguous"),
        ("corespec", "2", "core-spec"),
        ("reboot", "1", "reboot"),
    ],
)
def test_what_slurm_leaves_to_operators_is_theirs(
    desk: Desk, field: str, value: str, option: str
) -> None:
    id_ = waiting(desk)
    assert desk.refusal(call(id_, **{field: value})).startswith("Access/permission denied")
    operate(desk, id_, **{field: value})
    assert option in options(desk, id_)


def test_users_may_say_no_to_a_switch_that_only_operators_set(desk: Desk) -> None:
    id_ = waiting(desk, contiguous=None)
    update(desk, id_, contiguous="no")
    assert "contiguous" not in options(desk, id_)
    assert "expected yes or no" in desk.refusal(call(id_, contiguous="perhaps"))


# ---- top ----

TOP = CONFIG.model_copy(update={"policy": PolicyConfig(enable_user_top=True)})


def where_top_is_enabled() -> Desk:
    sites = {"alpine": rack("a", 2), "baker": rack("b", 2)}
    return Desk(Loopback(sites, None, None, Mast(), (tenant(), tenant("nlp"))), TOP)


def queued(desk: Desk, number: int) -> list[WorkloadId]:
    """Jobs that wait in the queue behind two that run, in this order."""
    for k in range(2):
        desk.submit(key=f"key-1000{k}", nodes="2")
    return [desk.submit(key=f"key-2000{k}", nodes="2") for k in range(number)]


def order(desk: Desk, in_h: float = 0.0) -> list[WorkloadId]:
    at_s = desk.federation.clock.now_s + in_h * 3600.0
    ranked = desk.federation.federation.ranked(at_s)
    return [each.id for each in ranked]


def top(desk: Desk, *ids: WorkloadId) -> ControlReply:
    reply = desk.ask(ControlCall(verb="top", ids=tuple(map(str, ids))))
    assert isinstance(reply, ControlReply), reply
    return reply


def test_top_is_the_operators_unless_users_may(desk: Desk) -> None:
    first, second = queued(desk, 2)
    said = desk.refusal(ControlCall(verb="top", ids=(str(second),)))
    assert said == "Access/permission denied"
    assert order(desk) == [first, second]


def test_top_puts_jobs_before_the_others_of_their_user_in_the_order_given() -> None:
    desk = where_top_is_enabled()
    a, b, c, d = queued(desk, 4)
    assert top(desk, d, b).ids == (d, b)
    assert order(desk) == [d, b, a, c]
    top(desk, c)
    assert order(desk) == [c, d, b, a]
    desk.federation.restart()
    assert order(desk) == [c, d, b, a]
    assert order(desk, in_h=200.0) == [c, d, b, a]  # all are as old as counts


def test_top_leaves_jobs_of_another_account_alone() -> None:
    desk = where_top_is_enabled()
    a, b = queued(desk, 2)
    other = desk.submit(key="key-30000", nodes="2", account="nlp")
    top(desk, b)
    assert desk.federation.entry(other).workload.nice == 0
    assert "not all of one user, account" in desk.refusal(
        ControlCall(verb="top", ids=(str(a), str(other)))
    )


def test_jobs_that_run_or_are_held_are_not_put_first() -> None:
    desk = where_top_is_enabled()
    (a,) = queued(desk, 1)
    held = waiting(desk, nodes="2")
    running = next(iter(desk.federation.federation.ledger.in_state(RUNNING))).workload.id
    reply = top(desk, running, held)
    assert reply.ids == ()
    assert reply.errors == (
        f"Job is no longer pending execution for job {running}",
        f"Job is in held state, pending scheduler release for job {held}",
    )
    assert desk.federation.entry(a).workload.nice == 0


def test_tasks_of_an_array_keep_their_order() -> None:
    desk = where_top_is_enabled()
    (a,) = queued(desk, 1)
    first = desk.submit(key="key-30000", nodes="2", array="0-2")
    top(desk, first)
    assert order(desk) == [first, first + 1, first + 2, a]
