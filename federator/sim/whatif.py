"""Builds the scenario of ``federator whatif`` from an admin's own dumps.

Sites, tenants and policy are those of federation.yaml; the sizes of the sites are those of a P.csv,
whose pools are named ``site`` or ``site/partition``; workloads are those of the dumps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from federator.config import FederationConfig
from federator.errors import InvalidRequest
from federator.model.draft import Draft
from federator.model.site import Node
from federator.model.site_mode import SiteMode
from federator.model.submission import Submission, pack_submission
from federator.model.tenant import Tenancy, Tenant
from federator.model.workload import SiteName, TenantName
from federator.sched.state.rules import Rules
from federator.sim.fleet import Fleet
from federator.sim.importers.sacct import SacctRecord, read_records
from federator.sim.importers.trace_csv import shown
from federator.sim.importers.whatif_workload import History, PastWorkload, history_of
from federator.sim.scenario import Arrival, JobTrace, Scenario, SimulatedSite
from federator.sim.trace import LeftOut, LeftOutReason, ReplayOptions, TracePool

_NEEDED: Final = frozenset({"Start", "Account", "User"})
_NODES_PER_RACK: Final = 16  # a dump does not say it
_SCRIPT: Final = pack_submission(Submission(components=((),), script=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """A file of sacct. ``site``: whose it is; None: its records say it."""

    path: Path
    site: SiteName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A question that can be simulated. Workload k of the history is arrival k.

    Attributes:
        begin_s: 0 of the scenario's clock, in seconds since 1970.
        strangers: accounts that federation.yaml does not name: no quota, lowest priority.
    """

    history: History
    scenario: Scenario
    begin_s: int
    strangers: tuple[TenantName, ...]


def live_through(
    scenario: Scenario, config: FederationConfig, rules: Rules, options: ReplayOptions
) -> list[JobTrace]:
    """Simulate it: the federation's own code, and sites where nothing takes time or breaks.

    Returns:
        A life for each arrival, in their order.
    """
    return fleet_of(scenario, config, rules, options).run()


def fleet_of(
    scenario: Scenario, config: FederationConfig, rules: Rules, options: ReplayOptions
) -> Fleet:
    """What ``live_through`` simulates, at its beginning."""
    return Fleet(
        scenario,
        config.policy.order,
        rules,
        options=options,
        usage=config.policy.credit.usage.average(),
    )


def rules_of(config: FederationConfig, evictable_gpus: int = 0) -> Rules:
    """The daemon's rules, as they would be with every site in mode enforced.

    Args:
        config: federation.yaml.
        evictable_gpus: of the fleet; 0: nobody is evicted. Else ``policy.preemption`` counts.
    """
    budget_gpus = config.policy.preemption.budget_frac * evictable_gpus
    return replace(
        config.rules,
        preempt_gpus=budget_gpus,
        preempt_frac=0.0,
        shadow=frozenset(),
        advisory=frozenset(),
    )


def ask(
    dumps: Sequence[Dump],
    pools: Sequence[TracePool],
    config: FederationConfig,
    any_gpu: bool = False,
) -> WhatIf:
    """Read the dumps, and make a scenario of them.

    Args:
        dumps: of all clusters.
        pools: sizes of the sites.
        config: federation.yaml.
        any_gpu: forget which type of GPU a job asked for.

    Raises:
        InvalidRequest: a file is not what it should be, names a site that federation.yaml does
            not, or nothing is left to simulate.
    """
    of_site = _pools_by_site(pools, config)
    records = [record for dump in dumps for record in _records_of(dump, config)]
    question = question_of(history_of(records, of_site, any_gpu), of_site, config)
    history = question.history
    if not history.workloads:
        reasons = sorted({job.reason.value for job in history.left_out}) or ["it holds no job"]
        files = ", ".join(str(dump.path) for dump in dumps)
        raise InvalidRequest(f"{files}: no job is left to simulate: {'; '.join(reasons)}")
    return question


def question_of(
    history: History, of_site: Mapping[SiteName, Sequence[TracePool]], config: FederationConfig
) -> WhatIf:
    """Make a scenario of a history; what its tenant's limits forbid is left out of both.

    Every tenant is in mode enforced.
    """
    names = {name.lower(): name for name in config.tenants}  # Slurm keeps accounts in lower case
    tenant_of = {
        account: names.get(account.lower(), TenantName(account))
        for account in sorted({workload.account for workload in history.workloads})
    }
    strangers = tuple(name for name in tenant_of.values() if name not in config.tenants)
    own = (replace(tenant, mode=SiteMode.ENFORCED) for tenant in config.tenancy().tenants)
    tenants = (*own, *(Tenant(name=name) for name in strangers))
    history = _within_limits(history, tenant_of, Tenancy(tenants))
    begin_s = history.workloads[0].came_s if history.workloads else 0
    priority_of = {tenant.name: tenant.priority for tenant in tenants}
    scenario = Scenario(
        sites=tuple(_site(name, own, config) for name, own in of_site.items()),
        tenants=tenants,
        arrivals=tuple(
            _arrival(workload, tenant_of[workload.account], begin_s, priority_of)
            for workload in history.workloads
        ),
    )
    return WhatIf(history=history, scenario=scenario, begin_s=begin_s, strangers=strangers)


def _within_limits(
    history: History, tenant_of: Mapping[str, TenantName], tenancy: Tenancy
) -> History:
    """Without what would wait for ever: a workload larger than a limit above it."""
    kept: list[PastWorkload] = []
    over: list[LeftOut] = []
    for workload in history.workloads:
        amounts = tenancy.resources.request(workload.jobs)
        rows = tenancy.limit_rows(tenancy.row(tenant_of[workload.account]))
        limits = [limit for row in rows if (limit := tenancy.limits[row]) is not None]
        if all(
            amount <= most for limit in limits for amount, most in zip(amounts, limit, strict=True)
        ):
            kept.append(workload)
        else:
            over.append(
                LeftOut(
                    job_id=workload.job_id,
                    line=workload.line,
                    pool=workload.site,
                    gpus=workload.gpus,
                    reason=LeftOutReason.OVER_LIMIT,
                )
            )
    return History(workloads=tuple(kept), left_out=(*history.left_out, *over))


def _records_of(dump: Dump, config: FederationConfig) -> Iterator[SacctRecord]:
    """The records of a dump; their cluster is the name of a site where it can be one."""
    records = read_records(dump.path, _NEEDED)
    only = next(iter(config.sites)) if len(config.sites) == 1 else ""
    site = dump.site or ("" if any(record.cluster for record in records) else only)
    if site:
        return (replace(record, cluster=site) for record in records)
    clusters = {record.cluster for record in records}
    if records and clusters.isdisjoint(config.sites):
        found = ", ".join(shown(name) for name in sorted(clusters)[:5] if name)
        said = f"its clusters ({found}) are no sites" if found else "it does not say its cluster"
        known = ", ".join(list(config.sites)[:10])
        raise InvalidRequest(
            f"{dump.path}: {said} of federation.yaml ({known}); write --sacct SITE={dump.path}"
        )
    return iter(records)


def _pools_by_site(
    pools: Sequence[TracePool], config: FederationConfig
) -> dict[SiteName, tuple[TracePool, ...]]:
    """The pools of each site that has any, in the order of federation.yaml."""
    for pool in pools:
        if pool.name.partition("/")[0] not in config.sites:
            known = ", ".join(list(config.sites)[:10])
            raise InvalidRequest(
                f"--pools: {shown(pool.name)}: expected SITE or SITE/PARTITION with a site of "
                f"federation.yaml ({known})"
            )
    found = {
        name: tuple(pool for pool in pools if pool.name.partition("/")[0] == name)
        for name in config.sites
    }
    return {name: own for name, own in found.items() if own}


def _site(name: SiteName, pools: Sequence[TracePool], config: FederationConfig) -> SimulatedSite:
    nodes = [node for pool in pools for node in _nodes(name, pool, config)]
    return SimulatedSite(name=name, nodes=tuple(nodes))


def _nodes(name: SiteName, pool: TracePool, config: FederationConfig) -> Iterator[Node]:
    """Nodes in racks, with more CPUs than any job here asks for: only GPUs are short."""
    partition = pool.name.partition("/")[2]
    model = config.gpus.get(pool.gpu_type)
    for k in range(pool.nodes):
        yield Node(
            name=f"{pool.name}-{k}",
            partitions=(partition,) if partition else config.sites[name].partitions,
            switch=f"{pool.name}-r{k // _NODES_PER_RACK}",
            cpus=2 * pool.gpus_per_node,
            gpus=pool.gpus_per_node,
            gpu_type=pool.gpu_type or "gpu",
            gpu_mem_gib=model.mem_gib if model else 0.0,
            nvlink=bool(model and model.nvlink),
            gpu_weight=model.weight if model else 1.0,
        )


def _arrival(
    workload: PastWorkload,
    tenant: TenantName,
    begin_s: int,
    priority_of: Mapping[TenantName, int],
) -> Arrival:
    draft = Draft(
        name=workload.job_id,
        user=workload.user,
        tenant=tenant,
        priority=priority_of[tenant],
        jobs=workload.jobs,
        submission=_SCRIPT,
        # Slurm stops a job some time after its limit; here it ends when it did.
        time_limit_s=max(workload.limit_s, workload.duration_s),
        requeue=True,
    )
    return Arrival(at_s=workload.came_s - begin_s, draft=draft, duration_s=workload.duration_s)
