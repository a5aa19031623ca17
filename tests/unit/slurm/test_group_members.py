"""Who is in the groups that a reservation admits."""

from __future__ import annotations

import grp
import pwd

from federator.model.slurm_reservation import SlurmReservation
from federator.slurm.group_members import with_members


def of_groups(*groups: str) -> tuple[str, ...]:
    reservation = SlurmReservation(name="r", starts_at_s=0.0, ends_at_s=1.0, groups=groups)
    return with_members(reservation).users


def test_whose_first_group_it_is_belongs_to_it() -> None:
    root = pwd.getpwnam("root")
    group = grp.getgrgid(root.pw_gid).gr_name
    assert "root" in of_groups(group)
    assert "-root" in of_groups(f"-{group}")


def test_an_unknown_group_admits_nobody() -> None:
    assert of_groups("nosuchgroup") == ("",)


def test_without_groups_nothing_is_looked_up() -> None:
    assert of_groups() == ()
