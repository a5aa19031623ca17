"""Turns the record of the sites' own jobs into what a replay of a history takes.

Jobs that ran when the record begins come when they started: so both replays begin with the sites
as full as they were. So do jobs that the federation launched: they are load. Those that run when it
ends hold their GPUs to its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from msgspec import Struct

from federator.history.local_jobs import KeptRecord, LocalHistory, WatchedTime
from federator.model.local_record import GONE, UNKNOWN_GPUS, LocalRecord
from federator.model.mappings import NOTHING
from federator.model.workload import SiteName
from federator.sim.importers.sacct import SacctRecord

WAITED_FOR_ROOM: Final = ("", "Priority", "Resources")  # words of ``held_by``
MOST_UNSURE_S = 120.0  # of an end: longer, and the stay is left out


class Unseen(Struct, frozen=True):
    """What the record of a site does not tell.

    ``stays`` were heard of; ``ended_between``: of those, ended between two looks;
    ``unknown_end``: while nobody looked, so they are left out; ``unknown_gpus``: likewise left
    out. ``waiting``: were still waiting at the end. ``unwatched_s``: time in which nobody looked,
    in which jobs may have come and gone that nobody has heard of.
    """

    stays: int = 0
    ended_between: int = 0
    unknown_end: int = 0
    unknown_gpus: int = 0
    waiting: int = 0
    unwatched_s: float = 0.0

    @property
    def left_out_frac(self) -> float:
        """The part of the stays that cannot be replayed."""
        return (self.unknown_end + self.unknown_gpus) / self.stays if self.stays else 0.0


class WaitedInVain(NamedTuple):
    """A job that others or a lack of room kept waiting, and that did not start.

    ``until_s``: it left the queue then, or the record ends.
    """

    record: SacctRecord
    until_s: float


class PastRecords(NamedTuple):
    """Records to replay, and by site what they leave out.

    ``federated``: site and id of jobs that the federation launched: load, as it was. ``held_by``:
    by site and id, Slurm's word for why a job waited for its first stay. ``in_vain``: jobs that
    stood in their site's queue and never started.
    """

    records: list[SacctRecord]
    unseen: dict[SiteName, Unseen]
    federated: frozenset[tuple[SiteName, str]] = frozenset()
    held_by: Mapping[tuple[SiteName, str], str] = NOTHING
    in_vain: tuple[WaitedInVain, ...] = ()


@dataclass(frozen=True, slots=True)
class Period:
    """From one Unix time to another."""

    begin_s: float
    end_s: float


def watched_period(
    history: LocalHistory, sites: Iterable[SiteName], since_s: float, until_s: float
) -> Period | None:
    """The part of a time in which all of these sites were watched by and by; None: there is none.

    It begins when the last of them was first watched. Gaps within it are ``Unseen``.
    """
    begin_s, end_s = since_s, -inf
    for site in sites:
        own = [each for each in history.spans if each.site == site]
        if not own:
            return None
        begin_s = max(begin_s, own[0].since_s)
        end_s = max(end_s, own[-1].until_s)
    end_s = min(end_s, until_s)
    return Period(begin_s, end_s) if end_s > begin_s else None


def past_records(
    history: LocalHistory, sites: Iterable[SiteName], period: Period, *, any_gpu: bool
) -> PastRecords:
    """The stays of some sites' jobs as records of their accounting.

    Args:
        history: that was kept.
        sites: whose jobs are meant.
        period: see ``watched_period``.
        any_gpu: jobs take any type of GPU; else only that on which they ran, or asked for.
    """
    found: list[SacctRecord] = []
    unseen: dict[SiteName, Unseen] = {}
    held_by: dict[tuple[SiteName, str], str] = {}
    for site in sites:
        own = [kept for kept in history.kept if kept.site == site]
        there = [kept for kept in own if kept.record.submitted_at_s < period.end_s]
        usable = [kept for kept in there if _is_usable(kept)]
        unseen[site] = Unseen(
            stays=len(there),
            ended_between=sum(k.record.state == GONE and _is_usable(k) for k in there),
            unknown_end=sum(k.unsure_s > MOST_UNSURE_S for k in there),
            unknown_gpus=sum(
                k.record.gpus == UNKNOWN_GPUS and k.unsure_s <= MOST_UNSURE_S for k in there
            ),
            waiting=sum(k.record.is_open and not k.record.started_at_s for k in there),
            unwatched_s=_unwatched_s([s for s in history.spans if s.site == site], period),
        )
        found += [_as_sacct(site, kept.record, period, any_gpu) for kept in usable]
        for kept in sorted(usable, key=lambda each: each.record.restarts):
            held_by.setdefault((site, _leader(kept.record)), kept.record.held_by)
    ours = ((kept.site, kept.record) for kept in history.kept if kept.record.federated)
    federated = frozenset((site, _leader(record)) for site, record in ours)
    in_vain = (
        WaitedInVain(
            _as_sacct(k.site, k.record, period, any_gpu),
            min(k.record.ended_at_s or inf, period.end_s),
        )
        for k in history.kept
        if k.site in unseen and _is_in_the_way(k, period)
    )
    return PastRecords(found, unseen, federated, held_by, tuple(in_vain))


def _is_in_the_way(kept: KeptRecord, period: Period) -> bool:
    """Whether it waited for nothing but its turn; a component of a het job is left out."""
    record = kept.record
    return (
        _is_usable(kept)
        and record.gpus > 0
        and not 0 < record.started_at_s < period.end_s
        and 0 < record.eligible_at_s < period.end_s
        and record.held_by in WAITED_FOR_ROOM
        and "+" not in record.shown
    )


def _leader(record: LocalRecord) -> str:
    """Of a component of a het job the id of its leader, else its own."""
    return record.shown.partition("+")[0]


def _is_usable(kept: KeptRecord) -> bool:
    return kept.unsure_s <= MOST_UNSURE_S and kept.record.gpus != UNKNOWN_GPUS


def _unwatched_s(spans: list[WatchedTime], period: Period) -> float:
    seen_s = 0.0
    for span in spans:
        seen_s += max(0.0, min(span.until_s, period.end_s) - max(span.since_s, period.begin_s))
    return max(0.0, period.end_s - period.begin_s - seen_s)


def _as_sacct(site: SiteName, record: LocalRecord, period: Period, any_gpu: bool) -> SacctRecord:
    start_s = record.started_at_s
    ran = 0 < start_s < period.end_s
    came_s, eligible_s = record.submitted_at_s, record.eligible_at_s
    if ran and (start_s < period.begin_s or record.federated):
        came_s = eligible_s = start_s
    over_s = min(record.ended_at_s or period.end_s, period.end_s)
    is_over = not record.is_open or ran
    return SacctRecord(
        line=0,
        job_id=record.shown,
        cluster=site,
        account=record.account,
        user=record.user,
        partition=record.partition,
        states=("COMPLETED" if ran and record.is_open else record.state,),
        submit_s=int(came_s),
        eligible_s=int(eligible_s) or None,
        start_s=int(start_s) if ran else None,
        elapsed_s=max(0, int(over_s) - int(start_s)) if ran and is_over else None,
        limit_s=record.limit_s or inf,  # sbatch(1), --time: zero asks for none
        ran=ran,
        gpus=record.gpus,
        gpu_type="" if any_gpu else record.gpu_type or record.ran_on,
        nodes=record.nodes or None,
        cpus=None,
    )
