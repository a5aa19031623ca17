"""Replays the record of the sites' own jobs: under the federation, and each site by itself.

The federation's replay is that of ``federator whatif``. A site by itself is replayed first come,
first served, with a reservation for the first that waits, behind which others may start: the way
of Slurm's backfill. How far that is from what happened there says how far to trust the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from federator.config import FederationConfig
from federator.model.lifecycle import WorkloadState
from federator.model.reason import ReasonCode, Refusal
from federator.model.site import Capacity, NodeState
from federator.model.tenant import LOWEST_PRIORITY, Tenant
from federator.model.workload import SiteName, WorkloadId
from federator.policies.fifo import Fifo
from federator.sched.passes.federation import Federation
from federator.sim.failures import SimEventKind
from federator.sim.fleet import Fleet
from federator.sim.importers.local_history import PastRecords
from federator.sim.importers.whatif_workload import PastWorkload, history_of
from federator.sim.job_records import BEGIN_S
from federator.sim.scenario import AttemptInterval, JobTrace, Scenario, SimulatedSite
from federator.sim.trace import LeftOut, ReplayOptions, TracePool
from federator.sim.whatif import WhatIf, fleet_of, question_of, rules_of

SAME_S: Final = 60.0
"""Starts no further apart count as the same."""


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
    sites = {name: _site(name, capacity) for name, capacity in capacities.items()}
    pools = {name: _pools(site) for name, site in sites.items() if site.gpus}
    question = question_of(history_of(past.records, pools), pools, config)
    scenario = replace(question.scenario, sites=tuple(sites[name] for name in pools))
    options = ReplayOptions(seed=seed)
    if progress is not None:
        options = replace(options, progress=progress)
    lives, codes = _federated(question, scenario, config, options)
    alone = _alone(question.history.workloads, scenario, config, options)
    fates = [
        LocalFate(
            past=workload,
            tenant=arrival.draft.tenant,
            measured=workload.came_s >= begin_s
            and (workload.site, workload.job_id) not in past.federated,
            federated_start_s=_start_s(life, question.begin_s),
            federated_stays=_stays(life, question.begin_s),
            alone_start_s=_start_s(by_itself, question.begin_s),
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


def _alone(
    past: Sequence[PastWorkload],
    scenario: Scenario,
    config: FederationConfig,
    options: ReplayOptions,
) -> list[JobTrace]:
    """The lives of all jobs, each where nobody but its own site's users was; in their order."""
    found = [JobTrace() for _ in past]
    tenants = tuple(Tenant(name=tenant.name) for tenant in scenario.tenants)
    for site in scenario.sites:
        rows = [row for row, workload in enumerate(past) if workload.site == site.name]
        arrivals = [scenario.arrivals[row] for row in rows]
        plain = tuple(
            replace(each, draft=replace(each.draft, priority=LOWEST_PRIORITY)) for each in arrivals
        )
        if not plain:
            continue
        only = Scenario(sites=(site,), tenants=tenants, arrivals=plain)
        lives = Fleet(only, Fifo(), rules_of(config), options=options).run()
        for row, life in zip(rows, lives, strict=True):
            found[row] = life
    return found


def _site(name: SiteName, capacity: Capacity) -> SimulatedSite:
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


def _pools(site: SimulatedSite) -> tuple[TracePool, ...]:
    shapes = Counter((node.gpus, node.gpu_type or "") for node in site.nodes)
    return tuple(
        TracePool(name=site.name, nodes=count, gpus_per_node=gpus, gpu_type=kind)
        for (gpus, kind), count in shapes.items()
    )
