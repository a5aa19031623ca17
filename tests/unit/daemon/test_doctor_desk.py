"""``federator doctor`` is answered by the history's reader, by what its asker may see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from federator.daemon.doctor_desk import DoctorDesk
from federator.errors import HistoryError, InvalidRequest, NotAllowed
from federator.history.service import JobHistory
from federator.model.viewer import Viewer
from federator.usage.diagnosis import Diagnosis
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.replies import Reply
from federator.wire.usage_messages import DoctorCall, DoctorReply
from tests.fakes.page_daemon import config_of
from tests.unit.cli.test_doctor import IDLE

CALL = DoctorCall(start_s=0.0, end_s=86_400.0)


class History:
    """Notes how it is asked, and finds nothing, unless it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.findings: tuple[Diagnosis, ...] = ()
        self.asked: list[dict[str, Any]] = []

    async def read(self, read: Callable[[object], Reply]) -> Reply:
        assert isinstance(read, partial)
        self.asked.append(read.keywords)
        if self.error is not None:
            raise self.error
        return DoctorReply(findings=self.findings, federation="demo", at_s=1.0)


def ask(history: History | None, call: DoctorCall = CALL, viewer: Viewer | None = None) -> Reply:
    async def asked() -> Reply:
        desk = DoctorDesk(config_of(), cast("JobHistory | None", history))
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        desk.take(call, viewer, answer.set_result)
        return await answer

    return asyncio.run(asked())


def test_the_history_judges_for_who_asks() -> None:
    history, viewer = History(), Viewer(user="ada")
    assert isinstance(ask(history, viewer=viewer), DoctorReply)
    (asked,) = history.asked
    assert (asked["call"], asked["viewer"]) == (CALL, viewer)
    assert asked["federation"] == config_of().federation


def test_one_answer_holds_two_thousand_findings() -> None:
    history = History()
    history.findings = (IDLE,) * 2_003
    reply = ask(history)
    assert isinstance(reply, DoctorReply)
    assert (len(reply.findings), reply.left_off) == (2_000, 3)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (HistoryError("it is away"), ErrorKind.UNAVAILABLE, "it is away"),
        (NotAllowed("not yours"), ErrorKind.DENIED, "not yours"),
        (InvalidRequest("no"), ErrorKind.REQUEST, "no"),
        (ZeroDivisionError(), ErrorKind.REQUEST, "its log says how"),
    ],
)
def test_every_failure_is_answered(error: Exception, kind: ErrorKind, words: str) -> None:
    reply = ask(History(error))
    assert isinstance(reply, ErrorReply)
    assert reply.kind is kind
    assert words in reply.message


def test_what_is_too_much_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="no history is kept"):
        ask(None)
    with pytest.raises(InvalidRequest, match="more than 1000 names"):
        ask(History(), DoctorCall(start_s=0.0, end_s=1.0, users=("ada",) * 1001))
