"""Reads a dump of Slurm's accounting as jobs, each once, with all of its attempts.

Slurm keeps a record for each stay of a job: one that was requeued, preempted or resized is there
again with a new submission. Here they are one job: it came when it was first submitted, waited
until it first started, and ran as long as its last attempt, which began anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from federator.sim.importers.sacct import SacctRecord
from federator.sim.trace import LeftOutReason

_UNENDED: Final = frozenset(
    {
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "REQUEUED",
        "RESIZING",
        "COMPLETING",
        "CONFIGURING",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
    }
)
_GOES_ON: Final = frozenset(
    {
        "REQUEUED",
        "PREEMPTED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "RESIZING",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SPECIAL_EXIT",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """A job, or one component of a het job, from its first submission to its end.

    ``records`` are its stays in their order, at least one.
    """

    records: tuple[SacctRecord, ...]

    @property
    def first(self) -> SacctRecord:
        return self.records[0]

    @property
    def last(self) -> SacctRecord:
        return self.records[-1]

    @property
    def shape(self) -> SacctRecord:
        """The stay that says what it holds: before it was resized, else the last."""
        return self._run_records[0]

    @property
    def came_s(self) -> int | None:
        """When it could first have run, as far as its user is concerned."""
        times = [t for t in (self.first.submit_s, self.first.eligible_s) if t is not None]
        return max(times, default=None) if self.first.submit_s is not None else None

    @property
    def start_s(self) -> int | None:
        """Of its first attempt."""
        return next((r.start_s for r in self.records if r.start_s is not None and r.ran), None)

    @property
    def duration_s(self) -> int | None:
        """Of its last attempt, without suspension."""
        run = self._run_records
        if len(run) == 1 or run[0].start_s is None or self.last.start_s is None:
            return self.last.elapsed_s
        return max(0, self.last.start_s + (self.last.elapsed_s or 0) - run[0].start_s)

    @property
    def end_s(self) -> int | None:
        """Of its last attempt, as if it had never been suspended."""
        if self.last.start_s is None or self.last.elapsed_s is None:
            return None
        return self.last.start_s + self.last.elapsed_s

    @property
    def preemptions(self) -> int:
        return sum("PREEMPTED" in record.states for record in self.records)

    @property
    def held(self) -> list[tuple[int, int, int]]:
        """What it held: start, end and GPUs of each stay, none before the one before it ended."""
        found: list[tuple[int, int, int]] = []
        for record in self.records:
            if record.ran and record.start_s is not None:
                start_s = max(record.start_s, found[-1][1] if found else 0)
                end_s = record.start_s + (record.elapsed_s or 0)
                found.append((start_s, max(start_s, end_s), record.gpus))
        return found

    @property
    def left_out(self) -> LeftOutReason | None:
        """Why it says nothing to a replay; None if it does."""
        if not self.last.ran or not _UNENDED.isdisjoint(self.last.states):
            return LeftOutReason.NEVER_RAN
        return None if self.shape.gpus else LeftOutReason.NO_GPU

    @property
    def _run_records(self) -> tuple[SacctRecord, ...]:
        """The last record, and those before it that it only goes on from with another size."""
        at = len(self.records) - 1
        while at and "RESIZING" in self.records[at - 1].states:
            at -= 1
        return self.records[at:]


def without_repeats(records: Iterable[SacctRecord]) -> list[SacctRecord]:
    """Each stay once, though dumps that overlap tell of it more than once, in any order.

    The same record twice counts once. A record that has not ended gives way to one of the same
    submission that says what became of it.
    """
    found: dict[tuple[str, str, int | None], dict[SacctRecord, SacctRecord]] = {}
    for record in records:
        own = found.setdefault((record.cluster, record.job_id, record.submit_s), {})
        own.setdefault(replace(record, line=0), record)
    return [record for own in found.values() for record in _latest(list(own.values()))]


def _latest(records: list[SacctRecord]) -> Sequence[SacctRecord]:
    """Of the records of one submission, those that ended, and the last one that did not."""
    if len(records) == 1:
        return records
    over = [record for record in records if not _is_open(record)]
    newest = max(
        (record for record in records if _is_open(record)),
        key=lambda r: (r.ran, r.start_s or 0, r.elapsed_s or 0, r.states),
        default=None,
    )
    if newest is not None:
        starts_s = [record.start_s or 0 for record in over]
        if not over or (newest.ran and (newest.start_s or 0) > max(starts_s)):
            over.append(newest)
    return sorted(over, key=lambda r: (r.start_s is None, r.start_s or 0, r.elapsed_s or 0))


def _is_open(record: SacctRecord) -> bool:
    """Whether a later dump may say more of this stay."""
    return not _UNENDED.isdisjoint(record.states) and not _goes_on(record)


def past_jobs(records: Iterable[SacctRecord]) -> list[PastJob]:
    """Join the records of each job; the jobs are in the order of their first record in the dump.

    An id may come again after years: what follows a stay that was the end is another job.
    """
    by_id: dict[tuple[str, str], list[SacctRecord]] = {}
    place: dict[int, int] = {}
    for at, record in enumerate(records):
        by_id.setdefault((record.cluster, record.job_id), []).append(record)
        place[id(record)] = at
    jobs: list[tuple[int, PastJob]] = []
    for stays in by_id.values():
        stays.sort(key=lambda record: record.submit_s or 0)
        for joined in _joined(stays):
            jobs.append((min(place[id(r)] for r in joined), PastJob(records=tuple(joined))))
    return [job for _, job in sorted(jobs, key=lambda pair: pair[0])]


def _joined(stays: list[SacctRecord]) -> list[list[SacctRecord]]:
    found: list[list[SacctRecord]] = []
    for record in stays:
        before = found[-1][-1] if found else None
        if before is not None and before.user == record.user and _goes_on(before):
            found[-1].append(record)
        else:
            found.append([record])
    return found


def _goes_on(record: SacctRecord) -> bool:
    return not _GOES_ON.isdisjoint(record.states)
