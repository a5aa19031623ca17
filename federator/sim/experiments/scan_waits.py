"""Counts how long workloads waited while MAST's own scan had them within quota.

The scan of MAST begins with all that a tenant's running workloads hold, over quota or not, and goes
through those that wait by age; whoever fits is within quota, and has a start objective, the others
have none. So whether a workload is promised a start changes while it waits: it is when its
tenant's running work leaves room for it.

Source:
    MAST sec. 4.2, the GMS-scan pass: "used" is what the tenant's running workloads hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from federator.model.workload import TenantName
from federator.sim.scenario import Arrival, JobTrace, Scenario

Waits = dict[int, float]
"""Seconds within quota before the first start, by arrival; who never was is not there."""


def scan_waits(scenario: Scenario, lives: Sequence[JobTrace]) -> Waits:
    """How long each workload waited within quota; a life for each arrival, as it came."""
    rows: dict[TenantName, list[int]] = {tenant.name: [] for tenant in scenario.tenants}
    for k, arrival in enumerate(scenario.arrivals):
        rows[arrival.draft.tenant].append(k)
    waits: Waits = {}
    for tenant in scenario.tenants:
        if tenant.quota is not None:
            _of_tenant(scenario.arrivals, lives, rows[tenant.name], tenant.quota.gpus, waits)
    return waits


def _of_tenant(
    arrivals: Sequence[Arrival],
    lives: Sequence[JobTrace],
    rows: Sequence[int],
    quota_gpus: float,
    waits: Waits,
) -> None:
    gpus = {k: sum(job.total_gpus for job in arrivals[k].draft.jobs) for k in rows}
    waiting: dict[int, bool] = {}  # whether it has not started yet
    running = 0
    changes: dict[float, tuple[list[int], list[int], list[int]]] = {}
    for k in rows:
        for at_s, kind in _changes(arrivals[k], lives[k]):
            changes.setdefault(at_s, ([], [], []))[kind].append(k)
    moments = sorted(changes)
    for at_s, next_s in pairwise([*moments, moments[-1]] if moments else []):
        ended, queued, started = changes[at_s]
        running -= sum(gpus[k] for k in ended)
        waiting.update((k, k not in ended) for k in queued)
        for k in _within(waiting, gpus, quota_gpus - running):
            waits.setdefault(k, 0.0)
        for k in started:
            waiting.pop(k, None)
            running += gpus[k]
        for k in _within(waiting, gpus, quota_gpus - running):
            waits[k] = waits.get(k, 0.0) + next_s - at_s


_ENDS, _QUEUED, _STARTS = range(3)


def _changes(arrival: Arrival, life: JobTrace) -> Iterator[tuple[float, int]]:
    """When one workload was queued, started, and ended, attempt by attempt.

    In thousandths: the simulation's clock does not begin at 0.
    """
    came_s = round(arrival.at_s, 3)
    yield came_s, _QUEUED
    for number, stay in enumerate(life.stays, 1):
        yield max(came_s, round(stay.start_s, 3)), _STARTS
        yield max(came_s, round(stay.end_s, 3)), _ENDS
        if number < len(life.stays):
            yield max(came_s, round(stay.end_s, 3)), _QUEUED


def _within(waiting: dict[int, bool], gpus: dict[int, int], room: float) -> Iterator[int]:
    """Those within quota that have not started before; who was evicted takes its part as well."""
    for k in sorted(waiting):
        if gpus[k] <= room:
            room -= gpus[k]
            if waiting[k]:
                yield k
