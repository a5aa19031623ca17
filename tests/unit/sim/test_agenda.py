"""The order in which things happen in a simulation."""

from __future__ import annotations

from functools import partial

from federator.sim.agenda import Agenda
from federator.sim.failures import SimEventKind


def test_of_one_instant_ends_come_first_and_then_what_was_noted_first() -> None:
    agenda, done = Agenda(), list[str]()
    for at_s, kind, name in (
        (2.0, SimEventKind.END, "later"),
        (1.0, SimEventKind.NODE, "node"),
        (1.0, SimEventKind.END, "end"),
        (1.0, SimEventKind.NODE, "another node"),
    ):
        agenda.add(at_s, kind, partial(done.append, name))
    agenda.act(1.0)
    assert done == ["end", "node", "another node"]
    assert list(agenda.times()) == [2.0]


def test_an_act_may_bring_another_of_the_same_instant() -> None:
    agenda, done = Agenda(), list[int]()
    agenda.add(1.0, SimEventKind.END, lambda: agenda.add(1.0, SimEventKind.END, then))

    def then() -> None:
        done.append(1)

    agenda.act(1.0)
    assert done == [1]


def test_ticks_that_are_due_together_are_one() -> None:
    agenda = Agenda()
    for at_s in (1.0, 1.0, 2.0):
        agenda.add_tick(at_s)
    assert agenda.takes_ticks(1.0)
    assert not agenda.takes_ticks(1.5)
    assert list(agenda.times()) == [2.0]
