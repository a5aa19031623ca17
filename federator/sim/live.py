"""Builds the scenario of ``federator whatif --live``: the queue as it is, under some configuration.

The simulation goes on from the daemon's own log, as a daemon does that is started with that
configuration, with sites as their snapshots show them. Nothing new arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from federator.config import FederationConfig
from federator.model.draft import Draft
from federator.model.event import SiteDrained
from federator.model.lending import Lending
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.site import Node, NodeShare, Snapshot
from federator.model.submission import Submission, pack_submission
from federator.model.workload import SiteName, Workload, WorkloadId
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import DataMoving, Staging
from federator.sim.fleet import Fleet
from federator.sim.scenario import Arrival, Scenario, SimulatedSite, StartState
from federator.sim.site_state import shares_of
from federator.sim.trace import ReplayOptions

_SCRIPT: Final = pack_submission(Submission(components=((),), script=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Future:
    """The queue's outcome in one simulation. Times are seconds from its begin.

    Attributes:
        start_s: of each workload that waits at the begin; inf: not before the end.
        tenant_of: whose each of them is.
        preemptions: of all.
        allocation_frac: GPU time that workloads of the federation hold, of that of all sites.
    """

    start_s: dict[WorkloadId, float]
    tenant_of: dict[WorkloadId, str]
    preemptions: int
    allocation_frac: float


def future(
    ledger: Ledger,
    snapshots: Sequence[Snapshot],
    config: FederationConfig,
    drained: Iterable[SiteName],
    span_s: tuple[float, float],
    seed: int,
) -> Future:
    """Simulate what comes of the queue.

    How long each workload runs is drawn from what is known of its like, and from its time limit
    where nothing is: the same for the same seed, whatever the configuration.

    Args:
        ledger: the log, taken in; it is used up.
        snapshots: of the sites that are there; no other starts anything.
        config: federation.yaml, by which it goes on.
        drained: sites at which nothing more starts.
        span_s: Unix times of begin and end.
        seed: of the draws.
    """
    for name in drained:
        ledger.apply(SiteDrained(at_s=span_s[0], site=name, reason="whatif"))
    scenario = _scenario(ledger, snapshots, config, span_s, seed)
    start_state = scenario.start_state
    assert start_state is not None  # as made above
    waiting = [
        id_ for id_ in start_state.known if ledger.entries[id_].state is WorkloadState.PENDING
    ]
    tenant_of = {id_: str(ledger.entries[id_].workload.tenant) for id_ in waiting}
    # There is no planner to tell what to lend, and nobody copies checkpoints.
    rules = replace(config.rules, lending=Lending.OFF, staging=Staging(), moving=DataMoving())
    fleet = Fleet(scenario, config.policy.order, rules, options=ReplayOptions(seed=seed))
    lives = dict(zip(start_state.known, fleet.run(), strict=True))
    started = {id_: lives[id_].first_start_s for id_ in waiting}
    return Future(
        start_s={id_: at_s if at_s >= 0 else inf for id_, at_s in started.items()},
        tenant_of=tenant_of,
        preemptions=sum(life.preemptions for life in lives.values()),
        allocation_frac=_allocation(fleet, span_s[1] - span_s[0]),
    )


def _allocation(fleet: Fleet, span_s: float) -> float:
    samples = fleet.moments  # none where there is no workload
    times = [sample.at_s for sample in samples] + [span_s]
    held = sum(
        sample.held_gpus * (until_s - sample.at_s)
        for sample, until_s in zip(samples, times[1:], strict=True)
    )
    gpus = sum(site.gpus for site in fleet.sites.values())
    return held / (gpus * span_s) if gpus else 0.0


def _scenario(
    ledger: Ledger,
    snapshots: Sequence[Snapshot],
    config: FederationConfig,
    span_s: tuple[float, float],
    seed: int,
) -> Scenario:
    begin_s, until_s = span_s
    live = [entry for entry in ledger.entries.values() if entry.state not in TERMINAL]
    draws = np.random.default_rng(seed).random(len(live)).tolist()
    return Scenario(
        sites=tuple(_site(snapshot, ledger, config) for snapshot in snapshots),
        tenants=tuple(config.tenancy().tenants),
        arrivals=tuple(
            _arrival(entry, _left_s(ledger, entry, begin_s, draw))
            for entry, draw in zip(live, draws, strict=True)
        ),
        start_state=StartState(
            ledger=ledger,
            known=tuple(entry.workload.id for entry in live),
            begin_s=begin_s,
            until_s=until_s,
        ),
    )


def _left_s(ledger: Ledger, entry: WorkloadRecord, now_s: float, draw: float) -> float:
    """How long it runs on, or would; inf: nothing is known, and it has no time limit."""
    lasting = ledger.durations.lasting(entry, now_s)
    return inf if lasting is None else lasting.left_s(draw)


def _arrival(entry: WorkloadRecord, left_s: float) -> Arrival:
    """``left_s`` of one that runs is at its present size, that of an arrival at the one asked."""
    arrival = Arrival(at_s=0.0, draft=_draft(entry.workload), duration_s=left_s)
    if entry.state not in AT_SITE:
        return arrival
    return replace(
        arrival, duration_s=left_s * arrival.speed(sum(len(p.nodes) for p in entry.plan))
    )


def _draft(workload: Workload) -> Draft:
    return Draft(
        name=workload.name,
        user=workload.user,
        tenant=workload.tenant,
        priority=workload.priority,
        jobs=workload.jobs,
        submission=_SCRIPT,
        time_limit_s=workload.time_limit_s,
        requeue=workload.requeue,
        elastic=workload.elastic,
        spare=workload.spare,
    )


def _site(snapshot: Snapshot, ledger: Ledger, config: FederationConfig) -> SimulatedSite:
    """Without what the federation holds there; what others hold, they go on holding."""
    own: dict[str, NodeShare] = {}
    for entry in ledger.in_state(*AT_SITE):
        if entry.site == snapshot.site:
            own = _plus(own, shares_of(entry.plan))
    partitions = set(config.sites[snapshot.site].partitions)
    return SimulatedSite(
        name=snapshot.site,
        nodes=tuple(
            _without(node, own.get(node.name, NodeShare()))
            for node in snapshot.nodes
            if partitions.intersection(node.partitions + node.closed_partitions)
        ),
        switches=snapshot.switches,
        windows=snapshot.windows,
    )


def _plus(some: dict[str, NodeShare], more: Mapping[str, NodeShare]) -> dict[str, NodeShare]:
    added = {name: some[name] + share for name, share in more.items() if name in some}
    return {**some, **more, **added}


def _without(node: Node, own: NodeShare) -> Node:
    """Never below nothing: the snapshot was not taken with the log's last record."""
    others = NodeShare(
        gpus=node.gpus_alloc,
        cpus=node.cpus_alloc,
        mem_mib=node.mem_mib_alloc,
        gres=node.gres_alloc,
    ).less(own)
    return replace(
        node,
        gpus_alloc=others.gpus,
        cpus_alloc=others.cpus,
        mem_mib_alloc=others.mem_mib,
        gres_alloc=others.gres,
    )
