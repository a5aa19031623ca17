"""Replays a log into its state; every record is read, and must follow from those before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from federator import __version__
from federator.errors import DamagedLog, StoreError
from federator.model.event import LogRecord, decode_event
from federator.model.unreadable import UNREADABLE
from federator.sched.passes.federation import Federation


@dataclass(slots=True)
class LogSeen:
    """The contents of a log."""

    kinds: Counter[str] = field(default_factory=Counter)  # records, by tag
    last_at_s: float = 0.0  # Unix time of the newest; 0: there is none


def replay_log(federation: Federation, records: Iterable[bytes], first: int = 1) -> LogSeen:
    """Take a log in, record by record.

    Args:
        federation: knows what the log held before.
        records: in order.
        first: the number of the first of them in the log, counted from 1.

    Raises:
        DamagedLog: a record does not follow from those before it.
        StoreError: a record cannot be read: it is of a later release.
    """
    seen = LogSeen()
    for number, record in enumerate(records, start=first):
        event = read_record(number, record)
        seen.kinds[str(type(event).__struct_config__.tag)] += 1
        seen.last_at_s = max(seen.last_at_s, event.at_s)
        try:
            federation.replay((event,))
        except Exception as error:  # whatever is wrong with it, nothing may be built on it
            said = f"{type(error).__name__}: {error}"
            raise DamagedLog(
                f"event log, record {number} does not follow from those before it: {said}; "
                "put a copy back, or see 'federator recover'"
            ) from error
    return seen


def read_record(number: int, record: bytes) -> LogRecord:
    """Decode the record of this number, counted from 1; raises as ``replay_log``."""
    try:
        return decode_event(record)
    except UNREADABLE as error:
        kind = _kind_of(record)
        if kind is None:
            raise DamagedLog(
                f"event log, record {number} is no record; put a copy back, or see "
                "'federator recover'"
            ) from error
        raise StoreError(
            f"event log, record {number}, of kind {kind!r}, cannot be read by release "
            f"{__version__} ({error}): start the release that wrote it, or a later one"
        ) from error


def _kind_of(record: bytes) -> str | None:
    try:
        found: Any = msgspec.msgpack.decode(record)
    except UNREADABLE:
        return None
    kind = found.get("type") if isinstance(found, dict) else None
    return kind[:32] if isinstance(kind, str) else None
