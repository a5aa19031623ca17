"""A user is looked up once a minute, however often a site bids."""

from __future__ import annotations

from federator.agent.services.accounts import FRESH_S, Accounts
from federator.faults.clock import VirtualClock


def test_an_answer_is_remembered_for_a_minute_and_then_asked_for_anew() -> None:
    clock = VirtualClock()
    asked: list[str] = []
    there = {"ada"}

    def look_up(user: str) -> bool:
        asked.append(user)
        return user in there

    accounts = Accounts(look_up, clock)
    assert [accounts.has(u) for u in ("ada", "bob", "ada")] == [True, False, True]
    assert asked == ["ada", "bob"]
    there.add("bob")
    clock.now_s += FRESH_S
    assert accounts.has("bob")


def test_the_machine_knows_root_and_nobody_made_up() -> None:
    assert Accounts().has("root")
    assert not Accounts().has("no-such-user-here")
