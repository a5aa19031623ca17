"""The order of fsqueue's rows: squeue's ``--sort``, a list of its format letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from federator.cli.queue_columns import (
    COLUMNS,
    Shown,
    elapsed_s,
    end_s,
    starts,
)
from federator.errors import InvalidRequest

_FIELD: Final = re.compile(r"([+-]?)(cluster|.)", re.DOTALL)
SORTED: Final = frozenset("BbcCdDefgGhHiIjJlLmMnNOpPQStTuUvVz")
"""Letters that squeue sorts by."""
OF_DETAILS: Final = frozenset("bcCdfhHIJmnOvz")
"""Letters whose order is that of details of the request; of ``S`` see ``STARTS``."""
_TEXTS: Final = {column.letter: column.value for column in reversed(COLUMNS) if column.letter}
_KEYS: Final[Mapping[str, Callable[[Shown], Any]]] = MappingProxyType(
    {
        "cluster": lambda s: s.row.site,
        "c": lambda s: s.details.min_cpus,
        "C": lambda s: s.details.cpus,
        "D": lambda s: s.row.nodes or 1,
        "e": end_s,
        "i": lambda s: (s.row.array_id or s.row.id, s.row.array_index),
        "l": lambda s: s.row.time_limit_s,
        "L": lambda s: s.row.time_limit_s - elapsed_s(s),
        "m": lambda s: s.details.min_mem_mib,
        "M": elapsed_s,
        "p": lambda s: -s.row.priority,
        "Q": lambda s: -s.row.priority,
        "S": lambda s: starts(s)[0],
        "V": lambda s: s.row.submitted_at_s,
    }
)
"""Where the order is not that of the texts. The highest priority is 1, and the greatest."""


def sort_fields(text: str) -> tuple[tuple[str, bool], ...]:
    """Read the value of ``-S``: ``P,t,-p``.

    Returns:
        Letters, or ``cluster``, the most significant first; true: from the greatest down.

    Raises:
        InvalidRequest: squeue sorts by no such field.
    """
    fields = []
    for sign, name in _FIELD.findall(text.replace(",", "")):
        if name != "cluster" and name not in SORTED:
            raise InvalidRequest(f"Invalid sort specification: {name}")
        fields.append((name, sign == "-"))
    return tuple(fields)


def in_order(shown: Sequence[Shown], fields: Sequence[tuple[str, bool]]) -> list[Shown]:
    """Sort rows; those that are alike keep their order."""
    rows = list(shown)
    for name, is_reversed in reversed(fields):
        rows.sort(key=_KEYS.get(name) or _TEXTS[name], reverse=is_reversed)
        if name == "S":  # what has no start comes last in either direction, as with squeue
            rows.sort(key=lambda each: not starts(each)[0])
    return rows
