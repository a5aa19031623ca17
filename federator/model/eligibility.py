"""Conditions that keep a workload out of the queue: who holds it.

A workload that waits for one of them is ``INELIGIBLE``: no site is asked about it, and it gains no
age. ``sched.state.eligibility`` says which of them it waits for.
"""

from __future__ import annotations

from enum import Enum


class Hold(Enum):
    """The one who holds a workload; only they, or somebody with more rights, release it."""

    NONE = ""
    USER = "user"
    ADMIN = "admin"
