"""Keeps the last acts of an audit in memory, so that who looks at them reads no file."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from federator.audit.chain import AuditAct
from federator.wire.audit_messages import AuditRow

OF_KIND: Final = 100  # so many awards, or cancels of users, drive out no drain of an operator
MOST_KINDS: Final = 256  # more than there are; a file may hold any
MOST_WORDS: Final = 400  # characters of each text of a row


class LatestActs:
    """The last acts of each kind; its methods may be called from any thread.

    That a kind of act was refused is a kind of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, bool], deque[tuple[int, AuditAct]]] = {}

    def add(self, n: int, act: AuditAct) -> None:
        """Add the act of line ``n``."""
        kind = (act.act, bool(act.refused))
        with self._lock:
            if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
                kind = ("", False)  # all others
            self._kinds.setdefault(kind, deque(maxlen=OF_KIND)).append((n, act))

    def rows(self) -> tuple[AuditRow, ...]:
        """All of them, newest first."""
        with self._lock:
            found = [each for acts in self._kinds.values() for each in acts]
        found.sort(key=lambda each: -each[0])
        return tuple(_row(n, act) for n, act in found)


def _row(n: int, act: AuditAct) -> AuditRow:
    return AuditRow(
        n=n,
        at_s=act.at_s,
        act=act.act,
        by=act.by,
        via=act.via,
        on=act.on[:MOST_WORDS],
        why=words_of(act.why)[:MOST_WORDS],
        effect=words_of(act.effect)[:MOST_WORDS],
        refused=act.refused[:MOST_WORDS],
    )


def words_of(values: Mapping[str, Any]) -> str:
    """What an act says, on one line."""
    return " ".join(f"{key}={_short(value)}" for key, value in values.items())


def _short(value: object) -> str:
    if isinstance(value, str):
        return repr(value) if " " in value else value
    return msgspec.json.encode(value).decode()
