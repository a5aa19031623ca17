"""Keeps on which terms the federation lets those who run at a site be evicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from federator.model.site import RunningJob, VictimTerms
from federator.model.workload import WorkloadId


class KnownTerms:
    """The terms of the last word; until the first, jobs are as a sweep gives them."""

    def __init__(self) -> None:
        self._terms: Mapping[WorkloadId, VictimTerms] | None = None

    def renew(
        self, terms: Mapping[WorkloadId, VictimTerms], jobs: Iterable[RunningJob]
    ) -> list[RunningJob]:
        """Take the terms of now; returns those of the jobs that are seen otherwise by them."""
        known, self._terms = self._terms, terms
        if terms is known:
            return []
        renewed = []
        for job in jobs:
            id_ = WorkloadId(job.id)
            if known is not None and known.get(id_) is terms.get(id_):
                continue
            seen = self.of(job)
            if seen != job:
                renewed.append(seen)
        return renewed

    def of(self, job: RunningJob) -> RunningJob:
        """A running job as the federation sees it now; who has no terms may not be evicted."""
        if self._terms is None:
            return job
        terms = self._terms.get(WorkloadId(job.id))
        if terms is None:
            if not job.preemptible:
                return job
            return replace(job, preemptible=False, optional_jobs=(), movable=False)
        return replace(
            job,
            preemptible=True,
            priority=terms.priority,
            cooldown_until_s=terms.spared_until_s,
            saves_in_time=terms.saves_in_time,
            save_s=terms.save_s,
            restart_s=terms.restart_s,
            optional=terms.optional,
            optional_jobs=terms.optional_jobs,
            movable=terms.movable,
        )
