"""Makes the records of a site's own jobs of what a sweep has read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from federator.agent.base import KnownJobs
from federator.model.local_record import LocalRecord
from federator.model.site import Node, SiteJob
from federator.slurm.reports import is_launched

ArrayStay = tuple[int, float]
"""An array's id, and when it was submitted."""


def local_records(
    jobs: Iterable[SiteJob],
    nodes: Iterable[Node],
    own: KnownJobs,
    waited: dict[ArrayStay, str] | None = None,
) -> tuple[LocalRecord, ...]:
    """The records of all jobs; those that the federation has launched say so.

    The tasks of an array that have not been started are one job for Slurm; each has a record once
    it is one, with the word for which they waited at the look before, or else the others still
    wait. So has a job that is not submitted yet, such as a component without a time.

    Args:
        jobs: of a site whose queue is watched.
        nodes: of that site.
        own: what its agent knows.
        waited: the words of arrays at the look before; those of this look are written into it.
    """
    waited = {} if waited is None else waited
    type_of = {node.name: node.gpu_type or "" for node in nodes if node.gpus}
    jobs = tuple(jobs)
    waiting = {
        _stay_of(job): job.local.held_by
        for job in jobs
        if job.local is not None and job.array_job_id and job.array_task_id is None
    }
    array_stays = {stay[0]: stay for stay in (*waited, *waiting)}
    found = []
    for job in jobs:
        if job.local is None or not job.submitted_at_s:
            continue
        if job.array_job_id and job.array_task_id is None:
            continue
        types = {type_of.get(name, "") for name in job.hosts}
        ran_on = types.pop() if len(types) == 1 else ""
        stay = _stay_of(job)
        if job.restarts:  # what was put back may have a later time of submission than its array
            stay = array_stays.get(job.array_job_id, stay)
        held_by = job.local.held_by or waited.get(stay, "") or waiting.get(stay, "")
        ours = is_launched(job, own)
        found.append(
            msgspec.structs.replace(job.local, ran_on=ran_on, federated=ours, held_by=held_by)
        )
    last = {stay: word or waited.get(stay, "") for stay, word in waiting.items()}
    waited.clear()
    waited.update(last)
    return tuple(found)


def _stay_of(job: SiteJob) -> ArrayStay:
    """A site that lost its state counts its jobs from one again: an id alone may be an older one.

    All tasks of an array have its time of submission until they are put back.
    """
    return job.array_job_id, job.submitted_at_s
