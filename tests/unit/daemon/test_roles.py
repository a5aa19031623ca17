"""What viewers, tenants' admins and operators may do, and for whom a site may speak."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from federator.config import FederationConfig
from federator.daemon.group_lookup import AGAIN_S, GROUPS_FRESH_S, TakeGroups, UserGroups
from federator.daemon.roles import Roles
from federator.faults.clock import VirtualClock
from federator.model.eligibility import Hold
from federator.model.event import Submitted
from federator.model.workload import SiteName
from federator.wire.client_protocol import (
    CancelCall,
    ControlCall,
    ControlReply,
    DrainCall,
    ErrorKind,
    ErrorReply,
    QueueCall,
    QueueReply,
)
from federator.wire.replies import Reply
from tests.unit.daemon.test_api import CONFIG, Desk, submit_call

GROUPS = {
    "eve": frozenset({"wheel", "fed-ops"}),
    "vic": frozenset({"fed-view"}),
    "tia": frozenset({"vision-leads"}),
    "ada": frozenset({"users"}),
}


def config(**changes: Any) -> FederationConfig:
    values = CONFIG.model_dump(mode="json", exclude_unset=True)
    values["privacy"] = "own"
    values["roles"] = {"operator_groups": ["fed-ops"], "viewer_groups": ["fed-view"]}
    values["tenants"]["vision"]["admin_groups"] = ["vision-leads"]
    values["tenants"]["bio"]["users"] += ["dan"]
    return FederationConfig.model_validate(values | changes)


def desk_of(config: FederationConfig) -> Desk:
    desk = Desk(config=config)
    desk.api.roles = Roles(config, UserGroups(lambda user: GROUPS.get(user, frozenset())))
    return desk


@pytest.fixture
def desk() -> Desk:
    return desk_of(config())


def here(desk: Desk, call: Any, user: str) -> Reply:
    return asyncio.run(_answered(desk, call, user))


async def _answered(desk: Desk, call: Any, user: str) -> Reply:
    waiting = asyncio.ensure_future(desk.api._answered(user, call))
    await asyncio.sleep(0)
    desk.federation.run_for(1.0)
    desk.pass_on_answers()
    return await waiting


def seen(reply: Reply) -> int:
    assert isinstance(reply, QueueReply), reply
    return len(reply.rows)


def test_a_viewer_sees_everything_and_changes_nothing(desk: Desk) -> None:
    id_ = desk.submit("ada")
    assert seen(desk.ask(QueueCall(), "vic")) == 1
    assert seen(desk.ask(QueueCall(), "bob")) == 0
    reply = desk.cancel(CancelCall(ids=(str(id_),)), "vic")
    assert reply.ids == ()
    assert "Access/permission denied" in reply.errors[0]
    denied = here(desk, DrainCall(site="alpine"), "vic")
    assert isinstance(denied, ErrorReply)
    assert denied.kind is ErrorKind.DENIED


def test_the_admin_of_a_tenant_holds_requeues_and_cancels_its_work(desk: Desk) -> None:
    vision = [desk.submit("ada", f"key-0000{k}", account="vision") for k in range(2)]
    other = desk.submit("ada", "key-00009", account="nlp")
    assert seen(desk.ask(QueueCall(), "tia")) == 2
    held = desk.ask(ControlCall(verb="hold", ids=(str(vision[0]),)), "tia")
    assert isinstance(held, ControlReply)
    assert desk.federation.entry(vision[0]).hold is Hold.USER
    assert desk.cancel(CancelCall(ids=(str(vision[1]),)), "tia").ids == (vision[1],)
    reply = desk.cancel(CancelCall(ids=(str(other),)), "tia")
    assert (reply.ids, len(reply.errors)) == ((), 1)


def test_the_admin_of_a_tenant_cancels_all_that_a_user_has_there(desk: Desk) -> None:
    mine = desk.submit("ada", account="vision")
    desk.submit("ada", "key-00009", account="nlp")
    assert desk.cancel(CancelCall(users=("ada",)), "tia").ids == (mine,)
    assert "may cancel only" in desk.refusal(CancelCall(users=("ada",)), "bob")


def test_the_admin_of_a_tenant_changes_no_options_and_submits_for_nobody(desk: Desk) -> None:
    id_ = desk.submit("ada", account="vision")
    changed = desk.ask(ControlCall(verb="update", ids=(str(id_),)), "tia")
    assert isinstance(changed, ControlReply)
    assert "for job" in changed.errors[0]
    assert "may not act for" in desk.refusal(submit_call(as_user="ada"), "tia")


def test_an_operator_by_group_is_one_on_the_daemon_s_host_alone(desk: Desk) -> None:
    drained = here(desk, DrainCall(site="alpine", reason="fans"), "eve")
    assert not isinstance(drained, ErrorReply)
    assert "is no operator" in desk.refusal(DrainCall(site="baker"), "eve")
    (act,) = desk.noted
    assert (act.act, act.by, act.via) == ("drain_site", "eve", "alpine")
    assert "is no operator" in act.refused


def test_whom_an_operator_submits_for_is_in_the_log(desk: Desk) -> None:
    here(desk, submit_call(as_user="ada"), "eve")
    submitted = [event for event in desk.federation.log if isinstance(event, Submitted)]
    assert [(event.by, event.draft.user) for event in submitted] == [("eve", "ada")]


def test_a_user_s_groups_are_asked_for_once_a_minute() -> None:
    asked, clock = [], VirtualClock()

    def groups_of(user: str) -> frozenset[str]:
        asked.append(user)
        return GROUPS["eve"]

    roles = Roles(config(), UserGroups(groups_of, clock))
    for _ in range(3):
        assert roles.caller("eve", None).operator
    clock.advance(GROUPS_FRESH_S)
    roles.caller("eve", None)
    assert asked == ["eve", "eve"]
    Roles(CONFIG, UserGroups(groups_of)).caller("eve", None)  # no group is named
    assert len(asked) == 2


def test_calls_wait_for_one_look_up_and_who_is_not_known_keeps_his_groups() -> None:
    asked: list[str] = []
    answers = []
    clock = VirtualClock()
    calls: list[int] = []

    def look_up(_groups_of: object, user: str, take: TakeGroups) -> None:
        asked.append(user)
        answers.append(take)

    roles = Roles(config(), UserGroups(clock=clock, look_up=look_up))
    for k in range(3):
        roles.when_known("eve", partial(calls.append, k))
    assert (asked, calls) == (["eve"], [])
    answers.pop()(GROUPS["eve"])
    assert calls == [0, 1, 2]
    roles.when_known("eve", partial(calls.append, 3))
    assert (asked, calls[-1]) == (["eve"], 3)
    clock.advance(GROUPS_FRESH_S)
    roles.when_known("eve", partial(calls.append, 4))
    answers.pop()(None)  # the directory does not answer
    assert calls[-1] == 4
    assert roles.by(config()).caller("eve", None).operator  # after a reload, too
    clock.advance(AGAIN_S)
    roles.when_known("eve", partial(calls.append, 5))
    assert (calls[-1], len(answers)) == (4, 1)  # it is soon asked again


# ---- the map of a site ----


def mapped(*users: str) -> FederationConfig:
    sites = config().model_dump(mode="json", exclude_unset=True)["sites"]
    sites["alpine"]["users"] = list(users)
    return config(sites=sites)


def test_a_site_cannot_submit_for_a_user_who_is_not_of_its_map() -> None:
    desk = desk_of(mapped("ada"))
    desk.submit("ada")
    reply = desk.ask(submit_call("key-00002"), "bob")
    assert isinstance(reply, ErrorReply)
    assert reply.kind is ErrorKind.DENIED
    assert reply.message == "site alpine may not speak for bob: sites.alpine.users says for whom"
    (act,) = desk.noted
    assert (act.act, act.by, act.via, act.refused) == ("submit", "bob", "alpine", reply.message)
    assert len(desk.federation.federation.ledger.entries) == 1


def test_nor_can_it_look_cancel_or_administer_as_one() -> None:
    desk = desk_of(mapped("ada"))
    id_ = desk.submit("ada")
    for user, call in (
        ("vic", QueueCall()),
        ("tia", CancelCall(ids=(str(id_),))),
        ("bob", ControlCall(verb="hold", ids=(str(id_),))),
    ):
        assert "may not speak for" in desk.refusal(call, user)


def test_a_map_may_name_tenants() -> None:
    speaks = mapped("@vision", "dan").speaks_for
    assert [user for user in ("ada", "bob", "dan", "eve") if speaks(SiteName("alpine"), user)] == [
        "ada",
        "bob",
        "dan",
    ]
    assert speaks(SiteName("baker"), "eve")  # it has no map


def test_a_map_that_names_an_unknown_tenant_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="unknown tenant 'visoin'"):
        mapped("@visoin")


def called(**users: str) -> FederationConfig:
    sites = config().model_dump(mode="json", exclude_unset=True)["sites"]
    sites["alpine"]["names"] = {"users": users}
    return config(sites=sites)


def test_who_is_called_otherwise_at_a_site_is_one_user_everywhere() -> None:
    desk = desk_of(called(ada="a.one"))
    id_ = desk.submit("a.one")
    assert desk.federation.federation.ledger.entries[id_].workload.user == "ada"
    for users in ((), ("a.one",), ("ada",)):
        shown = desk.ask(QueueCall(users=users), "a.one")
        assert isinstance(shown, QueueReply)
        assert [(row.id, row.user) for row in shown.rows] == [(id_, "ada")]
    desk.ask(CancelCall(ids=(str(id_),)), "a.one")
    assert desk.federation.state(id_).value == "CANCELLED"


def test_another_who_has_the_same_name_at_a_site_is_not_taken_for_that_user() -> None:
    desk = desk_of(called(ada="a.one"))
    reply = desk.ask(submit_call("key-00002"), "ada")
    assert isinstance(reply, ErrorReply)
    assert reply.kind is ErrorKind.DENIED
    assert reply.message == (
        "ada of site alpine is another user than the federation's of that name"
    )


def test_the_map_of_those_for_whom_a_site_speaks_has_the_federations_names() -> None:
    sites = called(ada="a.one").model_dump(mode="json", exclude_unset=True)["sites"]
    sites["alpine"]["users"] = ["ada"]
    desk = desk_of(config(sites=sites))
    desk.submit("a.one")
    assert "may not speak for bob" in desk.refusal(QueueCall(), "bob")
