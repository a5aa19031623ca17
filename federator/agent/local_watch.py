"""Tells the daemon what is new of a site's own jobs: each stay when it changes, and none twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from federator.model.local_record import GONE, ORDINARY, REQUEUED, LocalRecord, lasting_word
from federator.wire.agent_protocol import LocalJobs

MOST_AT_ONCE: Final = 2_000  # records of one message


class LocalWatch:
    """What was told over this channel, to compare the next sweep with."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, float, int], LocalRecord] | None = None  # None: nothing yet

    def news(self, seen: Iterable[LocalRecord] | None, at_s: float) -> Iterator[LocalJobs]:
        """The messages to send of a sweep.

        Args:
            seen: all that the sweep shows; None: it was not asked.
            at_s: Unix time.
        """
        if seen is None:
            return
        before = self._known
        now = {record.key: _with_word(record, (before or {}).get(record.key)) for record in seen}
        self._known = now
        if before is None:
            parts = _parts(list(now.values())) or [()]
            for number, part in enumerate(parts, 1):
                yield LocalJobs(at_s=at_s, records=part, complete=number == len(parts))
            return
        fresh = [record for key, record in now.items() if _is_news(record, before.get(key))]
        again = {record.job_id for record in fresh}
        missed = (r for key, r in before.items() if key not in now and r.is_open)
        fresh += [_left(record, at_s, record.job_id in again) for record in missed]
        for part in _parts(fresh):
            yield LocalJobs(at_s=at_s, records=part)


def _parts(records: Sequence[LocalRecord]) -> list[tuple[LocalRecord, ...]]:
    starts = range(0, len(records), MOST_AT_ONCE)
    return [tuple(records[at : at + MOST_AT_ONCE]) for at in starts]


def _with_word(record: LocalRecord, before: LocalRecord | None) -> LocalRecord:
    """With the word for which it waited, also once it has started: that changes no more then."""
    if before is None:
        return record
    has_started = record.started_at_s > 0
    word = before.held_by if has_started else lasting_word(before.held_by, record.held_by)
    return record if word == record.held_by else msgspec.structs.replace(record, held_by=word)


def _is_news(record: LocalRecord, before: LocalRecord | None) -> bool:
    """Whether more changed than one ordinary word to another: that can wait until it starts.

    Such words change for the whole queue at once.
    """
    if before is None or record == before:
        return before is None
    if record.held_by in ORDINARY and before.held_by in ORDINARY:
        return msgspec.structs.replace(record, held_by=before.held_by) != before
    return True


def _left(record: LocalRecord, at_s: float, is_back: bool) -> LocalRecord:
    """Of a stay that no sweep has seen end: it did not later than this one."""
    state = REQUEUED if is_back else GONE
    return msgspec.structs.replace(record, state=state, ended_at_s=at_s)
