"""Modes of a site, or of a tenant: how far the federation acts there, or for it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final


class SiteMode(Enum):
    """The steps by which a site is adopted, from the lowest up; see docs/adoption.md.

    A tenant has one of them, too: the lower of the two holds for its work at the site.
    """

    SHADOW = "shadow"  # its Slurm is read, and nothing is ever done there
    ADVISORY = "advisory"  # likewise; who asks is told what would start there
    OPT_IN = "opt-in"  # the federation's own jobs are started, and its limits bind nobody else
    ENFORCED = "enforced"  # likewise, and the site's admission rules get tenants' limits

    def __init__(self, word: str) -> None:
        """Attributes, not properties: each pass asks for them, many times a workload."""
        self.rank: Final = len(type(self).__members__)  # how high the step is, from 0
        # Whether the federation starts, evicts and cancels its own jobs there.
        self.acts: Final = word in ("opt-in", "enforced")

    @classmethod
    def lowest(cls, modes: Iterable[SiteMode]) -> SiteMode:
        """The lowest of some, which holds for all of them together; of none, the highest."""
        return min(modes, key=lambda mode: mode.rank, default=cls.ENFORCED)

    @property
    def there(self) -> SiteMode:
        """What the site's agent is told: it knows only whether anything may be done there."""
        return SiteMode.ENFORCED if self.acts else SiteMode.SHADOW
