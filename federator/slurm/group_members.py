"""Looks up who is in the groups that a reservation admits, as slurmctld does."""

from __future__ import annotations

import asyncio
import grp
import pwd
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import structs

from federator.model.slurm_reservation import SlurmReservation

MISSED_S: Final = 60.0  # a group without members is looked up again after this time
_KEPT: Final = 256


class GroupMembers:
    """The members of groups, each looked up once: the agent is started anew with its channel.

    One that is not found, or has nobody, is looked up again: a directory may be out for a while.

    Args:
        clock: Unix time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, tuple[str, ...]] = {}
        self._again_at_s: dict[str, float] = {}  # of groups that had none

    async def named(self, reservations: Iterable[SlurmReservation]) -> tuple[SlurmReservation, ...]:
        """The reservations with users instead of groups; Slurm lets one name either.

        A directory may take its time, so it is asked in a thread.
        """
        found = tuple(reservations)
        wanted = {group for each in found for group in each.groups if self._is_due(group)}
        if wanted:
            members = await asyncio.to_thread(_look_up, sorted(wanted))
            self._keep(members)
        return tuple(self._with_members(each) for each in found)

    def _is_due(self, group: str) -> bool:
        return group not in self._known and self._again_at_s.get(group, 0.0) <= self._clock()

    def _keep(self, members: dict[str, tuple[str, ...]]) -> None:
        for kept in (self._known, self._again_at_s):
            if len(kept) >= _KEPT:
                kept.clear()
        again_at_s = self._clock() + MISSED_S
        self._known |= {group: users for group, users in members.items() if users}
        self._again_at_s |= {group: again_at_s for group, users in members.items() if not users}

    def _with_members(self, reservation: SlurmReservation) -> SlurmReservation:
        if not reservation.groups:
            return reservation
        users = dict.fromkeys(u for group in reservation.groups for u in self._known.get(group, ()))
        # An unknown group admits nobody, and no user has this name.
        return structs.replace(reservation, users=reservation.users + (tuple(users) or ("",)))


def _look_up(groups: Iterable[str]) -> dict[str, tuple[str, ...]]:
    return {group: _members(group) for group in groups}


def _members(group: str) -> tuple[str, ...]:
    """Its members, and those whose first group it is."""
    minus = "-" if group.startswith("-") else ""
    try:
        found = grp.getgrnam(group.removeprefix("-"))
    except KeyError:
        return ()
    first = (user.pw_name for user in pwd.getpwall() if user.pw_gid == found.gr_gid)
    return tuple(minus + name for name in (*found.gr_mem, *first))
