"""Which jobs a call of fscontrol changes, and whose."""

from __future__ import annotations

import pytest

from federator.model.lifecycle import WorkloadState
from federator.model.workload import WorkloadId
from federator.wire.client_protocol import ControlCall, ControlReply, QueueCall, QueueReply
from tests.unit.daemon.test_api import Desk


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
    assert unknown == "Invalid job id specified for job 77"
    assert not reply.ids


def test_tasks_of_an_array_are_held_alone_or_together(desk: Desk) -> None:
    id_ = desk.submit(hold=None, array="0-3")
    tasks = tuple(WorkloadId(id_ + k) for k in range(4))
    assert control(desk, ControlCall(verb="release", ids=(f"{id_}_2",))).ids == (tasks[2],)
    assert control(desk, ControlCall(verb="release", ids=(str(id_),))).ids == tasks
    assert desk.federation.state(tasks[0]) is WorkloadState.RUNNING


def test_jobs_are_named_by_their_name(desk: Desk) -> None:
    first = desk.submit(**{"hold": None, "job-name": "sweep"})
    reply = control(desk, ControlCall(verb="release", names=("sweep", "none")))
    assert (reply.ids, reply.errors) == ((first,), ("Invalid job name specified: none",))


def test_an_unknown_change_is_refused(desk: Desk) -> None:
    said = desk.refusal(ControlCall(verb="explode", ids=("1",)))
    assert said.startswith("this daemon does not know the change 'explode'")
