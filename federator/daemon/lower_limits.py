"""Finds running jobs whose time limit an update lowers: their sites set it before it is recorded.

While the daemon is stopped in between, a job has its new limit at its site alone: the same command
again mends that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import ceil, inf
from typing import Final, NamedTuple

from federator.model.event import Amended
from federator.model.lifecycle import WorkloadState
from federator.model.message import ControlRefusal
from federator.model.workload import WorkloadId
from federator.sched.state.ledger import Ledger, WorkloadRecord

RUNS: Final = frozenset({WorkloadState.RUNNING, WorkloadState.PREEMPTING})
_FIELDS: Final = frozenset({"timelimit", "timelimit+", "timelimit-"})


class Limits(NamedTuple):
    """The limits that sites are to set, in minutes, and a line for each job that is refused."""

    minutes: Mapping[WorkloadId, int]
    refused: Mapping[WorkloadId, str]


def limits_to_lower(
    ledger: Ledger,
    ids: Collection[WorkloadId],
    fields: Iterable[str],
    amended: Iterable[Amended],
) -> Limits:
    """Those of ``ids`` that run, if nothing but the time limit is changed.

    Slurm lets users only lower the limit of a job that runs, and sites are asked as its user.

    Args:
        ledger: as it is now.
        ids: workloads that the caller may change.
        fields: of the update, in lower case.
        amended: what would be recorded of them.
    """
    if not _FIELDS.issuperset(fields):
        return Limits({}, {})
    limits_s = {id_: each.time_limit_s for each in amended for id_ in each.workloads}
    minutes: dict[WorkloadId, int] = {}
    refused: dict[WorkloadId, str] = {}
    for entry in map(ledger.entries.__getitem__, ids):
        new_s, id_ = limits_s.get(entry.workload.id), entry.workload.id
        if entry.state not in RUNS or new_s is None:
            continue
        if new_s > entry.workload.time_limit_s:
            refused[id_] = _raised(entry)
        elif new_s < inf:
            minutes[id_] = ceil(new_s / 60)
    return Limits(minutes, refused)


def _raised(entry: WorkloadRecord) -> str:
    there = f"'scontrol update JobId={entry.site_job_id} TimeLimit=...' at {entry.site}"
    return (
        f"{ControlRefusal.DENIED.value} for job {entry.workload.id}: the limit of a job that runs "
        f"can only be lowered; an administrator of its site raises it by {there}"
    )
