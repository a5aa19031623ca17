"""Chooses the next question of ``federator top``, and holds what it knows: one call at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from federator.cli.text import refused, unexpected
from federator.errors import FederatorError
from federator.wire.client_protocol import (
    Call,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
    StatusCall,
    StatusReply,
)

STATUS_EVERY: Final = 2.0  # times as seldom as the queue; so is the selected job
REST: Final = 10.0  # a question rests so many times as long as its answer took


class TopFeed:
    """What is known, and what is to be asked.

    Args:
        queue: the question for the rows.
        every_s: between two of its answers.
        elapsed: seconds that never run backwards.

    Attributes:
        rows: of the latest answer, ``at_s`` by the daemon's clock.
        left_off: rows that one answer does not hold.
        status: the latest.
        selected: the id of the job of which everything is asked; 0: of none.
        detail: what was answered of it; None: nothing yet.
        trouble: why the last question was not answered; "": it was.
    """

    def __init__(
        self, queue: QueueCall, every_s: float, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue, self._every_s, self._elapsed = queue, every_s, elapsed
        self._due_s = {"detail": 0.0, "queue": 0.0, "status": 0.0}
        self._asked_s = 0.0
        self.rows: Sequence[QueueRow] = ()
        self.at_s = 0.0
        self.left_off = 0
        self.caller = ""  # the federation's name of the user who looks
        self.status: StatusReply | None = None
        self.selected = 0
        self.detail: QueueRow | None = None
        self.trouble = ""

    def select(self, id_: int) -> None:
        """Ask of this job from now on, at once."""
        if id_ != self.selected:
            self.selected, self.detail = id_, None
            self._due_s["detail"] = 0.0

    def refresh(self) -> None:
        """Ask everything again at once."""
        self._due_s = dict.fromkeys(self._due_s, 0.0)

    def next(self, *, still: bool = False) -> Call | None:
        """The question that is due for longest; None: none is.

        Args:
            still: rows and sites stay as they are; only a job of which nothing is known is asked.
        """
        now_s = self._asked_s = self._elapsed()
        due = sorted((at_s, what) for what, at_s in self._due_s.items() if at_s <= now_s)
        for _, what in due:
            if still and (what != "detail" or self.detail is not None):
                continue
            if what == "queue":
                return self._queue
            if what == "status":
                return StatusCall()
            if self.selected:
                return QueueCall(
                    ids=(str(self.selected),), ended=True, why=True, files=True, starts=True
                )
        return None

    def take(self, call: Call, reply: object) -> None:
        """A question was answered.

        Raises:
            FederatorError: the daemon refused it, or is of another release.
        """
        if isinstance(reply, ErrorReply):
            raise refused(reply)
        if isinstance(call, StatusCall) and isinstance(reply, StatusReply):
            self.status = reply
            self._rest("status", STATUS_EVERY)
        elif call is self._queue and isinstance(reply, QueueReply):
            self.rows, self.at_s, self.left_off = reply.rows, reply.now_s, reply.left_off
            self.caller = reply.caller
            self._rest("queue", 1.0)
        elif isinstance(call, QueueCall) and isinstance(reply, QueueReply):
            self._take_detail(call, reply)
        else:
            raise unexpected(reply)
        self.trouble = ""

    def failed(self, call: Call, error: FederatorError) -> None:
        """A question was not answered; what is known stays."""
        self.trouble = str(error)
        if isinstance(call, StatusCall):
            self._rest("status", 1.0)
        else:
            self._rest("queue" if call is self._queue else "detail", 1.0)

    def _take_detail(self, call: QueueCall, reply: QueueReply) -> None:
        if call.ids == (str(self.selected),):  # else another one was selected meanwhile
            self.detail = reply.rows[0] if reply.rows else None
            self._rest("detail", STATUS_EVERY)

    def _rest(self, what: str, times: float) -> None:
        now_s = self._elapsed()
        rest_s = max(times * self._every_s, REST * (now_s - self._asked_s))
        self._due_s[what] = now_s + rest_s


def matching(rows: Iterable[QueueRow], words: str, states: frozenset[str]) -> list[QueueRow]:
    """Those that hold every word in what a row shows of them, and are in such a state.

    Args:
        rows: in the order in which they are returned.
        words: apart by blanks; the case counts nothing.
        states: empty: any.
    """
    wanted = words.lower().split()
    found = [row for row in rows if not states or row.state in states]
    if not wanted:
        return found
    return [row for row in found if all(word in _shown(row) for word in wanted)]


def _shown(row: QueueRow) -> str:
    reason = row.reason.code.value if row.reason is not None else ""
    ids = f"{row.id} {row.array_id or ''} {row.site_job_id or ''}"
    return f"{ids} {row.name} {row.user} {row.tenant} {row.state} {row.site} {reason}".lower()


def by_hand(queue: QueueCall, ask: Callable[[Call], object]) -> TopFeed:
    """All but a selected job, asked once.

    Raises:
        FederatorError: there is no answer, or it is a refusal.
    """
    feed = TopFeed(queue, 0.0, lambda: 0.0)
    for call in (StatusCall(), queue):
        feed.take(call, ask(call))
    return feed


def brief(users: tuple[str, ...], tenants: tuple[str, ...], sites: tuple[str, ...]) -> QueueCall:
    """The question for the rows of a table."""
    everything = QueueCall(brief=True, collapsed=True)
    return msgspec.structs.replace(everything, users=users, tenants=tenants, clusters=sites)
