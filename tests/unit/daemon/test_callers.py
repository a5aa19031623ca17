"""Callers and the clients that wait for the core."""

from __future__ import annotations

import pytest

from federator.daemon.callers import Caller, WaitingClients
from federator.errors import InvalidRequest
from federator.wire.client_protocol import CancelReply, ErrorReply
from federator.wire.replies import Reply


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
