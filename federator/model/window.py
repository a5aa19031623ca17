"""Times in which a site keeps nodes for others: what starts must be over by then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from federator.model.slurm_reservation import SlurmReservation


class SiteWindow(Struct, frozen=True, kw_only=True):
    """One time, from ``starts_at_s`` until ``ends_at_s`` (Unix), in which nodes are not to be had.

    ``again_s``: from one start to the next, at most; 0: it comes once.
    """

    name: str  # of Slurm's reservation
    starts_at_s: float
    ends_at_s: float
    nodes: tuple[str, ...]
    cpus: dict[str, int] = {}  # of nodes of which only so many CPUs are kept
    maintenance: bool = False
    again_s: float = 0.0
    users: tuple[str, ...] = ()  # who may use it by its name; "-NAME": who may not; none: all
    accounts: tuple[str, ...] = ()  # likewise

    def is_on(self, now_s: float) -> bool:
        return self.starts_at_s <= now_s < self.ends_at_s

    def admits(self, user: str, account: str) -> bool:
        """Whether jobs of a user in an account may ask for it, as slurmctld decides."""
        return _is_named(user, self.users) and _is_named(account, self.accounts)


def _is_named(name: str, names: tuple[str, ...]) -> bool:
    if f"-{name}" in names:
        return False
    return name in names or all(each.startswith("-") for each in names)


def windows_of(
    reservations: Iterable[SlurmReservation], cpus: Mapping[str, int], now_s: float
) -> tuple[SiteWindow, ...]:
    """The windows that reservations make of some nodes, in order of their starts.

    Whoever may use a reservation has to ask for it by name, so it is closed to all others.

    Args:
        reservations: of the site.
        cpus: of the nodes that matter, by name.
        now_s: Unix time.
    """
    found = []
    for each in reservations:
        kept = tuple(name for name in each.nodes if name in cpus)
        when = each.occurrence(now_s) if kept else None
        if when is None:
            continue
        found.append(
            SiteWindow(
                name=each.name,
                starts_at_s=when[0],
                ends_at_s=when[1],
                nodes=kept,
                cpus=_parts(each, kept, cpus),
                maintenance=each.is_maintenance,
                again_s=0.0 if each.recurrence is None else each.recurrence.most_s,
                users=each.users,
                accounts=each.accounts,
            )
        )
    return tuple(sorted(found, key=lambda window: (window.starts_at_s, window.name)))


def _parts(
    reservation: SlurmReservation, kept: Iterable[str], cpus: Mapping[str, int]
) -> dict[str, int]:
    """The CPUs reserved on nodes of which not all are."""
    said = reservation.cpus
    if not said and len(reservation.nodes) == 1 and reservation.total_cpus:
        said = {reservation.nodes[0]: reservation.total_cpus}
    return {name: said[name] for name in kept if name in said and said[name] < cpus[name]}
