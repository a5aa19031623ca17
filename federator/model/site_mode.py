"""Modes of a site: how far the federation acts there."""

from __future__ import annotations

from enum import Enum


class SiteMode(Enum):
    """The steps by which a site is adopted; see docs/adoption.md."""

    SHADOW = "shadow"  # its Slurm is read, and nothing is ever done there
    ENFORCED = "enforced"  # the federation starts, evicts and cancels its own jobs there
