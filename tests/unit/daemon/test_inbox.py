"""A turn takes all that has come in, and the wakes that are due as one tick."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from federator.daemon.inbox import BATCH, Inbox
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.message import Observation, SiteUp, Tick
from federator.model.workload import SiteName

A, B = SiteUp(site=SiteName("alpine")), SiteUp(site=SiteName("boreal"))


def gathered(*come: Observation, wakes: Sequence[float] = ()) -> tuple[list[Observation], float]:
    """What the next turn takes, and the time at which it does."""

    async def turn() -> tuple[list[Observation], float]:
        clock = asyncio.get_running_loop().time
        inbox, began_s = Inbox(clock), clock()
        for each in come:
            inbox.put(each)
        for at_s in wakes:
            inbox.wake(began_s + at_s)
        found = list(await inbox.gather())
        return found, clock() - began_s

    return run_virtual(VirtualClock(), turn())


def test_a_turn_takes_what_is_there_in_the_order_in_which_it_came() -> None:
    assert gathered(A, B, A) == ([A, B, A], 0.0)


def test_a_turn_takes_no_more_than_share_one_commit() -> None:
    found, _ = gathered(*[A] * (BATCH + 1))
    assert found == [A] * BATCH


def test_without_news_the_first_wake_begins_a_turn() -> None:
    assert gathered(wakes=(7.0, 3.0)) == ([Tick()], 3.0)


def test_wakes_that_are_due_together_are_one_tick_behind_the_news() -> None:
    assert gathered(A, wakes=(-2.0, -1.0)) == ([A, Tick()], 0.0)


def test_a_wake_waits_while_turns_are_long_and_news_does_not() -> None:
    async def turns() -> tuple[float, float]:
        clock = asyncio.get_running_loop().time
        inbox = Inbox(clock)
        began_s = clock()
        await asyncio.sleep(0.1)  # of virtual time
        inbox.decided([Tick()], began_s)
        over_s = clock()
        inbox.wake(over_s)
        inbox.put(A)
        assert list(await inbox.gather()) == [A]
        news_s = clock() - over_s
        assert list(await inbox.gather()) == [Tick()]
        return news_s, clock() - over_s

    news_s, wake_s = run_virtual(VirtualClock(), turns())
    assert news_s == 0.0
    assert 0.8 < wake_s < 1.0


def test_all_is_taken_without_waiting() -> None:
    inbox = Inbox(lambda: 0.0)
    inbox.put(A)
    inbox.put(B)
    assert inbox.take_all() == [A, B]
    assert inbox.take_all() == []
