"""Gives lines a colour where a person looks at them, and never where a script reads.

The colours are those of ``federator top``: of jobs, what runs is green, what waits yellow, what
goes wrong red; of sites, those that are away are red, those that are drained yellow.
"""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import Final

from federator.cli.job_states import WAITS
from federator.wire.client_protocol import QueueRow, SiteRow

_RUNNING: Final = "RUNNING"
_FAILED_OR_LEAVING: Final = frozenset({"FAILED", "TIMEOUT", "PREEMPTING", "CANCELLING"})


class Colour(Enum):
    """A colour of text, by the number that ECMA-48 gives it."""

    RED = 31
    GREEN = 32
    YELLOW = 33


def is_looked_at() -> bool:
    """Whether standard output is a terminal that has colours, and ``NO_COLOR`` is not set."""
    known = os.environ.get("TERM", "") not in ("", "dumb")
    return known and not os.environ.get("NO_COLOR") and sys.stdout.isatty()


def painted(line: str, colour: Colour | None) -> str:
    """The line in a colour where it is looked at; it is fit for a terminal already."""
    return coloured(line, colour) if is_looked_at() else line


def coloured(line: str, colour: Colour | None) -> str:
    """The line in a colour; of many lines it is found out once whether they are looked at."""
    if colour is None or not line:
        return line
    return f"\x1b[{colour.value}m{line}\x1b[0m"


def of_job(row: QueueRow) -> Colour | None:
    """The colour of a row of the queue; None: it has none."""
    if row.unknown_since_s or row.state in _FAILED_OR_LEAVING:
        return Colour.RED
    if row.state == _RUNNING:
        return Colour.GREEN
    return Colour.YELLOW if row.state in WAITS else None


def of_site(site: SiteRow) -> Colour | None:
    """The colour of a site's row; None: it has none."""
    if not site.up:
        return Colour.RED
    return Colour.YELLOW if site.drains else None
