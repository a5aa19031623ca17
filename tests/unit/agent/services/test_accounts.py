"""A user is looked up once a minute, however often a site bids."""

from __future__ import annotations

from federator.agent.services.accounts import FRESH_S, Accounts
from federator.faults.clock import VirtualClock
from federator.model.site_names import SiteNames


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


def test_who_is_called_otherwise_here_has_the_account_of_that_name_alone() -> None:
    there = {"a.one", "ada", "bob"}
    users = Accounts(there.__contains__, names=SiteNames(users={"ada": "a.one", "eve": "e.one"}))
    assert [users.has(user) for user in ("ada", "bob", "eve", "a.one")] == [
        True,
        True,
        False,
        False,
    ]
    assert [users.name_of(user) for user in ("ada", "bob", "a.one")] == ["a.one", "bob", "=a.one"]
