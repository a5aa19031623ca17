"""Orders of one attempt wait for each other; those of two do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.agent.memory import AttemptRecord, OrderTurn
from federator.agent.order_turns import OrderTurns
from federator.faults.clock import VirtualClock
from tests.fakes.agent import LookedSite, PartOfAgent, cancel, order
from tests.fakes.build import attempt


class Turns:
    """What was begun, in that order."""

    def __init__(self, folder: Path) -> None:
        clock = VirtualClock()
        self.memory = PartOfAgent(folder, LookedSite(clock), clock).memory
        self.begun: list[tuple[AttemptRecord, OrderTurn]] = []
        self.turns = OrderTurns(self.memory, lambda r: self.begun.append((r, r.turns[0])))


@pytest.fixture
def turns(tmp_path: Path) -> Turns:
    return Turns(tmp_path)


def test_the_next_order_of_an_attempt_begins_when_the_one_before_is_carried_out(
    turns: Turns,
) -> None:
    first, second = OrderTurn(order()), OrderTurn(cancel())
    turns.turns.add(attempt(), first)
    turns.turns.add(attempt(), second)
    record = turns.memory.records[attempt()]
    assert turns.begun == [(record, first)]
    turns.turns.end(record)
    assert turns.begun == [(record, first), (record, second)]


def test_orders_of_two_attempts_do_not_wait_for_each_other(turns: Turns) -> None:
    for number in (0, 1):
        turns.turns.add(attempt(number), OrderTurn(order(number)))
    assert [record.attempt for record, _ in turns.begun] == [attempt(0), attempt(1)]


def test_an_attempt_without_orders_is_forgotten(turns: Turns) -> None:
    turns.turns.add(attempt(), OrderTurn(cancel()))
    turns.turns.end(turns.memory.records[attempt()])
    assert turns.memory.records == {}
