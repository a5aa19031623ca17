"""Modes of a site: how far the federation acts there."""

from __future__ import annotations

from enum import Enum


class SiteMode(Enum):
    """The steps by which a site is adopted, from the lowest up; see docs/adoption.md."""

    SHADOW = "shadow"  # its Slurm is read, and nothing is ever done there
    ADVISORY = "advisory"  # likewise; who asks is told what would start there
    OPT_IN = "opt-in"  # the federation's own jobs are started, and its limits bind nobody else
    ENFORCED = "enforced"  # likewise, and the site's admission rules get tenants' limits

    @property
    def rank(self) -> int:
        """How high the step is, from 0."""
        return list(SiteMode).index(self)

    @property
    def acts(self) -> bool:
        """Whether the federation starts, evicts and cancels its own jobs there."""
        return self.rank >= SiteMode.OPT_IN.rank
