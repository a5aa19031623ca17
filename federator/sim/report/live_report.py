"""Compares what becomes of a queue as things are with what would under something else."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import fmean, median
from typing import Final

from msgspec import Struct

from federator.model.workload import WorkloadId
from federator.sim.live import Future

SAME_S: Final = 60.0
"""Starts closer than this count as the same."""
_P95: Final = 0.95


class LiveSide(Struct, frozen=True):
    """One side. Waits count from now; one that does not start counts as long as was looked.

    ``wait_mean_s``, ``wait_p95_s``: of medians over the draws; null where nothing waits.
    """

    started: int
    wait_mean_s: float | None
    wait_p95_s: float | None


class LiveChange(Struct, frozen=True):
    """The workloads of a tenant that wait now. ``later``, ``earlier``: by more than ``SAME_S``."""

    name: str
    waiting: int
    later: int
    earlier: int
    before: LiveSide
    after: LiveSide


class LiveAnswer(Struct, frozen=True):
    """What ``whatif --live --json`` prints for each alternative.

    Attributes:
        name: of the alternative.
        begin_s: Unix time of the look; ``span_s``: so far ahead.
        draws: of how long everything runs.
        sites: that were looked at.
        preemptions: as things are, and after; mean of the draws.
        allocation_frac: likewise, of all GPUs there, by workloads of the federation.
        starts_s: by workload: seconds from now, before and after; null: not within the span.
    """

    schema: int
    name: str
    begin_s: float
    span_s: float
    draws: int
    sites: list[str]
    preemptions: tuple[float, float]
    allocation_frac: tuple[float, float]
    in_all: LiveChange
    tenants: list[LiveChange]
    starts_s: dict[str, tuple[float | None, float | None]]


Look = tuple[float, float, Sequence[str]]
"""Unix time of the look, how far ahead in seconds, and the sites that were looked at."""


def compare_futures(
    name: str, before: Sequence[Future], after: Sequence[Future], look: Look
) -> LiveAnswer:
    """Put the futures of one alternative beside those as things are, draw by draw the same."""
    begin_s, span_s, sites = look
    was, now = _medians(before), _medians(after)
    tenant_of = before[0].tenant_of
    of_tenant: dict[str, list[WorkloadId]] = {}
    for id_, tenant in tenant_of.items():
        of_tenant.setdefault(tenant, []).append(id_)
    return LiveAnswer(
        schema=1,
        name=name,
        begin_s=begin_s,
        span_s=span_s,
        draws=len(before),
        sites=list(sites),
        preemptions=(_mean_preemptions(before), _mean_preemptions(after)),
        allocation_frac=(_mean_allocation(before), _mean_allocation(after)),
        in_all=_change("ALL", list(tenant_of), (was, now), span_s),
        tenants=[_change(t, of_tenant[t], (was, now), span_s) for t in sorted(of_tenant)],
        starts_s={str(id_): (_known(was[id_]), _known(now[id_])) for id_ in tenant_of},
    )


Starts = dict[WorkloadId, float]


def _medians(futures: Sequence[Future]) -> Starts:
    return {id_: median(each.start_s[id_] for each in futures) for id_ in futures[0].start_s}


def _known(start_s: float) -> float | None:
    return None if start_s == inf else start_s


def _mean_preemptions(futures: Sequence[Future]) -> float:
    return fmean(each.preemptions for each in futures)


def _mean_allocation(futures: Sequence[Future]) -> float:
    return fmean(each.allocation_frac for each in futures)


def _change(
    name: str, ids: Sequence[WorkloadId], sides: tuple[Starts, Starts], span_s: float
) -> LiveChange:
    was, now = sides
    return LiveChange(
        name=name,
        waiting=len(ids),
        later=sum(min(now[i], span_s) - min(was[i], span_s) > SAME_S for i in ids),
        earlier=sum(min(was[i], span_s) - min(now[i], span_s) > SAME_S for i in ids),
        before=_side([was[i] for i in ids], span_s),
        after=_side([now[i] for i in ids], span_s),
    )


def _side(starts_s: Sequence[float], span_s: float) -> LiveSide:
    waits_s = sorted(min(each, span_s) for each in starts_s)
    if not waits_s:
        return LiveSide(started=0, wait_mean_s=None, wait_p95_s=None)
    return LiveSide(
        started=sum(each < inf for each in starts_s),
        wait_mean_s=fmean(waits_s),
        wait_p95_s=waits_s[min(len(waits_s) - 1, int(_P95 * len(waits_s)))],
    )
