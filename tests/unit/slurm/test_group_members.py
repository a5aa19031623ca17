"""Who is in the groups that a reservation admits."""

from __future__ import annotations

import asyncio
import grp
import pwd
import threading

import pytest

from federator.model.slurm_reservation import SlurmReservation
from federator.slurm.group_members import MISSED_S, GroupMembers


def users_of(members: GroupMembers, *groups: str) -> tuple[str, ...]:
    reservation = SlurmReservation(name="r", starts_at_s=0.0, ends_at_s=1.0, groups=groups)
    (found,) = asyncio.run(members.named([reservation]))
    return found.users


def of_groups(*groups: str) -> tuple[str, ...]:
    return users_of(GroupMembers(lambda: 0.0), *groups)


def test_whose_first_group_it_is_belongs_to_it() -> None:
    root = pwd.getpwnam("root")
    group = grp.getgrgid(root.pw_gid).gr_name
    assert "root" in of_groups(group)
    assert "-root" in of_groups(f"-{group}")


def test_an_unknown_group_admits_nobody() -> None:
    assert of_groups("nosuchgroup") == ("",)


def test_without_groups_nothing_is_looked_up() -> None:
    assert of_groups() == ()


def test_a_group_that_was_not_found_is_looked_up_again_and_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A directory that was out for a moment left it without members until the next start."""
    there: dict[str, grp.struct_group] = {}
    asked: list[tuple[str, threading.Thread]] = []

    def getgrnam(name: str) -> grp.struct_group:
        asked.append((name, threading.current_thread()))
        return there[name]

    monkeypatch.setattr(grp, "getgrnam", getgrnam)
    now_s = [1_000.0]
    members = GroupMembers(lambda: now_s[0])
    assert users_of(members, "vision") == ("",)
    there["vision"] = grp.struct_group(("vision", "x", 999_999, ["ada"]))
    assert users_of(members, "vision") == ("",)
    now_s[0] += MISSED_S
    for _ in range(2):
        assert users_of(members, "vision") == ("ada",)
    assert [name for name, _ in asked] == ["vision", "vision"]
    assert threading.main_thread() not in [thread for _, thread in asked]
