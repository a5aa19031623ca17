"""The progress lease of a job: the longest time that may pass from one of its steps to the next.

As ``--fed-progress`` says it: ``MIN`` or ``MIN:SS``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from federator.model.submission import Option, Submission

OPTION: Final = "fed-progress"
LEAST_S: Final = 10
MOST_MIN: Final = 10_080  # a week

_TIME: Final = re.compile(r"([0-9]{1,18})(?::([0-5][0-9]))?")


def seconds_of(text: str) -> int | None:
    """The seconds that a value says; None: it is none, or out of range."""
    found = _TIME.fullmatch(text)
    seconds = int(found[1]) * 60 + int(found[2] or 0) if found is not None else 0
    return seconds if LEAST_S <= seconds <= MOST_MIN * 60 else None


def longest(components: Iterable[Iterable[Option]]) -> str:
    """The longest time that any component gives, as it says it; "": none has a lease."""
    said = [o.value or "" for options in components for o in options if o.name == OPTION]
    return max(said, key=lambda text: seconds_of(text) or 0, default="")


def longest_step_s(submission: Submission) -> float:
    """The longest time that any component of a submission gives; 0: none has a lease."""
    return float(seconds_of(longest(submission.components)) or 0)
