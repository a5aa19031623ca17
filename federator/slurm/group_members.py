"""Looks up who is in the groups that a reservation admits, as slurmctld does."""

from __future__ import annotations

import grp
import pwd
from functools import lru_cache

from msgspec import structs

from federator.model.slurm_reservation import SlurmReservation

_KEPT = 256


def with_members(reservation: SlurmReservation) -> SlurmReservation:
    """A reservation that names users instead of groups; Slurm lets it name either."""
    if not reservation.groups:
        return reservation
    users = dict.fromkeys(user for group in reservation.groups for user in _members(group))
    # An unknown group admits nobody, and no user has this name.
    return structs.replace(reservation, users=reservation.users + (tuple(users) or ("",)))


@lru_cache(maxsize=_KEPT)  # the agent is started anew with its channel
def _members(group: str) -> tuple[str, ...]:
    """Its members, and those whose first group it is."""
    minus = "-" if group.startswith("-") else ""
    try:
        found = grp.getgrnam(group.removeprefix("-"))
    except KeyError:
        return ()
    first = (user.pw_name for user in pwd.getpwall() if user.pw_gid == found.gr_gid)
    return tuple(minus + name for name in (*found.gr_mem, *first))
