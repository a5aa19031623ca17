"""``federator usage`` is answered from the history, by what its asker may see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from federator.daemon.usage_desk import MAX_SUMS, UsageDesk
from federator.errors import HistoryError, InvalidRequest
from federator.history.service import JobHistory
from federator.history.usage_query import UsageQuestion
from federator.model.viewer import Viewer
from federator.usage.report import UsageFound
from federator.usage.rows import UsageReport
from federator.usage.supply import CellKey, Supplied
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.replies import Reply
from federator.wire.usage_messages import UsageCall, UsageReply
from tests.fakes.page_daemon import config_of

CALL = UsageCall(start_s=0.0, end_s=86_400.0, by=("site",))


class History:
    """A site that was idle for a day."""

    def __init__(self) -> None:
        self.asked: list[UsageQuestion] = []
        self.error: Exception | None = None

    async def usage(
        self, question: UsageQuestion, most: int, make: Callable[[UsageFound], UsageReport]
    ) -> UsageReport:
        assert most == MAX_SUMS
        self.asked.append(question)
        if self.error is not None:
            raise self.error
        cell = CellKey(0, "alpine", "a100")
        return make(
            UsageFound(
                columns=question.columns,
                sums={},
                supply={cell: Supplied(gpu_ms=100)},
                held={},
                start_s=0.0,
                end_s=86_400.0,
                at_s=90_000.0,
            )
        )


def ask(history: History | None, call: UsageCall = CALL, viewer: Viewer | None = None) -> Reply:
    async def asked() -> Reply:
        desk = UsageDesk(config_of(), cast("JobHistory | None", history))
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        desk.take(call, viewer, answer.set_result)
        return await answer

    return asyncio.run(asked())


def test_an_operator_is_told_of_idle_time() -> None:
    reply = ask(History())
    assert isinstance(reply, UsageReply)
    assert (reply.is_whole, reply.report.total.free["idle"]) == (True, 100)


def test_a_member_is_asked_for_and_told_no_more_than_their_own() -> None:
    history, viewer = History(), Viewer(user="ada", tenants=frozenset({"vision"}))
    reply = ask(history, viewer=viewer)
    assert isinstance(reply, UsageReply)
    assert history.asked[0].viewer == viewer
    assert (reply.is_whole, reply.report.total.supply_gpu_ms, reply.report.rows) == (False, 0, ())


@pytest.mark.parametrize(
    ("error", "kind"),
    [(HistoryError("away"), ErrorKind.UNAVAILABLE), (ZeroDivisionError(), ErrorKind.REQUEST)],
)
def test_a_failure_is_an_answer(error: Exception, kind: ErrorKind) -> None:
    history = History()
    history.error = error
    reply = ask(history)
    assert isinstance(reply, ErrorReply)
    assert reply.kind is kind


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no history is kept"):
        ask(None)
    with pytest.raises(InvalidRequest, match="ask for fewer"):
        ask(History(), UsageCall(start_s=0.0, end_s=1.0, users=("ada",) * 1001))
    reply = ask(History(), UsageCall(start_s=0.0, end_s=1.0, by=("colour",)))
    assert isinstance(reply, ErrorReply)
    assert "unknown column" in reply.message
