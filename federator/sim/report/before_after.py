"""Compares an admin's history with its replay, by tenant, site and job.

Waits count to the first start, whatever happens then. Before and after are about the same
workloads and the same span of time: from the first that came to the last that ended before.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO

from msgspec import Struct

from federator.model.workload import SiteName
from federator.sim.importers.whatif_workload import PastWorkload
from federator.sim.report.summary import LeftOutJob, Spread, spread
from federator.sim.scenario import Arrival, JobTrace
from federator.sim.whatif import WhatIf

JOB_COLUMNS = (
    "job_id",
    "tenant",
    "user",
    "gpus",
    "came_s",
    "duration_s",
    "site_before",
    "start_before_s",
    "end_before_s",
    "preemptions_before",
    "site_after",
    "start_after_s",
    "end_after_s",
    "preemptions_after",
    "within_quota",
)


class Then(Struct, frozen=True):
    """One side of the comparison.

    ``wait_s``: null where there is no job. ``allocation_frac``: of all GPUs of the site, of all
    sites for a tenant. ``preemptions``: of these jobs.
    """

    wait_s: Spread | None
    allocation_frac: float
    preemptions: int


class Change(Struct, frozen=True):
    """The jobs of one tenant, or that were submitted to one site, before and after.

    ``jobs_here``: of a site, those that would have run there. ``never_started``: no site would
    have taken them; they count nowhere else.
    """

    name: str
    gpus: int
    jobs: int
    jobs_here: int
    never_started: int
    start_later: int
    start_earlier: int
    peak_before_gpus: int
    before: Then
    after: Then


class BeforeAfter(Struct, frozen=True):
    """What ``whatif --json`` prints; all that a report of any form is made of."""

    schema: int
    policy: str
    seed: int
    begin_s: int
    end_s: int
    in_all: Change
    tenants: list[Change]
    sites: list[Change]
    accounts_without_tenant: list[str]
    left_out: int
    left_out_jobs: list[LeftOutJob]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fate:
    """A workload, before and after. Times after are in seconds since 1970, too."""

    past: PastWorkload
    arrival: Arrival
    life: JobTrace
    begin_s: int

    @property
    def tenant(self) -> str:
        return self.arrival.draft.tenant

    @property
    def started(self) -> bool:
        return self.life.first_start_s >= 0

    @property
    def start_s(self) -> int:
        return self.begin_s + round(self.life.first_start_s)

    @property
    def end_s(self) -> int:
        return self.begin_s + round(self.life.end_s)

    @property
    def wait_before_s(self) -> int:
        return self.past.start_s - self.past.came_s

    @property
    def wait_after_s(self) -> int:
        return self.start_s - self.past.came_s

    def held_before_gpu_s(self, until_s: int) -> float:
        return sum(
            gpus * max(0, min(end_s, until_s) - max(start_s, self.begin_s))
            for start_s, end_s, gpus in self.past.held
        )

    def held_after_gpu_s(self, until_s: int, site: str = "") -> float:
        """At one site, or at all."""
        return self.past.gpus * sum(
            max(
                0,
                min(self.begin_s + round(stay.end_s), until_s) - self.begin_s - round(stay.start_s),
            )
            for stay in self.life.stays
            if not site or stay.site == site
        )


def compare(question: WhatIf, lives: Sequence[JobTrace], policy: str, seed: int) -> BeforeAfter:
    """Put the lives of a simulation beside what has happened."""
    fates = _fates(question, lives)
    gpus_of = {site.name: site.gpus for site in question.scenario.sites}
    ends_s = (stay[1] for fate in fates for stay in fate.past.held)
    span = (question.begin_s, max(ends_s, default=question.begin_s))
    capacity = sum(gpus_of.values())
    of_tenant: dict[str, list[_Fate]] = {}
    for fate in fates:
        of_tenant.setdefault(fate.tenant, []).append(fate)
    left_out = [
        LeftOutJob(job.job_id, job.line, job.pool, job.gpus, job.reason.value)
        for job in question.history.left_out
    ]
    return BeforeAfter(
        schema=1,
        policy=policy,
        seed=seed,
        begin_s=span[0],
        end_s=span[1],
        in_all=_change("ALL", fates, capacity, span),
        tenants=[_change(name, of_tenant[name], capacity, span) for name in sorted(of_tenant)],
        sites=[_site_change(name, fates, gpus, span) for name, gpus in gpus_of.items()],
        accounts_without_tenant=list(question.strangers),
        left_out=len(left_out),
        left_out_jobs=left_out,
    )


def _fates(question: WhatIf, lives: Sequence[JobTrace]) -> list[_Fate]:
    parts = zip(question.history.workloads, question.scenario.arrivals, lives, strict=True)
    return [
        _Fate(past=past, arrival=arrival, life=life, begin_s=question.begin_s)
        for past, arrival, life in parts
    ]


def _site_change(
    name: SiteName, fates: Sequence[_Fate], gpus: int, span: tuple[int, int]
) -> Change:
    own = [fate for fate in fates if fate.past.site == name]
    here = [fate for fate in fates if fate.life.site == name]
    held_after = sum(fate.held_after_gpu_s(span[1], name) for fate in fates)
    return _change(name, own, gpus, span, (sum(fate.started for fate in here), held_after))


def _change(
    name: str,
    own: Sequence[_Fate],
    gpus: int,
    span: tuple[int, int],
    here: tuple[int, float] | None = None,
) -> Change:
    """Of ``own``; ``here``: of a site, how many would have run there, and the GPU-seconds held."""
    ran = [fate for fate in own if fate.started]
    held_before = sum(fate.held_before_gpu_s(span[1]) for fate in ran)
    jobs_here, held_after = here or (len(ran), sum(f.held_after_gpu_s(span[1]) for f in ran))
    return Change(
        name=name,
        gpus=gpus,
        jobs=len(ran),
        jobs_here=jobs_here,
        never_started=len(own) - len(ran),
        start_later=sum(fate.wait_after_s > fate.wait_before_s for fate in ran),
        start_earlier=sum(fate.wait_after_s < fate.wait_before_s for fate in ran),
        peak_before_gpus=_peak_gpus(stay for fate in ran for stay in fate.past.held),
        before=Then(
            wait_s=spread([fate.wait_before_s for fate in ran]),
            allocation_frac=_share(held_before, gpus, span),
            preemptions=sum(fate.past.preemptions for fate in ran),
        ),
        after=Then(
            wait_s=spread([fate.wait_after_s for fate in ran]),
            allocation_frac=_share(held_after, gpus, span),
            preemptions=sum(fate.life.preemptions for fate in ran),
        ),
    )


def _peak_gpus(stays: Iterable[tuple[int, int, int]]) -> int:
    """Most GPUs held at once; what ends at an instant is gone before what starts then."""
    steps: list[tuple[int, int]] = []
    for start_s, end_s, gpus in stays:
        steps += ((start_s, gpus), (end_s, -gpus))
    held = most = 0
    for _, gpus in sorted(steps):
        held += gpus
        most = max(most, held)
    return most


def _share(held_gpu_s: float, gpus: int, span: tuple[int, int]) -> float:
    all_gpu_s = gpus * (span[1] - span[0])
    return held_gpu_s / all_gpu_s if all_gpu_s else 0.0


def write_fates(question: WhatIf, lives: Sequence[JobTrace], file: IO[str]) -> None:
    """Write as CSV what became of each workload, in the order in which they came."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(JOB_COLUMNS)
    writer.writerows(_rows(_fates(question, lives)))


def _rows(fates: Iterable[_Fate]) -> Iterable[tuple[str | int, ...]]:
    for fate in fates:
        past, life = fate.past, fate.life
        after: tuple[str | int, ...] = ("", "", "", "", "")
        if fate.started:
            after = (life.site, fate.start_s, fate.end_s, life.preemptions, int(life.within_quota))
        yield (
            past.job_id,
            fate.tenant,
            past.user,
            past.gpus,
            past.came_s,
            past.duration_s,
            past.site,
            past.start_s,
            max(end_s for _, end_s, _ in past.held),
            past.preemptions,
            *after,
        )
