"""Defragmentation: whether small jobs move to other nodes so that a gang fits, and when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

_DAY_S: Final = 86_400.0


class Defragment(Enum):
    """Whether jobs move for a gang: ``policy.defragment.mode``."""

    OFF = "off"  # none does
    ADVISORY = "advisory"  # none does; the gang's reason says which moves would pay
    ON = "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """The hours of the day, in UTC, in which jobs may move; over midnight if they end before.

    Attributes:
        from_s: seconds after midnight, as the next.
        until_s: not among them.
    """

    from_s: float
    until_s: float

    def has(self, now_s: float) -> bool:
        """Tell whether a Unix time lies in them."""
        at_s = now_s % _DAY_S
        if self.from_s <= self.until_s:
            return self.from_s <= at_s < self.until_s
        return at_s >= self.from_s or at_s < self.until_s
