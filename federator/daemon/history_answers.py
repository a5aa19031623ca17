"""Gives answers that are read from the history: each comes later, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sized
from typing import Any, Final

import structlog

from federator.errors import HistoryError, InvalidRequest, NotAllowed
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.replies import Reply

MAX_NAMES: Final = 1_000  # of one kind, in one question
NO_HISTORY: Final = "no history is kept; what ended long ago is not shown (history.url)"

log = structlog.get_logger()


def check_names(kinds: Iterable[Sized]) -> None:
    """Raises: InvalidRequest: a question has too many names of one kind."""
    if max(map(len, kinds)) > MAX_NAMES:
        raise InvalidRequest(f"more than {MAX_NAMES} names of one kind; ask for fewer")


class HistoryAnswers:
    """The answers that are being made."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()  # or they could be lost on their way

    def give(
        self, made: Coroutine[Any, Any, Reply], answer: Callable[[Reply], None], call: object
    ) -> None:
        """Answer with what is made, or with why it was not.

        Args:
            made: makes the answer to ``call``.
            answer: takes it.
            call: named in the log where a fault of ours is.
        """
        task = asyncio.get_running_loop().create_task(_answer(made, answer, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer(
    made: Coroutine[Any, Any, Reply], answer: Callable[[Reply], None], call: object
) -> None:
    try:
        answer(await made)
    except HistoryError as error:
        answer(ErrorReply(message=str(error), kind=ErrorKind.UNAVAILABLE))
    except NotAllowed as error:
        answer(ErrorReply(message=str(error), kind=ErrorKind.DENIED))
    except InvalidRequest as error:
        answer(ErrorReply(message=str(error)))
    except Exception:  # a fault of ours must not leave the caller without an answer
        log.exception("call_fault", call=type(call).__name__)
        answer(ErrorReply(message="the daemon failed on this request; its log says how"))
