"""Mappings that are replaced, never changed: an empty one costs nothing, however many have it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})

_K = TypeVar("_K")
_V = TypeVar("_V")


def without_key(mapping: Mapping[_K, _V], key: _K) -> Mapping[_K, _V]:
    """The mapping less the key, if that is in it."""
    if key not in mapping:
        return mapping
    return {k: value for k, value in mapping.items() if k != key} or NOTHING
