"""Generates a scenario like MAST's fleet, with the paper's percentiles.

Regions of sites with GPU nodes in racks; tenants of the seven priority levels; workloads of one job
each. Sized by parameters, so that small runs are possible. The same seed gives the same scenario.

Source:
    MAST sec. 4.2 (shares of the levels) and sec. 5 (sizes, run times, recurring share), as in
    shared/spec/mast.md. What the paper does not say, and what is done here:

    - GPUs of a workload are powers of two with ``GPU_SHARES``, the median 16, 90 % at most 64,
      99 % at most 128; larger than a site: as large as a site. From 8 on they are whole nodes.
    - Run times are between the percentiles log-uniform, from 1 minute to 7 days. They do not depend
      on GPUs or tenant. The paper's are "until preemption"; here they are of undisturbed runs.
    - As many workloads as bring ``load`` x all GPUs x the span on average. So few of them make up
      so much of it that plain draws would miss percentiles and load in a small run: sizes and run
      times are drawn one from each of as many equal slices, and of ``_PAIRINGS`` ways to pair them
      the one that comes nearest to the load is taken. The fleet is empty at first.
    - Arrivals: ``diurnal_frac`` up at 15:00 and down at 03:00, sinusoidal, times a log-normal
      factor with sigma ``burst_sigma`` for each 10 minutes. The paper shows no such figure.
    - Recurring workloads: a pipeline is one tenant's, and runs workloads of one size and of run
      times next to each other among all of that size, one every hour, 6 hours or day, the first of
      these that its first one fits in. Pipelines are made until ``recurring_frac`` is met.
    - Each level has tenants in proportion to its share, at least one. They get their
      shares of workloads, as far as whole pipelines allow. The 6 % that name no level count as the
      lowest. A tenant's quota is its share of all workloads x all GPUs x ``quota_frac``, in whole
      nodes, but at least ``least_quota_gpus``, for else nothing large of a rare level would ever be
      within quota; the lowest level has none.
    - Each site is of one region, named in its nodes' features; data is at every region. One type
      of GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import exp, inf, log, pi
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from federator.model.draft import Draft
from federator.model.site import Node
from federator.model.submission import Submission, pack_submission
from federator.model.tenant import LOWEST_PRIORITY, Allowance, Tenant
from federator.model.workload import Job, SiteName, TenantName
from federator.sim.scenario import Arrival, Scenario, SimulatedSite

LEVEL_SHARES: Final = (0.03, 0.20, 0.16, 0.54, 0.002, 0.005, 0.0602)
"""Of workloads, highest priority first; the last one with those that name none, about 6 %."""

GPU_SHARES: Final[Mapping[int, float]] = MappingProxyType(
    {1: 0.08, 2: 0.05, 4: 0.07, 8: 0.22, 16: 0.22, 32: 0.2, 64: 0.1, 128: 0.055, 256: 0.005}
)
_RUN_TIMES_S: Final = (
    (0.0, 60.0),
    (0.5, 1200.0),
    (0.9, 24_120.0),
    (0.99, 237_600.0),
    (1.0, 604_800.0),
)
_PERIODS_S: Final = (3600.0, 21_600.0, 86_400.0)
_PAIRINGS: Final = 64
_DAY_S: Final = 86_400
_BUCKET_S: Final = 600
_PEAK_S: Final = 15 * 3600
_PARTITION: Final = "gpu"
_SCRIPT: Final = pack_submission(Submission(components=((),), script=""))

Counts = NDArray[np.int64]
Times = NDArray[np.float64]


@dataclass(slots=True)
class _Drawn:
    """A workload before it has a name."""

    gpus: int
    duration_s: float
    at_s: float
    tenant: int = -1
    pipeline: int = 0  # 0: not recurring


@dataclass(frozen=True, slots=True, kw_only=True)
class MastLike:
    """The parameters.

    Attributes:
        sites: how many; dealt out to the regions in turn.
        regions: how many.
        nodes: of each site.
        gpus_per_node: of each node.
        nodes_per_rack: below one leaf switch.
        tenants: how many, at least one for each level.
        span_s: in which workloads arrive.
        load: GPU-seconds asked for / GPU-seconds that there are in the span.
        quota_frac: sum of quotas / GPUs, before rounding.
        least_quota_gpus: of a tenant with a quota.
        recurring_frac: of workloads.
        diurnal_frac: of the mean rate, up and down.
        burst_sigma: of the logarithm of the rate in 10 minutes.
    """

    sites: int = 6
    regions: int = 3
    nodes: int = 40
    gpus_per_node: int = 8
    nodes_per_rack: int = 8
    tenants: int = 21
    span_s: int = 2 * _DAY_S
    load: float = 1.0
    quota_frac: float = 1.0
    least_quota_gpus: int = 64
    recurring_frac: float = 0.3
    diurnal_frac: float = 0.5
    burst_sigma: float = 0.5

    @property
    def gpus(self) -> int:
        """Of all sites."""
        return self.sites * self.nodes * self.gpus_per_node

    def generate(self, seed: int = 0) -> Scenario:
        """Draw a scenario."""
        draw = np.random.default_rng(seed)
        levels = self._levels()
        tenants = tuple(self._tenants(levels))
        drawn = self._workloads(draw, levels)
        arrivals = tuple(
            Arrival(
                at_s=one.at_s,
                draft=self._draft(number, one, tenants[one.tenant]),
                duration_s=one.duration_s,
            )
            for number, one in enumerate(drawn, 1)
        )
        return Scenario(sites=tuple(self._sites()), tenants=tenants, arrivals=arrivals)

    # ---- the fleet ----

    def _sites(self) -> Iterator[SimulatedSite]:
        for k in range(self.sites):
            region = f"region{k % self.regions}"
            nodes = tuple(
                Node(
                    name=f"s{k}n{n}",
                    partitions=(_PARTITION,),
                    switch=f"s{k}r{n // self.nodes_per_rack}",
                    cpus=12 * self.gpus_per_node,
                    mem_mib=131_072 * self.gpus_per_node,
                    gpu_type="gpu",
                    gpus=self.gpus_per_node,
                    features=(region,),
                )
                for n in range(self.nodes)
            )
            yield SimulatedSite(name=SiteName(f"site{k}"), nodes=nodes)

    def _levels(self) -> list[int]:
        """The priority of each tenant: one of each level, the rest where most workloads are."""
        counts = [1] * len(LEVEL_SHARES)
        for _ in range(self.tenants - len(counts)):
            crowd = [share / count for share, count in zip(LEVEL_SHARES, counts, strict=True)]
            counts[crowd.index(max(crowd))] += 1
        return [level for level, count in enumerate(counts, 1) for _ in range(count)]

    def _shares(self, levels: Sequence[int]) -> list[float]:
        """Of all workloads, by tenant."""
        total = sum(LEVEL_SHARES)
        return [LEVEL_SHARES[level - 1] / total / levels.count(level) for level in levels]

    def _tenants(self, levels: Sequence[int]) -> Iterator[Tenant]:
        for k, (level, share) in enumerate(zip(levels, self._shares(levels), strict=True)):
            nodes = round(share * self.gpus * self.quota_frac / self.gpus_per_node)
            gpus = max(self.least_quota_gpus, nodes * self.gpus_per_node)
            quota = None if level == LOWEST_PRIORITY else Allowance(gpus=gpus)
            yield Tenant(name=TenantName(f"t{k}-p{level}"), priority=level, quota=quota)

    # ---- the workloads ----

    def _workloads(self, draw: np.random.Generator, levels: Sequence[int]) -> list[_Drawn]:
        """In order of time; as many as the load asks for."""
        rates = self._rates(draw)
        sizes, run_times_s = self._amounts(draw)
        drawn = [
            _Drawn(int(gpus), float(duration_s), self._moment(draw, rates))
            for gpus, duration_s in zip(sizes, run_times_s, strict=True)
        ]
        self._make_recurring(draw, drawn)
        _give_to_tenants(draw, drawn, self._shares(levels))
        return sorted(drawn, key=lambda one: one.at_s)

    def _amounts(self, draw: np.random.Generator) -> tuple[Counts, Times]:
        """GPUs and run time of each workload."""
        most = self.nodes * self.gpus_per_node
        mean_gpus = sum(min(gpus, most) * share for gpus, share in GPU_SHARES.items())
        wanted_gpu_s = self.load * self.gpus * self.span_s
        count = max(1, round(wanted_gpu_s / (mean_gpus * mean_run_time_s())))
        bounds = np.cumsum(list(GPU_SHARES.values()))
        at = np.searchsorted(bounds / bounds[-1], _slices(draw, count), side="right")
        sizes = draw.permutation(np.minimum(np.array(list(GPU_SHARES))[at], most))
        run_times_s = np.array([run_time_s(float(u)) for u in _slices(draw, count)])
        pairings = [draw.permutation(run_times_s) for _ in range(_PAIRINGS)]
        return sizes, min(pairings, key=lambda some: abs(float(sizes @ some) - wanted_gpu_s))

    def _make_recurring(self, draw: np.random.Generator, drawn: list[_Drawn]) -> None:
        """Turn some workloads into runs of pipelines."""
        left = sorted(drawn, key=lambda one: (one.gpus, one.duration_s))
        missing, pipeline = round(self.recurring_frac * len(drawn)), 0
        while missing and any(one.duration_s <= _PERIODS_S[-1] for one in left):
            at = int(draw.integers(len(left)))
            first = left[at]
            period_s = next((p for p in _PERIODS_S if first.duration_s <= p), None)
            if period_s is None:
                continue
            some = [
                one
                for one in left[at : at + min(missing, max(1, int(self.span_s // period_s)))]
                if one.gpus == first.gpus and one.duration_s <= period_s
            ]
            pipeline += 1
            begin_s = draw.uniform(0, self.span_s - (len(some) - 1) * period_s)
            for k, one in enumerate(some):
                one.at_s, one.pipeline = begin_s + k * period_s, pipeline
            missing -= len(some)
            del left[at : at + len(some)]

    def _rates(self, draw: np.random.Generator) -> list[float]:
        """Running totals of the chance of each 10 minutes; the last is 1."""
        count = max(1, -(-self.span_s // _BUCKET_S))
        bursts = np.exp(draw.normal(0.0, self.burst_sigma, count))
        hours = 2 * pi * ((np.arange(count) + 0.5) * _BUCKET_S - _PEAK_S) / _DAY_S
        rates = (1 + self.diurnal_frac * np.cos(hours)) * bursts
        return list(accumulate(float(rate) for rate in rates / rates.sum()))

    def _moment(self, draw: np.random.Generator, rates: Sequence[float]) -> float:
        bucket = min(int(np.searchsorted(rates, draw.random())), len(rates) - 1)
        return min((bucket + draw.random()) * _BUCKET_S, self.span_s - 1.0)

    def _draft(self, number: int, one: _Drawn, tenant: Tenant) -> Draft:
        name = f"pipeline{one.pipeline}" if one.pipeline else f"w{number}"
        return Draft(
            name=name,
            user=f"u-{tenant.name}",
            tenant=tenant.name,
            priority=tenant.priority,
            jobs=(self._job(one.gpus),),
            submission=_SCRIPT,
            time_limit_s=inf,
            requeue=True,
        )

    def _job(self, gpus: int) -> Job:
        if gpus <= self.gpus_per_node:
            return Job(name="job", nodes=1, gpus_per_node=gpus)
        return Job(name="job", gpus=gpus)


def _give_to_tenants(
    draw: np.random.Generator, drawn: Sequence[_Drawn], shares: Sequence[float]
) -> None:
    """Each tenant gets its share: pipelines whole, the largest first; the others at random."""
    missing = [share * len(drawn) for share in shares]
    pipelines: dict[int, list[_Drawn]] = {}
    for one in drawn:
        pipelines.setdefault(one.pipeline, []).append(one)
    single = pipelines.pop(0, [])
    for runs in sorted(pipelines.values(), key=len, reverse=True):
        tenant = missing.index(max(missing))
        missing[tenant] -= len(runs)
        for one in runs:
            one.tenant = tenant
    for k in draw.permutation(len(single)):
        tenant = missing.index(max(missing))
        missing[tenant] -= 1
        single[k].tenant = tenant


def _slices(draw: np.random.Generator, count: int) -> Times:
    """One number of each of ``count`` equal slices of [0, 1), in order."""
    return (np.arange(count) + draw.random(count)) / count


def run_time_s(at: float) -> float:
    """The run time that a share ``at`` of workloads does not exceed."""
    for (low, low_s), (high, high_s) in pairwise(_RUN_TIMES_S):
        if at <= high:
            return exp(log(low_s) + (at - low) / (high - low) * log(high_s / low_s))
    raise AssertionError(f"{at} is no share")


def mean_run_time_s() -> float:
    """Of the whole distribution."""
    return sum(
        (high - low) * (high_s - low_s) / log(high_s / low_s)
        for (low, low_s), (high, high_s) in pairwise(_RUN_TIMES_S)
    )
