"""Callers and the clients that wait for the core."""

from __future__ import annotations

import pytest

from federator.config import FederationConfig
from federator.daemon.callers import Caller, WaitingClients
from federator.errors import InvalidRequest
from federator.wire.client_protocol import (
    CancelReply,
    ErrorReply,
    QueueCall,
    QueueReply,
    TenantsCall,
    TenantsReply,
)
from federator.wire.replies import Reply
from tests.unit.daemon.test_api import CONFIG, Desk


def test_only_an_operator_acts_for_others() -> None:
    assert Caller("ada", operator=False).acting_as("ada") == "ada"
    assert Caller("root", operator=True).acting_as("ada") == "ada"
    with pytest.raises(InvalidRequest, match="ada may not act for eve"):
        Caller("ada", operator=False).acting_as("eve")


def test_an_answer_goes_once_to_whom_it_is_for_with_what_was_wrong_before() -> None:
    clients = WaitingClients()
    got: list[Reply] = []
    first, second = clients.add(got.append, ("no job 7",)), clients.add(got.append)
    clients.reply(second, ErrorReply(message="no"))
    clients.reply(first, CancelReply(ids=(), errors=("no job 8",)))
    clients.reply(first, CancelReply(ids=()))
    assert got == [
        ErrorReply(message="no"),
        CancelReply(ids=(), errors=("no job 7", "no job 8")),
    ]


@pytest.mark.parametrize("call", [QueueCall(), TenantsCall()])
def test_whoever_asks_is_told_by_what_name_the_federation_knows_them(
    call: QueueCall | TenantsCall,
) -> None:
    raw = CONFIG.model_dump(mode="json", exclude_unset=True)
    raw["sites"]["alpine"]["names"] = {"users": {"ada": "a.one"}}
    desk = Desk(config=FederationConfig.model_validate(raw))
    for there, name in (("a.one", "ada"), ("bob", "bob")):
        reply = desk.ask(call, there)
        assert isinstance(reply, QueueReply | TenantsReply)
        assert reply.caller == name
