"""What the page knows of single jobs: many are asked for at once, and none has another's rows."""

from __future__ import annotations

import asyncio

from federator.web.story_feed import StoryFeed
from federator.wire.client_protocol import (
    AccountingCall,
    AccountingReply,
    Call,
    QueueCall,
    QueueReply,
)
from federator.wire.replies import Reply

MOST = 4  # rows of an answer


class Daemon:
    """Knows arrays of so many tasks; an answer holds few rows."""

    def __init__(self, rows: dict[str, int]) -> None:
        self.rows = rows
        self.questions: list[tuple[str, ...]] = []

    async def ask(self, call: Call) -> Reply:
        assert isinstance(call, QueueCall | AccountingCall)
        if isinstance(call, AccountingCall):
            return AccountingReply(rows=(), now_s=7.0, federation="f")
        self.questions.append(call.ids)
        left_off = max(0, sum(self.rows[name] for name in call.ids) - MOST)
        return QueueReply(rows=(), now_s=7.0, left_off=left_off)


def test_what_does_not_fit_into_one_answer_is_asked_for_in_halves() -> None:
    daemon = Daemon({"1": 3, "2": 3, "3": 9})

    async def main() -> None:
        feed = StoryFeed(daemon.ask, lambda: 0.0)
        await asyncio.gather(*(feed.of(name) for name in daemon.rows))

    asyncio.run(main())
    assert daemon.questions[0] == ("1", "2", "3")
    assert [ids for ids in daemon.questions if len(ids) == 1] == [("1",), ("2",), ("3",)]
