"""Quotas that are hardly used: the steps by which one is lent fully, and returned."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class LoanStep(Enum):
    """A step of an unused quota; it replaces the one before."""

    ADVISED = "advised"  # it would be given notice: ``unused_quota`` is advisory
    NOTICED = "noticed"  # it is lent from a time on, unless it is used before
    LENT = "lent"  # nothing of it is held back for a forecast
    USED = "used"  # its tenant wants it again: it is held back as before
    ENDED = "ended"  # likewise, by the use of other days or by the configuration
    KEPT = "kept"  # an operator has it held back, until a time
    RELEASED = "released"  # the same no more: it is judged as others are


OPEN_STEPS: Final = frozenset({LoanStep.ADVISED, LoanStep.NOTICED, LoanStep.LENT})
"""From which use leads back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedQuotaRules:
    """When a quota counts as unused.

    Attributes:
        below_frac: of the quota; on each of the days less was in use.
        days: whole ones, the last.
        notice_s: between the notice to its tenant and the loan.
    """

    below_frac: float = 0.2
    days: int = 3
    notice_s: float = 86_400.0
