"""Tells the daemon what is new of a site's own jobs: each stay when it changes, and none twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from federator.model.local_record import GONE, REQUEUED, LocalRecord
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
        now = {record.key: record for record in seen}
        before, self._known = self._known, now
        if before is None:
            parts = _parts(list(now.values())) or [()]
            for number, part in enumerate(parts, 1):
                yield LocalJobs(at_s=at_s, records=part, complete=number == len(parts))
            return
        fresh = [record for key, record in now.items() if before.get(key) != record]
        again = {record.job_id for record in fresh}
        missed = (r for key, r in before.items() if key not in now and r.is_open)
        fresh += [_left(record, at_s, record.job_id in again) for record in missed]
        for part in _parts(fresh):
            yield LocalJobs(at_s=at_s, records=part)


def _parts(records: Sequence[LocalRecord]) -> list[tuple[LocalRecord, ...]]:
    starts = range(0, len(records), MOST_AT_ONCE)
    return [tuple(records[at : at + MOST_AT_ONCE]) for at in starts]


def _left(record: LocalRecord, at_s: float, is_back: bool) -> LocalRecord:
    """Of a stay that no sweep has seen end: it did not later than this one."""
    state = REQUEUED if is_back else GONE
    return msgspec.structs.replace(record, state=state, ended_at_s=at_s)
