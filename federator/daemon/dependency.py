"""Checks that the jobs of a dependency are known, as sbatch does before it queues a job."""

from __future__ import annotations

import msgspec

from federator.daemon.views import find
from federator.errors import InvalidRequest
from federator.model.eligibility import TAKES_UNKNOWN, Condition, Dependency, DependencyKind
from federator.model.viewer import Viewer
from federator.model.workload import FIRST_WORKLOAD_ID
from federator.sched.state.ledger import Ledger
from federator.slurm.options.dependency_option import PROBLEM


def known_dependency(ledger: Ledger, asked: Dependency, viewer: Viewer | None = None) -> Dependency:
    """A dependency without the jobs that ended so long ago that they are forgotten.

    Of ``after`` and ``afterany`` these have done their part. The other kinds ask how a job ended,
    so they must name one that is known. A job that ``viewer`` does not see is as one that is
    forgotten.

    Raises:
        InvalidRequest: a job, or a task of an array, is not known.
    """
    if not asked:
        return asked
    kept = tuple(c for c in asked.conditions if _is_known(ledger, c, viewer))
    if len(kept) < len(asked.conditions) and asked.any_of:
        kept = ()  # one of them has ended
    return msgspec.structs.replace(asked, conditions=kept)


def _is_known(ledger: Ledger, condition: Condition, viewer: Viewer | None) -> bool:
    if condition.kind is DependencyKind.SINGLETON:
        return True
    if condition.job < FIRST_WORKLOAD_ID:
        raise InvalidRequest(
            f"{PROBLEM}: job {condition.job} is of one site, not of the federation; a federated "
            "job depends on federated jobs"
        )
    task = "" if condition.task is None else f"_{condition.task}"
    if find(ledger, f"{condition.job}{task}", viewer):
        return True
    forgotten = not find(ledger, str(condition.job), viewer) and condition.job < ledger.next_id
    if forgotten and condition.kind in TAKES_UNKNOWN:
        return False
    raise InvalidRequest(f"{PROBLEM}: job {condition.job}{task} is not known (any more)")
