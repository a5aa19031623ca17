"""Names as users give them, of nodes and reservations: ``NAME`` of any site, or ``SITE:NAME``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from federator.model.workload import Job, SiteName


def jobs_at(jobs: tuple[Job, ...], site: SiteName) -> tuple[Job, ...]:
    """The jobs as one site gets them: the nodes that they name are its own.

    A node of another site that is in ``nodelist`` keeps its site's name, which no node here has.
    """
    if not names_nodes(jobs):
        return jobs
    prefix = f"{site}:"
    return tuple(
        replace(
            job,
            nodelist=_sorted(name.removeprefix(prefix) for name in job.nodelist),
            exclude=_sorted(
                name.removeprefix(prefix)
                for name in job.exclude
                if ":" not in name or name.startswith(prefix)
            ),
            reservation=_reservations_at(job.reservation, prefix),
        )
        for job in jobs
    )


def _reservations_at(names: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    """Those of the site; if it has none of them, names that no reservation here has."""
    here = tuple(
        name.removeprefix(prefix) for name in names if ":" not in name or name.startswith(prefix)
    )
    return here or names


def names_nodes(jobs: Sequence[Job]) -> bool:
    """Whether any of the jobs names nodes, or a reservation."""
    for job in jobs:  # noqa: SIM110  # asked of each request; a generator is slower
        if job.nodelist or job.exclude or job.reservation:
            return True
    return False


def names_reservation(jobs: Sequence[Job]) -> bool:
    """Whether any of the jobs is to run in a reservation."""
    for job in jobs:  # noqa: SIM110  # asked for each request of a message; a generator is slower
        if job.reservation:
            return True
    return False


def needs_wishes(jobs: Sequence[Job]) -> bool:
    """Whether agents that know nothing of constraints and node names would plan them wrongly."""
    return any(job.nodelist or job.exclude or job.constraint for job in jobs)


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
