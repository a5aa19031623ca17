"""Counts promised starts and those on time, whichever router decided.

A workload is *entitled* if its tenant's demand when it comes, this workload with it, is within the
tenant's quota. Demand is what the tenant has submitted and what would not be over yet if everything
had started at once. So the same workloads are entitled under every router, and one that keeps
quotas could start them all. By MAST's own scan others are: see ``scan_waits``.

Source:
    MAST sec. 5.4 and 5.6: the share of workloads that violate the objective of their start latency.
    Neither the objective nor which workloads count is said; both are chosen here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from federator.model.tenant import Tenant
from federator.model.workload import SiteName, TenantName
from federator.sim.experiments.base import at_fraction, mean
from federator.sim.experiments.scan_waits import scan_waits
from federator.sim.scenario import Arrival, FleetSample, JobTrace, Scenario

HIGH_PRIORITY = 3  # the highest levels up to this one, 39 % of MAST's workloads
BUCKET_S = 7200.0  # of the busiest time
BUCKET_LEAST = 5  # workloads in it, for a share to mean something


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What became of a scenario under one router.

    Attributes:
        lives: one for each arrival.
        moments: of the whole fleet, in order of time.
        bound: the site of each arrival, where it was chosen when it came; else empty.
    """

    lives: Sequence[JobTrace]
    moments: Sequence[FleetSample]
    bound: Sequence[SiteName] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFigures:
    """Of the workloads that came in a window, and of the fleet in it; None: there was nothing.

    Attributes:
        entitled: how many were.
        violations_frac: of those, who waited longer than the objective.
        violations_others_frac: of those again, without whoever waited at least half of the time for
            its own tenant: what this ran left no room in the quota.
        violations_high_frac: of those of high priority.
        violations_busiest_frac: in the worst two hours.
        p95_s: of the wait until the first start, of the entitled.
        wait_all_mean_s: of everyone.
        allocated_frac: of all GPUs.
        allocated_busy_frac: while at least as many were asked for as there are.
        busy_frac: of the time, when that was so.
        hottest: demand / supply of the site where it is highest. Bound at arrival, a workload is
            demand at its site from then on, else from its start. None: not these sites were used.
        preemptions: of everyone.
        lost_gpu_h: work that was done again.
        scan_entitled: workloads that MAST's scan had within quota before their first start.
        scan_violations_frac: of those, who waited so for longer than the objective.
    """

    entitled: int
    violations_frac: float | None
    violations_others_frac: float | None
    violations_high_frac: float | None
    violations_busiest_frac: float | None
    p95_s: float | None
    wait_all_mean_s: float | None
    allocated_frac: float | None
    allocated_busy_frac: float | None
    busy_frac: float
    hottest: float | None
    preemptions: int
    lost_gpu_h: float
    scan_entitled: int
    scan_violations_frac: float | None


def gpus_of(arrival: Arrival) -> int:
    return sum(job.total_gpus for job in arrival.draft.jobs)


def entitled(scenario: Scenario) -> list[bool]:
    """Of each arrival, whether its tenant's demand is within quota."""
    quota = {tenant.name: _quota(tenant) for tenant in scenario.tenants}
    demand = dict.fromkeys(quota, 0)
    ends: list[tuple[float, TenantName, int]] = []
    found = []
    for arrival in scenario.arrivals:
        while ends and ends[0][0] <= arrival.at_s:
            _, name, gpus = heappop(ends)
            demand[name] -= gpus
        name, gpus = arrival.draft.tenant, gpus_of(arrival)
        demand[name] += gpus
        heappush(ends, (arrival.at_s + arrival.duration_s, name, gpus))
        found.append(demand[name] <= quota[name])
    return found


def _quota(tenant: Tenant) -> float:
    return -1.0 if tenant.quota is None else tenant.quota.gpus


def figures(
    scenario: Scenario, lived: Lived, window_s: tuple[float, float], objective_s: float
) -> SloFigures:
    """Everything that is told of one run.

    Args:
        scenario: what was lived through.
        lived: how.
        window_s: of arrivals, and of the fleet.
        objective_s: a longer wait until the first start is a violation.
    """
    begin_s, end_s = window_s
    promised = entitled(scenario)
    rows = [k for k, a in enumerate(scenario.arrivals) if begin_s <= a.at_s < end_s]
    wait_s = {k: _wait_s(scenario.arrivals[k], lived.lives[k]) for k in rows}
    late = {k: wait_s[k] > objective_s for k in rows if promised[k]}
    blocked = {k: x and not _waited_for_own(scenario, lived, k) for k, x in late.items()}
    high = [x for k, x in late.items() if scenario.arrivals[k].draft.priority <= HIGH_PRIORITY]
    spans = list(_spans(lived.moments, begin_s, end_s))
    supply = sum(site.gpus for site in scenario.sites)
    by_scan = scan_waits(scenario, lived.lives)
    scanned = [by_scan[k] > objective_s for k in rows if k in by_scan]
    busy = [(long_s, m) for long_s, m in spans if m.held_gpus + m.waiting_gpus >= supply]
    return SloFigures(
        entitled=len(late),
        violations_frac=_share(late.values()),
        violations_others_frac=_share(blocked.values()),
        violations_high_frac=_share(high),
        violations_busiest_frac=_busiest(scenario, late),
        p95_s=at_fraction(sorted(wait_s[k] for k in late), 0.95) if late else None,
        wait_all_mean_s=mean(wait_s.values()) if wait_s else None,
        allocated_frac=_held_share(spans, supply),
        allocated_busy_frac=_held_share(busy, supply),
        busy_frac=sum(long_s for long_s, _ in busy) / (end_s - begin_s),
        hottest=max(_demand(scenario, lived, begin_s, end_s).values(), default=None),
        preemptions=sum(life.preemptions for life in lived.lives),
        lost_gpu_h=sum(life.lost_gpu_s for life in lived.lives) / 3600,
        scan_entitled=len(scanned),
        scan_violations_frac=_share(scanned),
    )


def _wait_s(arrival: Arrival, life: JobTrace) -> float:
    """Until the first start, in thousandths: the simulation's clock does not begin at 0.

    Endless, and so late, if it never started.
    """
    if life.first_start_s < 0:
        return inf
    return max(0.0, round(life.first_start_s - arrival.at_s, 3))


def _waited_for_own(scenario: Scenario, lived: Lived, late: int) -> bool:
    """Tell whether one waited for its own tenant, whose running work left no room in the quota.

    Work that came over quota starts later than demand has it, and runs on beside what comes then.
    """
    arrival = scenario.arrivals[late]
    tenant = next(t for t in scenario.tenants if t.name == arrival.draft.tenant)
    begin_s, end_s = arrival.at_s, lived.lives[late].first_start_s
    changes = [(end_s, 0)]
    for other, life in zip(scenario.arrivals, lived.lives, strict=True):
        if other.draft.tenant == tenant.name and other is not arrival:
            for stay in life.stays:
                from_s, until_s = max(begin_s, stay.start_s), min(end_s, stay.end_s)
                if from_s < until_s:
                    changes += [(from_s, gpus_of(other)), (until_s, -gpus_of(other))]
    left, full_s, last_s = _quota(tenant) - gpus_of(arrival), 0.0, begin_s
    for at_s, gpus in sorted(changes):
        full_s += at_s - last_s if left < 0 else 0.0
        left, last_s = left - gpus, at_s
    return 2 * full_s >= end_s - begin_s > 0


def _share(flags: Iterable[bool]) -> float | None:
    found = list(flags)
    return sum(found) / len(found) if found else None


def _busiest(scenario: Scenario, late: Mapping[int, bool]) -> float | None:
    """The worst share of any two hours that have enough workloads."""
    buckets: dict[float, list[bool]] = {}
    for k, is_late in late.items():
        buckets.setdefault(scenario.arrivals[k].at_s // BUCKET_S, []).append(is_late)
    return max((mean(b) for b in buckets.values() if len(b) >= BUCKET_LEAST), default=None)


def _spans(
    moments: Sequence[FleetSample], begin_s: float, end_s: float
) -> Iterator[tuple[float, FleetSample]]:
    """How long each moment lasted, inside the window."""
    for k, moment in enumerate(moments):
        until_s = moments[k + 1].at_s if k + 1 < len(moments) else end_s
        long_s = min(until_s, end_s) - max(moment.at_s, begin_s)
        if long_s > 0:
            yield long_s, moment


def _held_share(spans: Sequence[tuple[float, FleetSample]], supply: int) -> float | None:
    time_s = sum(long_s for long_s, _ in spans)
    if not time_s:
        return None
    return sum(long_s * moment.held_gpus for long_s, moment in spans) / (supply * time_s)


def _demand(
    scenario: Scenario, lived: Lived, begin_s: float, end_s: float
) -> dict[SiteName, float]:
    """Mean demand / supply of each site; nothing, if something ran elsewhere."""
    demand = {site.name: 0.0 for site in scenario.sites}
    if any(life.site not in demand for life in lived.lives):
        return {}
    for k, (arrival, life) in enumerate(zip(scenario.arrivals, lived.lives, strict=True)):
        site = lived.bound[k] if lived.bound else life.site
        from_s = arrival.at_s if lived.bound else life.start_s
        long_s = min(life.end_s, end_s) - max(from_s, begin_s)
        if long_s > 0:
            demand[site] += long_s * gpus_of(arrival)
    time_s = end_s - begin_s
    return {site.name: demand[site.name] / (site.gpus * time_s) for site in scenario.sites}


def together(fleets: Sequence[Sequence[FleetSample]]) -> list[FleetSample]:
    """The moments of several fleets as those of one."""
    news = sorted((m.at_s, k, m) for k, moments in enumerate(fleets) for m in moments)
    now = [FleetSample(0.0, 0, 0)] * len(fleets)
    found = []
    for at_s, k, moment in news:
        now[k] = moment
        found.append(
            FleetSample(at_s, sum(m.held_gpus for m in now), sum(m.waiting_gpus for m in now))
        )
    return found
