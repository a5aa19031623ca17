"""Replays the record of the sites' own jobs: under the federation, and each site by itself.

The federation's replay is that of ``federator whatif``. A site by itself is replayed by
``slurm_queue``. How far that is from what happened there says how far to trust the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from statistics import fmean
from typing import Final, NamedTuple

from federator.config import FederationConfig
from federator.model.lifecycle import WorkloadState
from federator.model.reason import ReasonCode, Refusal
from federator.model.site import Capacity, NodeState
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sim.failures import SimEventKind
from federator.sim.importers.local_history import WAITED_FOR_ROOM, PastRecords, WaitedInVain
from federator.sim.importers.whatif_workload import PastWorkload, asked_by, history_of
from federator.sim.job_records import BEGIN_S
from federator.sim.scenario import AttemptInterval, JobTrace, Scenario, SimulatedSite
from federator.sim.slurm_queue import QueuedJob, slurm_starts_s
from federator.sim.trace import LeftOut, ReplayOptions, TracePool
from federator.sim.whatif import WhatIf, fleet_of, question_of, rules_of

SAME_S: Final = 60.0
"""Starts no further apart count as the same."""
FEWEST_WAITED: Final = 20  # jobs, by which the turnaround of a site is told


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFate:
    """A job of a site's own queue, as it went and as it would have gone. Unix times.

    Attributes:
        past: what really happened.
        tenant: its account, as the federation calls it.
        measured: it came while the site was watched, and the federation did not launch it.
        federated_start_s: under the federation; None: it would never have started.
        federated_stays: where and when it would have run then.
        alone_start_s: in the replay of its site alone; None: likewise.
        held_by: Slurm's last word for why it waited, as of ``LocalRecord``.
        federated_code: why the federation would not have started it ``SAME_S`` after it really
            started; None: it would have.
    """

    past: PastWorkload
    tenant: str
    measured: bool
    federated_start_s: float | None
    federated_stays: tuple[AttemptInterval, ...]
    alone_start_s: float | None
    held_by: str = ""
    federated_code: ReasonCode | None = None

    @property
    def wait_s(self) -> float:
        return self.past.start_s - self.past.came_s

    @property
    def federated_wait_s(self) -> float:
        """Infinite for a job that would never have started."""
        return _wait_s(self.federated_start_s, self.past)

    @property
    def alone_wait_s(self) -> float:
        """Likewise, in the replay of its site alone."""
        return _wait_s(self.alone_start_s, self.past)


def _wait_s(start_s: float | None, past: PastWorkload) -> float:
    return float("inf") if start_s is None else start_s - past.came_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalReplay:
    """All jobs that could be replayed, and those that could not; the GPUs of each site."""

    fates: tuple[LocalFate, ...]
    left_out: tuple[LeftOut, ...]
    gpus: Mapping[SiteName, int]


def replay(
    past: PastRecords,
    capacities: Mapping[SiteName, Capacity],
    config: FederationConfig,
    begin_s: float,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> LocalReplay:
    """Replay what the sites' own users submitted.

    Args:
        past: their jobs.
        capacities: the nodes of each site.
        config: federation.yaml: tenants and policy.
        begin_s: jobs that came before are load, and are not measured.
        seed: as of ``ReplayOptions``.
        progress: likewise.
    """
    sites = {name: whole_site(name, capacity) for name, capacity in capacities.items()}
    pools = {name: pools_of(site) for name, site in sites.items() if site.gpus}
    question = question_of(history_of(past.records, pools), pools, config)
    scenario = replace(question.scenario, sites=tuple(sites[name] for name in pools))
    options = ReplayOptions(seed=seed)
    if progress is not None:
        options = replace(options, progress=progress)
    lives, codes = _federated(question, scenario, config, options)
    alone = _alone(question.history.workloads, past, (sites[name] for name in pools), begin_s)
    fates = [
        LocalFate(
            past=workload,
            tenant=arrival.draft.tenant,
            measured=workload.came_s >= begin_s
            and (workload.site, workload.job_id) not in past.federated,
            federated_start_s=_start_s(life, question.begin_s),
            federated_stays=_stays(life, question.begin_s),
            alone_start_s=by_itself,
            held_by=past.held_by.get((workload.site, workload.job_id), ""),
            federated_code=codes.get(row),
        )
        for row, (workload, arrival, life, by_itself) in enumerate(
            zip(question.history.workloads, scenario.arrivals, lives, alone, strict=True)
        )
    ]
    gpus = {name: sites[name].gpus for name in pools}
    return LocalReplay(fates=tuple(fates), left_out=question.history.left_out, gpus=gpus)


def _start_s(life: JobTrace, begin_s: int) -> float | None:
    return begin_s + life.first_start_s if life.first_start_s >= 0 else None


def _stays(life: JobTrace, begin_s: int) -> tuple[AttemptInterval, ...]:
    return tuple(
        AttemptInterval(stay.site, stay.start_s + begin_s, stay.end_s + begin_s)
        for stay in life.stays
    )


def _federated(
    question: WhatIf, scenario: Scenario, config: FederationConfig, options: ReplayOptions
) -> tuple[list[JobTrace], dict[int, ReasonCode]]:
    """The lives of all jobs under the federation, and why some wait after their real start.

    Or why they were never queued.
    """
    codes: dict[int, ReasonCode] = {}
    if not scenario.arrivals:
        return [], codes
    fleet = fleet_of(scenario, config, rules_of(config), options)

    def ask(row: int, site: SiteName) -> None:
        code = _waits_for(fleet.federation, str(row), site)
        if code is not None:
            codes[row] = code

    for row, past in enumerate(question.history.workloads):
        at_s = BEGIN_S + past.start_s + SAME_S - question.begin_s
        fleet.later(at_s, SimEventKind.PLAN, partial(ask, row, past.site))
    lives = fleet.run()
    for row, (life, past) in enumerate(zip(lives, question.history.workloads, strict=True)):
        if life.refused:
            codes[row] = _first_code(life.refusals, past.site)
    return lives, codes


def _waits_for(federation: Federation, key: str, site: SiteName) -> ReasonCode | None:
    """Why what was submitted by a key does not start at a site; None: it does not wait."""
    entry = federation.ledger.entries.get(federation.ledger.keys.id_of.get(key, WorkloadId(0)))
    if entry is None or entry.state is not WorkloadState.PENDING:
        return None
    return _first_code(federation.refusals_of(entry), site)


def _first_code(refusals: Mapping[SiteName, Refusal], site: SiteName) -> ReasonCode:
    refusal = refusals.get(SiteName("")) or refusals.get(site)
    return ReasonCode.NOT_TRIED if refusal is None else refusal.reasons[0].code


class SiteQueue(NamedTuple):
    """The jobs of one site, as its replay takes them: workloads, and behind them who never started.

    ``rows``: of the workloads, in the history.
    """

    rows: list[int]
    jobs: list[QueuedJob]
    turnaround_s: float


def site_queue(
    site: SimulatedSite, past: Sequence[PastWorkload], records: PastRecords, begin_s: float
) -> SiteQueue:
    """The queue of a site where nobody but its own users is.

    What ran when the record begins, and what the federation launched, comes when it started and
    goes first; who waited then comes when it begins. A job that never started stands in the way of
    those behind it.

    Args:
        site: all of it.
        past: the workloads of all sites.
        records: of all sites.
        begin_s: when the record begins; a Unix time.
    """
    rows = [row for row, workload in enumerate(past) if workload.site == site.name]
    types = {node.gpu_type for node in site.nodes} - {""}
    load = (
        past[row].start_s < begin_s or (site.name, past[row].job_id) in records.federated
        for row in rows
    )
    jobs = [_queued(past[row], begin_s, first) for row, first in zip(rows, load, strict=True)]
    here = (each for each in records.in_vain if each.record.cluster == site.name)
    jobs += [_in_vain(each, begin_s, types) for each in here]
    return SiteQueue(rows, jobs, _turnaround_s([past[row] for row in rows], records))


def _alone(
    past: Sequence[PastWorkload],
    records: PastRecords,
    sites: Iterable[SimulatedSite],
    begin_s: float,
) -> list[float | None]:
    """When all jobs would start, each where nobody but its own site's users was; in their order."""
    found: list[float | None] = [None] * len(past)
    for site in sites:
        queue = site_queue(site, past, records, begin_s)
        starts_s = slurm_starts_s(queue.jobs, site.nodes, queue.turnaround_s)
        for row, start_s in zip(queue.rows, starts_s, strict=False):
            found[row] = start_s
    return found


def _turnaround_s(past: Sequence[PastWorkload], records: PastRecords) -> float:
    """How long GPUs of a site stood free for one that waited: epilog, prolog and Slurm's own pace.

    It is the mean, over jobs that waited for GPUs, of the time from the last end of any job to
    their start, for in a queue these times add up; without the largest twentieth, for which
    something else was waited for. 0 where too few waited to tell.
    """
    ends_s = sorted(workload.start_s + workload.duration_s for workload in past)
    found = [
        workload.start_s - ends_s[place - 1]
        for workload in past
        if workload.start_s - workload.came_s > SAME_S
        and records.held_by.get((workload.site, workload.job_id), "") in WAITED_FOR_ROOM
        and (place := bisect_right(ends_s, workload.start_s))
    ]
    kept = sorted(found)[: len(found) - len(found) // 20]
    return fmean(kept) if len(found) >= FEWEST_WAITED else 0.0


def _queued(workload: PastWorkload, begin_s: float, goes_first: bool) -> QueuedJob:
    return QueuedJob(
        submitted_s=-inf if goes_first else workload.submitted_s,
        came_s=workload.came_s if goes_first else max(workload.came_s, begin_s),
        limit_s=workload.limit_s,
        duration_s=workload.duration_s,
        parts=workload.jobs,
    )


def _in_vain(waited: WaitedInVain, begin_s: float, types: set[str]) -> QueuedJob:
    """If it starts it holds its GPUs until it left the queue: how long it would run none knows."""
    record = waited.record
    submitted_s = float(record.submit_s or 0)
    return QueuedJob(
        submitted_s=submitted_s,
        came_s=max(submitted_s, float(record.eligible_s or 0), begin_s),
        leaves_s=waited.until_s,
        limit_s=record.limit_s,
        duration_s=max(1.0, record.limit_s),
        parts=(asked_by(record, types),),
    )


def whole_site(name: SiteName, capacity: Capacity) -> SimulatedSite:
    """Its nodes with GPUs, all of them up, with CPUs and memory for whatever asks for a GPU."""
    nodes = tuple(
        replace(
            node,
            state=NodeState.IDLE,
            cpus=max(node.cpus, 2 * node.gpus),
            cpus_alloc=0,
            mem_mib_alloc=0,
            gpus_alloc=0,
            reserved=False,
        )
        for node in capacity.nodes
        if node.gpus > 0
    )
    return SimulatedSite(name=name, nodes=nodes)


def pools_of(site: SimulatedSite) -> tuple[TracePool, ...]:
    shapes = Counter((node.gpus, node.gpu_type or "") for node in site.nodes)
    return tuple(
        TracePool(name=site.name, nodes=count, gpus_per_node=gpus, gpu_type=kind)
        for (gpus, kind), count in shapes.items()
    )
