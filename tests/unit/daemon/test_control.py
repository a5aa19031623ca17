"""Which jobs a call of fscontrol changes, and whose."""

from __future__ import annotations

import pytest

from federator.model.lifecycle import WorkloadState
from federator.model.workload import WorkloadId
from federator.wire.client_protocol import (
    CancelCall,
    ControlCall,
    ControlReply,
    QueueCall,
    QueueReply,
    QueueRow,
)
from tests.unit.daemon.test_api import Desk, submit_call


@pytest.fixture
def desk() -> Desk:
    return Desk()


def control(desk: Desk, call: ControlCall, user: str = "ada") -> ControlReply:
    reply = desk.ask(call, user)
    assert isinstance(reply, ControlReply), reply
    return reply


def test_a_user_holds_and_releases_jobs(desk: Desk) -> None:
    id_ = desk.submit(hold=None)
    assert desk.federation.state(id_) is WorkloadState.INELIGIBLE
    shown = desk.ask(QueueCall(details=True))
    assert isinstance(shown, QueueReply)
    (row,) = shown.rows
    assert row.reason is not None
    assert (row.state, row.reason.code.value) == ("INELIGIBLE", "FedUserHold")
    assert control(desk, ControlCall(verb="release", ids=(f"{id_};demo",))).ids == (id_,)
    assert desk.federation.state(id_) is WorkloadState.RUNNING


def test_nobody_changes_anothers_jobs(desk: Desk) -> None:
    id_ = desk.submit()
    reply = control(desk, ControlCall(verb="hold", ids=(str(id_), "77")), user="bob")
    denied, unknown = reply.errors
    assert denied == f"Access/permission denied for job {id_}"
    assert unknown.startswith("Invalid job id specified for job 77; ")
    assert not reply.ids


def test_tasks_of_an_array_are_held_alone_or_together(desk: Desk) -> None:
    id_ = desk.submit(hold=None, array="0-3")
    tasks = tuple(WorkloadId(id_ + k) for k in range(4))
    assert control(desk, ControlCall(verb="release", ids=(f"{id_}_2",))).ids == (tasks[2],)
    assert control(desk, ControlCall(verb="release", ids=(str(id_),))).ids == tasks
    assert desk.federation.state(tasks[0]) is WorkloadState.RUNNING


def test_jobs_are_named_by_their_name(desk: Desk) -> None:
    named: dict[str, str | None] = {"hold": None, "job-name": "sweep"}
    first = desk.submit("ada", "key-00001", **named)
    reply = control(desk, ControlCall(verb="release", names=("sweep", "none")))
    assert (reply.ids, reply.errors) == ((first,), ("Invalid job name specified: none",))


def test_an_unknown_change_is_refused(desk: Desk) -> None:
    said = desk.refusal(ControlCall(verb="explode", ids=("1",)))
    assert said.startswith("this daemon does not know the change 'explode'")


# ---- dependencies ----


def test_a_dependency_names_jobs_that_are_known(desk: Desk) -> None:
    id_ = desk.submit(array="0-1", hold=None)
    late = desk.submit(key="key-00002", dependency=f"afterok:{id_}_1")
    (row,) = _rows(desk, QueueCall(ids=(str(late),), details=True))
    assert row.details is not None
    assert row.details.dependency == f"afterok:{id_}_1(unfulfilled)"
    assert row.reason is not None
    assert row.reason.code.value == "Dependency"


@pytest.mark.parametrize("kind", ["afterok", "afternotok", "aftercorr", "after", "afterany"])
def test_a_job_that_never_was_is_no_dependency(desk: Desk, kind: str) -> None:
    said = desk.refusal(submit_call(options={"dependency": f"{kind}:{2**40}"}))
    assert said == (
        f"Batch job submission failed: Job dependency problem: job {2**40} is not known (any more)"
    )
    said = desk.refusal(submit_call(options={"dependency": f"{kind}:77"}))
    assert "job 77 is of one site, not of the federation" in said


def test_a_job_that_is_forgotten_has_ended_for_those_that_ask_no_more(desk: Desk) -> None:
    gone = desk.submit()
    desk.ask(CancelCall(ids=(str(gone),)))
    desk.federation.run_for(60.0)
    desk.federation.forget_ended(0.0)
    first = desk.submit(key="key-00002", dependency=f"afterany:{gone}")
    assert desk.federation.state(first) is WorkloadState.RUNNING
    either = desk.submit(key="key-00003", dependency=f"after:{gone}?afterok:{first}")
    assert desk.federation.state(either) is WorkloadState.RUNNING
    said = desk.refusal(submit_call("key-00004", {"dependency": f"afterok:{gone}"}))
    assert said.endswith(f"job {gone} is not known (any more)")


def _rows(desk: Desk, call: QueueCall) -> tuple[QueueRow, ...]:
    reply = desk.ask(call)
    assert isinstance(reply, QueueReply)
    return reply.rows
