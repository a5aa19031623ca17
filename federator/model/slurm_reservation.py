"""A reservation of a site's Slurm, as ``scontrol show reservation`` tells it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct

DAY_S: Final = 86_400.0


class Recurrence(NamedTuple):
    """How often a reservation comes again: seconds between two starts, at least and at most."""

    least_s: float
    most_s: float


RECURRENCES: Final = MappingProxyType(
    {
        "HOURLY": Recurrence(3_600.0, 3_600.0),
        "DAILY": Recurrence(DAY_S, DAY_S),
        "WEEKDAY": Recurrence(DAY_S, 3 * DAY_S),  # from Friday to Monday
        "WEEKEND": Recurrence(DAY_S, 6 * DAY_S),  # from Sunday to Saturday
        "WEEKLY": Recurrence(7 * DAY_S, 7 * DAY_S),
    }
)
"""By flag of a reservation."""
MAINT: Final = "MAINT"


class SlurmReservation(Struct, frozen=True, kw_only=True):
    """One reservation; of one that comes again, the occurrence that is next or under way.

    ``users``, ``groups``, ``accounts`` and ``qos`` may use it; a name after ``-`` may not.
    """

    name: str
    starts_at_s: float  # Unix time, as the next
    ends_at_s: float
    nodes: tuple[str, ...] = ()  # none: of licenses or burst buffers alone
    cpus: dict[str, int] = {}  # of nodes that are reserved in part, as far as said
    total_cpus: int = 0  # of all nodes together; 0: not said
    flags: tuple[str, ...] = ()
    partition: str = ""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    features: str = ""
    licenses: str = ""

    @property
    def is_maintenance(self) -> bool:
        return MAINT in self.flags

    @property
    def recurrence(self) -> Recurrence | None:
        """How often it comes again; None: never."""
        return next((RECURRENCES[flag] for flag in self.flags if flag in RECURRENCES), None)

    def occurrence(self, now_s: float) -> tuple[float, float] | None:
        """Start and end of the occurrence under way, or of the next; None: it is over for good.

        Slurm moves the times of one that comes again a while after its end. Until then the next
        one is taken to come as early as it can.
        """
        start_s, end_s, again = self.starts_at_s, self.ends_at_s, self.recurrence
        if end_s > now_s:
            return start_s, end_s
        if again is None:
            return None
        times = (now_s - end_s) // again.least_s + 1
        return start_s + times * again.least_s, end_s + times * again.least_s
