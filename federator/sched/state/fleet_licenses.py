"""Licences that all sites share: which a submission asks for, and what is left of each pool.

A pool is a name and a number of federation.yaml. No site is asked for its licences or counts them:
a workload holds them from its award until its attempt has ended. How many are held follows from the
states of workloads (``JobCounts.licenses``), so no record of the log tells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from federator.model.gres import plus
from federator.model.license import Licenses
from federator.model.mappings import NOTHING
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import Job

Pools = Mapping[str, int]
"""How many licences there are, by name."""


def split(jobs: tuple[Job, ...], pools: Pools) -> tuple[Job, ...]:
    """The jobs, with what they ask of pools apart from what they ask of sites."""
    if not any(name in pools for job in jobs for name, _ in job.licenses):
        return jobs
    return tuple(
        replace(
            job,
            licenses=tuple(each for each in job.licenses if each[0] not in pools),
            fleet_licenses=tuple(each for each in job.licenses if each[0] in pools),
        )
        for job in jobs
    )


def asked_of_pools(jobs: Iterable[Job]) -> Licenses:
    """What all jobs of a workload take of pools together; by name."""
    found: Licenses = ()
    for job in jobs:
        if job.fleet_licenses:
            found = plus(found, job.fleet_licenses)
    return found


def beyond_pools(jobs: Iterable[Job], pools: Pools, held: Pools = NOTHING) -> Refusal | None:
    """The refusal of jobs that ask for more than there is; None: there is so much.

    ``held``: what others have of it now; left out, only what there never is is refused.
    """
    for name, amount in asked_of_pools(jobs):
        there = pools.get(name, 0)
        left = there - held.get(name, 0)
        if amount > left:
            return lack(name, amount, left, never=amount > there)
    return None


def lack(name: str, needed: int, free: int, *, never: bool = False) -> Refusal:
    """The refusal for want of licences of a pool; ``never``: there are not so many at all."""
    reason = Reason(code=ReasonCode.LICENSES, needed=needed, free=max(0, free), unit=name)
    kind = RefusalKind.REJECT if never else RefusalKind.WAIT
    return Refusal(kind=kind, reasons=(reason,))
