"""What is asked once an hour is asked again, whatever became of it before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
import structlog
from sqlalchemy import Engine

from federator.daemon.hourly_look import HourlyLook
from federator.errors import HistoryError, InvalidRequest
from federator.history.service import JobHistory


class History:
    """Fails, fails by a fault of ours, answers."""

    def __init__(self) -> None:
        self.turns: list[Exception | int] = [HistoryError("away"), RuntimeError("ours"), 7]

    async def read(self, read: Callable[[Engine], int]) -> int:
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return read(cast(Engine, None)) + turn


def test_a_look_that_failed_is_made_again_and_only_a_fault_of_ours_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(span_s: float) -> None:
        if len(slept) == 4:
            raise asyncio.CancelledError
        slept.append(span_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    told: list[int] = []
    questions: list[Callable[[Engine], int] | None] = [lambda _: 0, None, lambda _: 0, lambda _: 0]
    history = cast(JobHistory, History())
    look = HourlyLook("hours", 5.0, history, lambda: questions.pop(0), told.append)
    with structlog.testing.capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        asyncio.run(look.run())
    assert slept == [5.0, 3600.0, 3600.0, 3600.0]
    assert told == [7]
    assert [(each["event"], each["about"]) for each in logs] == [("hourly_look_fault", "hours")]
    assert look.name == "HourlyLook hours"


@pytest.mark.parametrize("part", ["question", "tell"])
def test_a_fault_of_the_question_or_of_who_is_told_ends_no_look(part: str) -> None:
    def question() -> Callable[[Engine], int]:
        if part == "question":
            raise RuntimeError("ours")
        return lambda _: 0

    def tell(_: int) -> None:
        raise InvalidRequest("ours, too")

    history = History()
    history.turns = [7]
    look = HourlyLook("hours", 5.0, cast(JobHistory, history), question, tell)
    with structlog.testing.capture_logs() as logs:
        asyncio.run(look.look())
    assert [(each["event"], each["about"]) for each in logs] == [("hourly_look_fault", "hours")]
