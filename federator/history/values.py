"""Fits values to what every database takes: names come from users, and numbers from sites."""

from __future__ import annotations

from math import isnan
from typing import Final

MAX_TEXT: Final = 16_000  # characters
MAX_KEY: Final = 400  # characters of what is looked up: an index takes no text of any length
MAX_WORD: Final = 360  # bytes: an index takes a row of seven such words
MAX_INT: Final = 2**63 - 1
_KEYS: Final = frozenset({"name", "user", "tenant", "site"})


def fitted(values: dict[str, object]) -> dict[str, object]:
    """Values by column: texts without NUL and of bounded length, whole numbers below 2**63."""
    for name, value in values.items():  # hardly any needs more than a look
        if isinstance(value, str):
            if len(value) > MAX_KEY or "\0" in value:
                values[name] = key(value) if name in _KEYS else text(value)
        elif isinstance(value, int):
            if not -MAX_INT <= value <= MAX_INT:
                values[name] = MAX_INT if value > 0 else -MAX_INT
        elif isinstance(value, float) and isnan(value):
            values[name] = 0.0
    return values


def key(found: str) -> str:
    """A text as it stands in a column that is looked up."""
    return found.replace("\0", "\N{REPLACEMENT CHARACTER}")[:MAX_KEY]


def text(found: str) -> str:
    """A text as it stands in any other column."""
    return found.replace("\0", "\N{REPLACEMENT CHARACTER}")[:MAX_TEXT]


def word(found: str) -> str:
    """A text as it stands in a key of several words."""
    if len(found) <= MAX_WORD // 4 and "\0" not in found:  # a character has up to four bytes
        return found
    return key(found).encode()[:MAX_WORD].decode(errors="ignore")


def amount(found: int, most: int) -> int:
    """A number that is added up: one that cannot be must not reach beyond all others."""
    return min(max(0, found), most)
