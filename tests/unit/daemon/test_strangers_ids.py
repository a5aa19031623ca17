"""What is told of strangers' jobs, to calls that name them and in rows of jobs that are seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from federator.config import FederationConfig
from federator.daemon import api
from federator.daemon.callers import Caller
from federator.daemon.strangers_ids import without_strangers
from federator.daemon.views import queue_rows
from federator.model.lifecycle import WorkloadState
from federator.model.reason import NAME_ANOTHER, Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.wire import replies
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow
from federator.wire.client_protocol import (
    AccountingCall,
    AccountingReply,
    Call,
    CancelCall,
    ControlCall,
    ErrorKind,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SessionCall,
    SessionReply,
    SignalCall,
    StatusCall,
    StatusReply,
)
from federator.wire.replies import Reply, SiteBid
from federator.wire.status_rows import ClaimRow
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback
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


# ---- in rows of jobs that are seen ----


class Contest:
    """Jobs of bob and eve, of one tenant, are evicted for one of cat, of another tenant."""

    def __init__(self, privacy: str) -> None:
        values = CONFIG.model_dump(mode="json", exclude_unset=True)
        values["tenants"] = {"guest": {"users": ["bob", "eve"]}, "owner": {"users": ["cat"]}}
        self.config = FederationConfig.model_validate(values | {"privacy": privacy})
        tenants = (tenant("owner", 16, priority=2), tenant("guest"))
        rules = Rules(preempt_gpus=64, grace_s=60.0)
        self.fleet = Loopback({"alpine": rack("a", 2)}, rules, None, Mast(), tenants)
        self.fleet.save_s = 30.0
        self.bobs, self.eves = (
            self.fleet.submit(draft(gang(1), user=user, tenant="guest")) for user in ("bob", "eve")
        )
        self.fleet.run_for(10.0)
        self.cats = self.fleet.submit(draft(gang(2), user="cat", tenant="owner"))
        self.fleet.run_for(5.0)

    def told(self, reply: Reply, user: str, *, speaks: bool = False) -> Any:
        by = Caller(user, operator=user == "root", speaks=speaks)
        return without_strangers(reply, self.fleet.federation.ledger, by, self.config)

    def row(self, id_: WorkloadId, user: str, *, speaks: bool = False) -> QueueRow:
        rows, _ = queue_rows(self.fleet.federation, QueueCall(ids=(str(id_),)), 10)
        reply = self.told(QueueReply(rows=rows, now_s=0.0), user, speaks=speaks)
        (row,) = reply.rows
        return cast(QueueRow, row)

    def evicted_for(self, user: str, *, speaks: bool = False) -> tuple[int, bool, str]:
        row = self.row(self.bobs, user, speaks=speaks)
        assert row.preemption is not None
        assert row.reason is not None
        told = row.preemption
        return told.evicted_for, told.evicted_for_hidden, row.reason.detail

    def victims(self, user: str, *, speaks: bool = False) -> tuple[set[int], int]:
        told = self.row(self.cats, user, speaks=speaks).preemption
        assert told is not None
        return set(told.victims), told.victims_hidden


@pytest.mark.parametrize("privacy", ["own", "tenant"])
def test_the_stranger_that_a_job_was_evicted_for_is_not_named(privacy: str) -> None:
    there = Contest(privacy)
    assert there.evicted_for("bob") == (0, True, "")
    assert there.evicted_for("page", speaks=True) == (0, True, "")
    assert there.evicted_for("root") == (there.cats, False, str(there.cats))
    assert there.victims("cat") == (set(), 2)
    assert there.victims("page", speaks=True) == (set(), 2)
    assert there.victims("root") == ({there.bobs, there.eves}, 0)


def test_where_all_see_all_both_are_named() -> None:
    there = Contest("open")
    assert there.evicted_for("bob") == (there.cats, False, str(there.cats))
    assert there.victims("page", speaks=True) == ({there.bobs, there.eves}, 0)


@pytest.mark.parametrize("privacy", ["own", "tenant"])
@pytest.mark.parametrize("code", [each for each in ReasonCode if each in NAME_ANOTHER])
def test_no_reason_of_a_job_names_a_stranger(privacy: str, code: ReasonCode) -> None:
    there = Contest(privacy)
    ((row,), _) = queue_rows(there.fleet.federation, QueueCall(ids=(str(there.eves),)), 10)

    def detail(of: str, user: str, *, speaks: bool = False) -> set[str]:
        reason = Reason(code=code, detail=of)
        refusals = {"alpine": Refusal(kind=RefusalKind.WAIT, reasons=(reason,))}
        shown = msgspec.structs.replace(row, reason=reason, refusals=refusals)
        reply = there.told(QueueReply(rows=(shown,), now_s=0.0), user, speaks=speaks)
        last = AccountingAttempt(attempt=2, reason=f"{code.value} {of}")
        earlier = (AccountingAttempt(attempt=1, reason=f"{code.value} {of}"),)
        past = AccountingRow(
            id=row.id,
            name="",
            user="eve",
            tenant="guest",
            submitted_at_s=0.0,
            reason=f"{code.value} {of}",
            last=last,
            earlier=earlier,
        )
        told = there.told(
            AccountingReply(rows=(past,), now_s=0.0, federation="demo"), user, speaks=speaks
        )
        words = {each.reason for r in told.rows for each in (r, r.last, *r.earlier)}
        (live,) = reply.rows
        found = {live.reason.detail, live.refusals["alpine"].reasons[0].detail}
        return found | {word.removeprefix(code.value).strip() for word in words}

    of_tenant = "" if privacy == "own" else str(there.bobs)
    for user, speaks in (("eve", False), ("page", True)):
        assert detail(str(there.cats), user, speaks=speaks) == {""}
        assert detail("1", user, speaks=speaks) == {""}, "of a job that is forgotten"
        assert detail(str(there.bobs), user, speaks=speaks) == {of_tenant}
        assert detail(str(there.eves), user, speaks=speaks) == {str(there.eves)}
        assert detail("by the site", user, speaks=speaks) == {"by the site"}
    assert detail(str(there.cats), "root") == {str(there.cats)}


@pytest.mark.parametrize("privacy", ["own", "tenant"])
@pytest.mark.parametrize("code", [each for each in ReasonCode if each in NAME_ANOTHER])
def test_no_bid_of_a_trial_and_no_session_names_a_stranger(privacy: str, code: ReasonCode) -> None:
    there = Contest(privacy)

    def details(of: WorkloadId | str, user: str, *, speaks: bool = False) -> set[str]:
        reason = Reason(code=code, detail=str(of))
        refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
        bids = (SiteBid(site="alpine", refusal=refusal), SiteBid(site="baker"))
        trial = there.told(replies.TestOnlyReply(bids=bids, winner=""), user, speaks=speaks)
        waits = SessionReply(
            id=there.eves, state="", silence_s=0.0, reason=reason, refusals={"alpine": refusal}
        )
        session = there.told(waits, user, speaks=speaks)
        assert session.id == there.eves
        assert trial.bids[1] == bids[1]
        refusals = trial.bids[0].refusal, session.refusals["alpine"]
        return {session.reason.detail} | {each.reasons[0].detail for each in refusals}

    assert details(there.cats, "eve") == {""}
    assert details(there.cats, "page", speaks=True) == {""}
    assert details(there.bobs, "eve") == {"" if privacy == "own" else str(there.bobs)}
    assert details(there.eves, "eve") == {str(there.eves)}
    assert details("by the site", "eve") == {"by the site"}
    assert details(there.cats, "root") == {str(there.cats)}


@pytest.mark.parametrize("privacy", ["own", "tenant", "open"])
def test_claims_of_strangers_have_no_id(privacy: str) -> None:
    there = Contest(privacy)
    status = Desk(config=private(privacy)).ask(StatusCall())
    assert isinstance(status, StatusReply)
    claims = tuple(
        ClaimRow(id=id_, site="alpine", gpus=8, to_evict_gpus=8, starts_by_s=9.0)
        for id_ in (there.eves, there.bobs, there.cats)
    )
    status = msgspec.structs.replace(status, claims=claims)

    def ids(user: str, *, speaks: bool = False) -> list[int]:
        told = there.told(status, user, speaks=speaks).claims
        assert [msgspec.structs.replace(each, id=0) for each in told] == [
            msgspec.structs.replace(each, id=0) for each in claims
        ]
        return [each.id for each in told]

    everybody = [there.eves, there.bobs, there.cats]
    expected = {"own": [there.eves, 0, 0], "tenant": [there.eves, there.bobs, 0]}
    assert ids("eve") == expected.get(privacy, everybody)
    assert ids("root") == everybody
    assert ids("page", speaks=True) == everybody, "it leaves them out for each of its users"


@pytest.mark.parametrize("privacy", ["own", "tenant"])
def test_all_that_name_other_jobs_ask_so(privacy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[type] = []

    def noted(reply: Reply, *_: object) -> Reply:
        asked.append(type(reply))
        return reply

    monkeypatch.setattr(api, "without_strangers", noted)
    desk = Desk(config=private(privacy))
    own = desk.submit("ada", "key-own-1")
    trial = msgspec.structs.replace(submit_call("key-trial"), test_only=True)
    for call in (QueueCall(), AccountingCall(), StatusCall(), SessionCall(id=own), trial):
        desk.ask(call)
    assert asked == [QueueReply, AccountingReply, StatusReply, SessionReply, replies.TestOnlyReply]
