"""fscontrol update: jobs that wait ask for something else, under the checks of a submission."""

from __future__ import annotations

from math import inf

import pytest

from federator.model.lifecycle import WorkloadState
from federator.model.reason import ReasonCode
from federator.model.submission import unpack_submission
from federator.model.workload import WorkloadId
from federator.wire.client_protocol import ControlCall, ControlReply
from tests.unit.daemon.test_api import Desk

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
    reply = update(desk, id_, timelimit="5")
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
