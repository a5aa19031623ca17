"""What a call that names a stranger's job tells of it: no more than ``privacy`` lets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from federator.model.lifecycle import WorkloadState
from federator.model.workload import WorkloadId
from federator.wire.client_protocol import (
    AccountingCall,
    Call,
    CancelCall,
    ControlCall,
    ErrorKind,
    ErrorReply,
    QueueCall,
    SessionCall,
    SignalCall,
)
from federator.wire.replies import Reply
from tests.unit.daemon.test_api import CALLS, CONFIG, Desk, private, submit_call

DENIED = "Access/permission denied"


def control(verb: str, **fields: str) -> Callable[[str], Call]:
    return lambda id_: ControlCall(verb=verb, ids=(id_,), fields=fields)


def looks_by_id(call: QueueCall | AccountingCall) -> Callable[[str], Call]:
    return lambda id_: msgspec.structs.replace(call, ids=(id_,))


ACTS: dict[str, Callable[[str], Call]] = {
    "fscancel": lambda id_: CancelCall(ids=(id_,)),
    "fscancel of the federation's name": lambda id_: CancelCall(
        ids=(f"{id_};{CONFIG.federation}",)
    ),
    "fscancel --signal": lambda id_: SignalCall(ids=(id_,), signal="USR1"),
    "fsattach": lambda id_: SessionCall(id=int(id_), attach=True),
    "fsrun, fsalloc": lambda id_: SessionCall(id=int(id_)),
    "fscontrol hold": control("hold"),
    "fscontrol uhold": control("uhold"),
    "fscontrol release": control("release"),
    "fscontrol requeue": control("requeue"),
    "fscontrol requeuehold": control("requeuehold"),
    "fscontrol top": control("top"),
    "fscontrol update": control("update", timelimit="5"),
    "fscontrol update of an array": control("update", arraytaskthrottle="1"),
}
LOOKS: dict[str, Callable[[str], Call]] = {
    **{command: looks_by_id(call) for command, call in CALLS.items()},
    "fsbatch --wait": looks_by_id(QueueCall(ended=True, outcome=True)),
    "fscancel -u": lambda id_: CancelCall(ids=(id_,), users=("cat",)),
}
DEPENDS: dict[str, Callable[[str], Call]] = {
    **{
        f"fsbatch --dependency={kind}": lambda id_, kind=kind: submit_call(  # type: ignore[misc]
            f"key-of-{id_}", {"dependency": f"{kind}:{id_}", "account": "bio"}
        )
        for kind in ("after", "afterany", "afterok", "afternotok", "aftercorr")
    },
    **{
        f"fscontrol update Dependency={kind}": control("update", dependency=f"{kind}:")
        for kind in ("afterany", "afterok")
    },
}


class Strangers:
    """Jobs of bob, one that lives and one that is forgotten; and cat, of another tenant."""

    def __init__(self, privacy: str, **options: str) -> None:
        values = CONFIG.model_dump(mode="json", exclude_unset=True)
        values["tenants"]["bio"] = {"users": ["cat"]}
        values["privacy"] = privacy
        self.desk = Desk(config=CONFIG.model_validate(values))
        self.gone = str(self.desk.submit("bob", "key-gone"))
        self.desk.cancel(CancelCall(ids=(self.gone,)), "bob")
        self.desk.federation.run_for(60.0)
        self.desk.federation.forget_ended(0.0)
        self.own = str(self.desk.submit("cat", "key-own-1", hold=None))
        self.lives = str(self.desk.submit("bob", "key-lives", **options))

    def ask(self, make: Callable[[str], Call], id_: str) -> Reply:
        call = make(id_)
        if isinstance(call, ControlCall) and "dependency" in call.fields:
            fields = {"dependency": call.fields["dependency"] + id_}
            call = msgspec.structs.replace(call, ids=(self.own,), fields=fields)
        return self.desk.ask(call, "cat")

    def said(self, make: Callable[[str], Call], id_: str) -> Any:
        """What is told to cat, without the id and the time of day."""
        reply = self.ask(make, id_)
        told = msgspec.to_builtins(reply)
        return {
            key: str(value).replace(id_, "ID")
            for key, value in told.items()
            if key not in ("now_s", "id")
        }


@pytest.mark.parametrize("command", ACTS | LOOKS | DEPENDS)
@pytest.mark.parametrize("privacy", ["own", "tenant"])
def test_a_strangers_id_is_answered_as_one_that_there_is_not(privacy: str, command: str) -> None:
    there = Strangers(privacy)
    make = (ACTS | LOOKS | DEPENDS)[command]
    assert there.said(make, there.lives) == there.said(make, there.gone)
    assert there.desk.federation.state(WorkloadId(int(there.lives))) is WorkloadState.RUNNING


@pytest.mark.parametrize("index", ["", "_1", "_7"])
@pytest.mark.parametrize("command", [c for c in ACTS if c not in ("fsattach", "fsrun, fsalloc")])
def test_so_is_a_task_of_a_strangers_array(command: str, index: str) -> None:
    there = Strangers("own", array="0-3")
    make = (ACTS | LOOKS)[command]
    assert there.said(make, there.lives + index) == there.said(make, there.gone + index)


@pytest.mark.parametrize("command", ACTS)
def test_where_all_see_all_a_strangers_job_is_denied(command: str) -> None:
    there = Strangers("open")
    reply = there.ask(ACTS[command], there.lives)
    if isinstance(reply, ErrorReply):
        assert reply.message.startswith(DENIED)
        assert reply.kind is ErrorKind.DENIED
    else:
        (line,) = msgspec.to_builtins(reply)["errors"]
        assert line.startswith(DENIED)


@pytest.mark.parametrize("command", ACTS)
def test_a_job_of_ones_tenant_that_is_seen_is_denied(command: str) -> None:
    desk = Desk(config=private("tenant"))
    id_ = str(desk.submit("bob"))
    told = msgspec.to_builtins(desk.ask(ACTS[command](id_), "ada"))
    assert str(told.get("message") or told["errors"][0]).startswith(DENIED)


def test_where_all_see_all_a_job_may_depend_on_a_strangers() -> None:
    there = Strangers("open")
    reply = there.ask(DEPENDS["fsbatch --dependency=afterok"], there.lives)
    assert not isinstance(reply, ErrorReply)
