"""Whoever asks the history gets one answer, whatever becomes of the reading."""

from __future__ import annotations

import asyncio

import pytest

from federator.daemon.history_answers import MAX_NAMES, HistoryAnswers, check_names
from federator.errors import FederatorError, HistoryError, InvalidRequest, NotAllowed
from federator.faults.clock import VirtualClock, run_virtual
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.replies import Reply


def answers_to(error: Exception) -> list[Reply]:
    """Those that a caller gets where the reading fails with this error."""
    answers: list[Reply] = []

    async def read() -> Reply:
        raise error

    async def asked() -> None:
        HistoryAnswers().give(read(), answers.append, None)
        assert answers == []  # nobody waits for the history but who asked
        await asyncio.sleep(1.0)

    run_virtual(VirtualClock(), asked())
    return answers


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HistoryError("it is locked"), ErrorKind.UNAVAILABLE),
        (NotAllowed("it is locked"), ErrorKind.DENIED),
        (InvalidRequest("it is locked"), ErrorReply(message="").kind),
    ],
)
def test_an_error_is_an_answer_of_its_kind(error: FederatorError, kind: ErrorKind) -> None:
    assert answers_to(error) == [ErrorReply(message="it is locked", kind=kind)]


def test_a_fault_of_ours_is_an_answer_too() -> None:
    (answer,) = answers_to(KeyError("planted"))
    assert isinstance(answer, ErrorReply)
    assert answer.message == "the daemon failed on this request; its log says how"


def test_a_question_names_no_more_than_the_history_can_look_up_at_once() -> None:
    check_names([["ada"] * MAX_NAMES, []])
    with pytest.raises(InvalidRequest, match=f"more than {MAX_NAMES} names"):
        check_names([[], ["ada"] * (MAX_NAMES + 1)])
