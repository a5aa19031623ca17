"""Reads ``--reservation``: names of reservations of sites' Slurms, ``NAME`` or ``SITE:NAME``."""

from __future__ import annotations

import re
from typing import Final

from federator.errors import InvalidRequest

INVALID: Final = "Batch job submission failed: Requested reservation is invalid"
DENIED: Final = "Batch job submission failed: Access denied to requested reservation"
MOST_NAMES: Final = 16
_NAME: Final = re.compile(r"(?:[A-Za-z0-9_.-]+:)?[A-Za-z0-9_.+@-]{1,255}", re.ASCII)


def reservation(text: str | None) -> tuple[str, ...]:
    """Read a list, in its order. None or "": none.

    Raises:
        InvalidRequest: in sbatch's words.
    """
    names = tuple(dict.fromkeys(part for part in (text or "").split(",") if part))
    if len(names) > MOST_NAMES or not all(map(_NAME.fullmatch, names)):
        raise InvalidRequest(INVALID)
    return names
