"""Checks that the jobs of a dependency are known, as sbatch does before it queues a job."""

from __future__ import annotations

import msgspec

from federator.errors import InvalidRequest
from federator.model.eligibility import TAKES_UNKNOWN, Condition, Dependency, DependencyKind
from federator.model.workload import FIRST_WORKLOAD_ID
from federator.sched.state.ledger import Ledger
from federator.slurm.options.dependency_option import PROBLEM


def known_dependency(ledger: Ledger, asked: Dependency) -> Dependency:
    """A dependency without the jobs that ended so long ago that they are forgotten.

    Of ``after`` and ``afterany`` these have done their part. The other kinds ask how a job ended,
    so they must name one that is known.

    Raises:
        InvalidRequest: a job, or a task of an array, is not known.
    """
    if not asked:
        return asked
    kept = tuple(c for c in asked.conditions if _is_known(ledger, c))
    if len(kept) < len(asked.conditions) and asked.any_of:
        kept = ()  # one of them has ended
    return msgspec.structs.replace(asked, conditions=kept)


def _is_known(ledger: Ledger, condition: Condition) -> bool:
    if condition.kind is DependencyKind.SINGLETON:
        return True
    if condition.job < FIRST_WORKLOAD_ID:
        raise InvalidRequest(
            f"{PROBLEM}: job {condition.job} is of one site, not of the federation; a federated "
            "job depends on federated jobs"
        )
    tasks = ledger.array_tasks.get(condition.job)
    if tasks is not None and (condition.task is None or condition.task in tasks):
        return True
    if tasks is None and condition.job in ledger.entries and condition.task is None:
        return True
    forgotten = tasks is None and condition.job not in ledger.entries
    forgotten = forgotten and condition.job < ledger.next_id
    if forgotten and condition.kind in TAKES_UNKNOWN:
        return False
    task = "" if condition.task is None else f"_{condition.task}"
    raise InvalidRequest(f"{PROBLEM}: job {condition.job}{task} is not known (any more)")
