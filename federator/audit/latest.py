"""Keeps the last acts of an audit in memory, so that who looks at them reads no file."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from federator.audit.chain import AuditAct
from federator.wire.audit_messages import AuditRow

AWARDS: Final = 100
OTHERS: Final = 300  # so that many awards drive out no act of an operator
MOST_WORDS: Final = 400  # characters of a row's ``why``, and of its ``effect``
_AWARD: Final = "award"


class LatestActs:
    """The last awards and the last other acts; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._awards: deque[tuple[int, AuditAct]] = deque(maxlen=AWARDS)
        self._others: deque[tuple[int, AuditAct]] = deque(maxlen=OTHERS)

    def add(self, n: int, act: AuditAct) -> None:
        """Add the act of line ``n``."""
        with self._lock:
            (self._awards if act.act == _AWARD else self._others).append((n, act))

    def rows(self) -> tuple[AuditRow, ...]:
        """All of them, newest first."""
        with self._lock:
            found = [*self._awards, *self._others]
        found.sort(key=lambda each: -each[0])
        return tuple(_row(n, act) for n, act in found)


def _row(n: int, act: AuditAct) -> AuditRow:
    return AuditRow(
        n=n,
        at_s=act.at_s,
        act=act.act,
        by=act.by,
        via=act.via,
        on=act.on,
        why=words_of(act.why)[:MOST_WORDS],
        effect=words_of(act.effect)[:MOST_WORDS],
        refused=act.refused,
    )


def words_of(values: Mapping[str, Any]) -> str:
    """What an act says, on one line."""
    return " ".join(f"{key}={_short(value)}" for key, value in values.items())


def _short(value: object) -> str:
    if isinstance(value, str):
        return repr(value) if " " in value else value
    return msgspec.json.encode(value).decode()
