"""Replays the record of the sites' own jobs: under the federation, and each site by itself.

The federation's replay is that of ``federator whatif``. A site by itself is replayed first come,
first served, with a reservation for the first that waits, behind which others may start: the way
of Slurm's backfill. How far that is from what happened there says how far to trust the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from federator.config import FederationConfig
from federator.model.site import Capacity, NodeState
from federator.model.tenant import LOWEST_PRIORITY, Tenant
from federator.model.workload import SiteName
from federator.policies.fifo import Fifo
from federator.sim.fleet import Fleet
from federator.sim.importers.sacct import SacctRecord
from federator.sim.importers.whatif_workload import PastWorkload, history_of
from federator.sim.scenario import AttemptInterval, JobTrace, Scenario, SimulatedSite
from federator.sim.trace import LeftOut, ReplayOptions, TracePool
from federator.sim.whatif import live_through, question_of, rules_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFate:
    """A job of a site's own queue, as it went and as it would have gone. Unix times.

    Attributes:
        past: what really happened.
        tenant: its account, as the federation calls it.
        measured: it came while the site was watched.
        federated_start_s: under the federation; None: it would never have started.
        federated_stays: where and when it would have run then.
        alone_start_s: in the replay of its site alone; None: likewise.
    """

    past: PastWorkload
    tenant: str
    measured: bool
    federated_start_s: float | None
    federated_stays: tuple[AttemptInterval, ...]
    alone_start_s: float | None

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
    records: Sequence[SacctRecord],
    capacities: Mapping[SiteName, Capacity],
    config: FederationConfig,
    begin_s: float,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> LocalReplay:
    """Replay what the sites' own users submitted.

    Args:
        records: of their jobs; the cluster is the site.
        capacities: the nodes of each site.
        config: federation.yaml: tenants and policy.
        begin_s: jobs that came before are load, and are not measured.
        seed: as of ``ReplayOptions``.
        progress: likewise.
    """
    sites = {name: _site(name, capacity) for name, capacity in capacities.items()}
    pools = {name: _pools(site) for name, site in sites.items() if site.gpus}
    question = question_of(history_of(records, pools), pools, config)
    scenario = replace(question.scenario, sites=tuple(sites[name] for name in pools))
    options = ReplayOptions(seed=seed)
    if progress is not None:
        options = replace(options, progress=progress)
    lives = live_through(scenario, config, rules_of(config), options) if scenario.arrivals else []
    alone = _alone(question.history.workloads, scenario, config, options)
    fates = [
        LocalFate(
            past=past,
            tenant=arrival.draft.tenant,
            measured=past.came_s >= begin_s,
            federated_start_s=_start_s(life, question.begin_s),
            federated_stays=tuple(
                AttemptInterval(
                    stay.site, stay.start_s + question.begin_s, stay.end_s + question.begin_s
                )
                for stay in life.stays
            ),
            alone_start_s=_start_s(by_itself, question.begin_s),
        )
        for past, arrival, life, by_itself in zip(
            question.history.workloads, scenario.arrivals, lives, alone, strict=True
        )
    ]
    gpus = {name: sites[name].gpus for name in pools}
    return LocalReplay(fates=tuple(fates), left_out=question.history.left_out, gpus=gpus)


def _start_s(life: JobTrace, begin_s: int) -> float | None:
    return begin_s + life.first_start_s if life.first_start_s >= 0 else None


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
