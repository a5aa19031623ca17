"""One question to the daemon whose answer all viewers share, and when it is due again."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final, Generic, TypeVar

import msgspec

from federator.wire.client_protocol import Call
from federator.wire.replies import Reply

WANTED_S: Final = 45.0  # after the last look
PART_OF_TIME: Final = 100  # a question is not asked again before so many times what it took
SAYS_SO_S: Final = 20.0  # an answer counts as news at least so often: ages are shown

R = TypeVar("R", bound=msgspec.Struct)


class Topic(Generic[R]):
    """A question, its last answer, and when to ask again.

    Args:
        name: as event streams name it.
        call: makes the question.
        kind: of its answer.
        every_s: between two questions while somebody looks; at least 1.
        idle_every_s: the same while nobody does; inf: not at all.
        heard: told of each answer.

    Attributes:
        every_s: as given.
        answer: the last one; None: none has come yet.
        as_of_s: when it came, by the loop's clock.
        version: another number whenever there is news.
        times_asked: how often it was.
        trouble: why the last question was not answered; "": it was.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[], Call],
        kind: type[R],
        every_s: float,
        idle_every_s: float = inf,
        heard: Callable[[R], None] | None = None,
    ) -> None:
        self.name, self.call, self.kind, self._heard = name, call, kind, heard
        self.every_s, self._idle_every_s = max(1.0, every_s), idle_every_s
        self.answer: R | None = None
        self.as_of_s = -inf
        self.version = 0
        self.trouble = ""
        self.took_s = 0.0
        self.times_asked = 0
        self._asked_at_s = -inf
        self._wanted_until_s = -inf
        self._news_at_s = -inf

    def want(self, now_s: float) -> None:
        """Somebody looks at it."""
        self._wanted_until_s = now_s + WANTED_S

    def is_fresh(self, now_s: float) -> bool:
        """Whether the answer is no older than it would be if somebody had looked all the time."""
        return self.answer is not None and now_s <= self.as_of_s + 3 * self._pause_s + 5.0

    def due_s(self, now_s: float) -> float:
        """When it is to be asked next."""
        if now_s <= self._wanted_until_s:
            return self._asked_at_s + self._pause_s
        return self._asked_at_s + max(self._idle_every_s, self._pause_s)

    @property
    def _pause_s(self) -> float:
        """It grows with what the daemon takes to answer, so that it costs 1 % of its time."""
        return max(self.every_s, PART_OF_TIME * self.took_s)

    def take(self, reply: Reply | str, asked_at_s: float, now_s: float) -> bool:
        """Take in an answer, or why there is none; tell whether that is news."""
        self._asked_at_s, self.took_s = asked_at_s, now_s - asked_at_s
        self.times_asked += 1
        if not isinstance(reply, self.kind):
            trouble = reply if isinstance(reply, str) else getattr(reply, "message", "no answer")
            is_news, self.trouble = self.trouble != trouble, str(trouble)
        else:
            is_news = bool(self.trouble) or now_s > self._news_at_s + SAYS_SO_S
            is_news = is_news or _without_time(reply) != _without_time(self.answer)
            self.answer, self.as_of_s, self.trouble = reply, now_s, ""
            if self._heard is not None:
                self._heard(reply)
        if is_news:
            self.version += 1
            self._news_at_s = now_s
        return is_news


def _without_time(answer: Any) -> Any:
    if answer is None or "now_s" not in answer.__struct_fields__:
        return answer
    return msgspec.structs.replace(answer, now_s=0.0)
