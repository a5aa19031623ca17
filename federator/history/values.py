"""Fits values to what every database takes: names come from users, and numbers from sites."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Final

MAX_TEXT: Final = 16_000  # characters
MAX_KEY: Final = 400  # characters of what is looked up: an index takes no text of any length
MAX_INT: Final = 2**63 - 1
_KEYS: Final = frozenset({"name", "user", "tenant", "site"})


def fitted(values: Mapping[str, object]) -> dict[str, object]:
    """Values by column: texts without NUL and of bounded length, whole numbers below 2**63."""
    return {name: _fitted(name, value) for name, value in values.items()}


def key(text: str) -> str:
    """A text as it stands in a column that is looked up."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[:MAX_KEY]


def _fitted(name: str, value: object) -> object:
    match value:
        case str():
            return key(value) if name in _KEYS else key_free(value)
        case int():
            return max(-MAX_INT, min(MAX_INT, value))
        case float() if isnan(value):
            return 0.0
        case _:
            return value


def key_free(text: str) -> str:
    """A text as it stands in any other column."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[:MAX_TEXT]
