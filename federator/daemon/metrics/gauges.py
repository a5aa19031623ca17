"""Makes the gauges of a leading daemon from its views, at the moment of a scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import isfinite
from typing import Final, Protocol

from federator import __version__
from federator.config import FederationConfig
from federator.daemon.metrics.catalogue import Collected, family, gauge
from federator.daemon.metrics.held_gpus import GPUS, HeldGpus, held_gpus, uses_of
from federator.daemon.metrics.kept import Kept
from federator.daemon.metrics.pending_reasons import PendingReasons
from federator.daemon.metrics.waiting import waiting_sums
from federator.model.dataset import CopyPhase, ReplicaState
from federator.model.lending import Lending
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.workload import SiteName
from federator.sched.passes.federation import Federation
from federator.sched.passes.site_view import SiteView
from federator.sched.state.credit import usage_shares
from federator.wire.status_rows import StartsRow

MADE: Final = (CopyPhase.NONE, CopyPhase.COPYING, CopyPhase.CHECKING, CopyPhase.FAILED)
NODE_STATES: Final = ("idle", "mixed", "allocated", "drained", "down")
PARTITION_USES: Final = ("allocated", "free", "drained", "down")
_LIVE: Final = tuple(state for state in WorkloadState if state not in TERMINAL)


class LinkState(Protocol):
    """The daemon's end of a site's channel."""

    connections: int

    def sweep_age_s(self) -> float: ...


class HistoryState(Protocol):
    """The history that follows the log."""

    @property
    def at_s(self) -> float: ...

    @property
    def went_back_at_s(self) -> Mapping[str, float]: ...


class Gauges:
    """The gauges of one term.

    Args:
        federation: read only.
        links: by site.
        history: None: there is none.
        clock: seconds that never run backwards.
        began_s: Unix time at which the term began.

    Attributes:
        starts: how good estimated starts were; None: none are estimated.
        findings: of the doctor, by kind; empty: there is no history.
        ratios: the effective training time ratio of sites of which it is known.
    """

    def __init__(
        self,
        federation: Federation,
        links: Mapping[SiteName, LinkState],
        history: HistoryState | None,
        clock: Callable[[], float],
        began_s: float,
    ) -> None:
        self._federation, self._links, self._history = federation, links, history
        self._clock, self._began_s = clock, began_s
        self.starts: Callable[[], StartsRow] | None = None
        self.findings: Callable[[], Mapping[str, int]] = dict
        self.ratios: Callable[[], Mapping[str, float]] = dict
        self._held = Kept(lambda: held_gpus(federation), clock)
        self._waiting = Kept(lambda: waiting_sums(federation.ledger.backlog), clock)
        self._reasons = PendingReasons(federation, clock)
        self._took_s = 0.0

    def metrics(self, config: FederationConfig, now_s: float) -> list[Collected]:
        """All of them; ``now_s`` is Unix time."""
        began_s = self._clock()
        held = self._held.now()
        found = [
            *role_metrics(leads=True),
            *self._of_term(config),
            *self._of_history(),
            *self._of_queue(now_s),
            *self._of_claims(now_s),
            *self._of_sites(config, held),
            *self._of_tenants(held, now_s),
            *self._of_data(now_s),
            *self._of_lending(now_s),
        ]
        self._took_s = self._clock() - began_s
        return found

    def _of_term(self, config: FederationConfig) -> Iterator[Collected]:
        ledger, last = self._federation.ledger, self._federation.rounds.last_pass
        store = config.store.partition(":")[0].partition("+")[0].removesuffix("s")
        labels = (config.federation, config.policy.name, store)
        yield family("federator_federation_info", ((labels, 1),))
        yield gauge("federator_epoch", ledger.epoch)
        yield gauge("federator_term_start_timestamp_seconds", self._began_s)
        yield gauge("federator_collect_seconds", self._took_s)
        yield gauge("federator_log_tail_records", ledger.tail)
        found = self.findings().items()
        yield family("federator_doctor_findings", (((kind,), n) for kind, n in found))
        began_s = last.began_s if last is not None else 0.0
        yield gauge("federator_pass_start_timestamp_seconds", began_s)

    def _of_history(self) -> Iterator[Collected]:
        latest_s, history = self._federation.ledger.latest_s, self._history
        at_s = history.at_s if history is not None else latest_s
        yield gauge("federator_history_lag_seconds", max(0.0, latest_s - at_s))
        back: Mapping[str, float] = history.went_back_at_s if history is not None else {}
        last = (((name,), back.get(name, 0.0)) for name in self._federation.sites)
        yield family("federator_site_job_ids_went_back_timestamp_seconds", last)
        ratios = [((n,), r) for n, r in self.ratios().items() if n in self._federation.sites]
        yield family("federator_site_effective_training_ratio", ratios)

    def _of_queue(self, now_s: float) -> Iterator[Collected]:
        ledger = self._federation.ledger
        states = [((state.value,), ledger.by_state.count(state)) for state in _LIVE]
        yield family("federator_workloads", states)
        reasons = self._reasons.now()
        yield family("federator_pending_workloads", (((r,), n) for r, n in reasons.items()))
        oldest_s = min(now_s, self._waiting.now().oldest_at_s)
        yield gauge("federator_oldest_wait_seconds", now_s - oldest_s)
        starts = self.starts() if self.starts is not None else None
        yield gauge("federator_start_estimates_judged_total", starts.judged if starts else 0)
        rates = [((), starts.hit_frac)] if starts and starts.latest else []
        yield family("federator_start_estimates_hit_ratio", rates)
        of_classes = starts.classes if starts else ()
        by_class = [((row.gpus, row.quota), row) for row in of_classes]
        yield family(
            "federator_start_estimates_class_hit_ratio",
            ((labels, row.hit_frac) for labels, row in by_class),
        )
        yield family(
            "federator_start_estimates_class_latest",
            ((labels, row.latest) for labels, row in by_class),
        )

    def _of_claims(self, now_s: float) -> Iterator[Collected]:
        claims = self._federation.ledger.claims.values()
        gpus = Counter(dict.fromkeys(self._federation.sites, 0))
        for claim in claims:
            gpus[claim.site] += sum(s.gpus for plan in claim.jobs for s in plan.nodes.values())
        yield gauge("federator_claims", len(claims))
        overdue = sum(c.promised_by_s < now_s for c in claims if c.moved_for is None)
        yield gauge("federator_claims_overdue", overdue)
        yield family("federator_claimed_gpus", (((site,), n) for site, n in gpus.items()))
        whole, left = self._federation.eviction_budget(now_s)
        yield gauge("federator_eviction_budget_gpus", whole)
        yield gauge("federator_eviction_budget_left_gpus", left)

    # ---- sites ----

    def _of_sites(self, config: FederationConfig, held: HeldGpus) -> Iterator[Collected]:
        sites = self._federation.sites
        drains = self._federation.ledger.drains
        yield family("federator_site_up", (((n,), site.ready) for n, site in sites.items()))
        info = ((n, config.sites[n].region, v.slurm_version) for n, v in sites.items())
        yield family("federator_site_info", ((labels, 1) for labels in info))
        hosts = {n: site.login_node for n, site in sites.items() if site.up}
        yield family("federator_site_login_node", ((e, 1) for e in hosts.items() if e[1]))
        yield family(
            "federator_site_drained",
            (((n,), n in drains.by_site or n in drains.written_off) for n in sites),
        )
        yield family(
            "federator_site_sweep_age_seconds",
            (((n,), link.sweep_age_s()) for n, link in self._links.items()),
        )
        yield family(
            "federator_site_connections_total",
            (((n,), link.connections) for n, link in self._links.items()),
        )
        yield family(
            "federator_gpus",
            (
                ((n, use), gpus)
                for n, site in sites.items()
                for use, gpus in uses_of(site, held.owner[n], held.guest[n])
            ),
        )
        yield family(
            "federator_nodes",
            (((n, s), nodes) for n, site in sites.items() for s, nodes in _nodes_of(site)),
        )
        yield family(
            "federator_partition_gpus",
            (((n, *uses), gpus) for n, site in sites.items() for uses, gpus in _partitions(site)),
        )
        yield family(
            "federator_partition_gpus_stranded",
            (((n, name), gpus) for n, site in sites.items() for name, gpus in _stranded(site)),
        )

    # ---- tenants ----

    def _of_tenants(self, held: HeldGpus, now_s: float) -> Iterator[Collected]:
        ledger = self._federation.ledger
        tenancy, holdings = ledger.tenancy, ledger.holdings
        names = [tenant.name for tenant in tenancy.tenants]
        quotas = (0.0 if quota is None else quota[GPUS] for quota in tenancy.quotas)
        yield _by_tenant("quota_gpus", names, (q if isfinite(q) else 0.0 for q in quotas))
        used = (holdings.own(row)[GPUS] for row in range(len(names)))
        yield _by_tenant("used_gpus", names, used)
        yield _by_tenant("borrowed_gpus", names, (held.borrowed.get(n, 0) for n in names))
        yield _by_tenant("lent_gpus", names, (held.lent.get(n, 0) for n in names))
        shares = usage_shares(holdings.averages(now_s))
        yield _by_tenant("usage_ratio", names, map(float, shares))
        rows, waiting = range(len(names)), self._waiting.now()
        yield _by_tenant("pending_workloads", names, (waiting.workloads[row] for row in rows))
        yield _by_tenant("demand_gpus", names, (waiting.gpus[row] for row in rows))
        lost = ledger.tax.by_victim
        yield family("federator_lost_gpu_seconds_total", (((n,), lost.get(n, 0.0)) for n in names))

    def _of_data(self, now_s: float) -> Iterator[Collected]:
        moves, catalogue = self._federation.ledger.data_moves, self._federation.ledger.catalogue
        places = product(catalogue.domains, ReplicaState)
        series = (((d, state.value), catalogue.replicas[d, state]) for d, state in places)
        yield family("federator_data_replicas", series)
        phases = Counter(r.copy.phase for _, r in catalogue.copies() if r.copy is not None)
        yield family("federator_copies", (((phase.value,), phases[phase]) for phase in MADE))
        planned, quota_bytes = moves.planned, self._federation.rules.moving.quota_bytes
        holds = planned is not None and planned.plan.holds(now_s)
        yield gauge("federator_data_plan_in_force", holds)
        made_s = planned.plan.made_at_s if planned is not None else 0.0
        yield gauge("federator_data_plan_timestamp_seconds", made_s)
        yield gauge("federator_data_moved_bytes", moves.used_bytes(now_s))
        yield gauge("federator_data_move_quota_bytes", quota_bytes)

    def _of_lending(self, now_s: float) -> Iterator[Collected]:
        planned = self._federation.ledger.planned
        enabled = self._federation.rules.lending is not Lending.OFF
        yield gauge("federator_lending_enabled", enabled)
        holds = planned is not None and planned.plan.holds(now_s)
        yield gauge("federator_lending_plan_in_force", holds)
        made_s = planned.plan.made_at_s if planned is not None else 0.0
        yield gauge("federator_lending_plan_timestamp_seconds", made_s)


def role_metrics(*, leads: bool) -> list[Collected]:
    """The two that a standby has as well."""
    return [
        family("federator_build_info", (((__version__,), 1),)),
        gauge("federator_leader", leads),
    ]


def standby_metrics(*, up_to_date: bool) -> list[Collected]:
    """All that a standby tells."""
    return [*role_metrics(leads=False), gauge("federator_standby_up_to_date", up_to_date)]


def _by_tenant(name: str, tenants: Sequence[str], values: Iterable[float]) -> Collected:
    series = (((tenant,), value) for tenant, value in zip(tenants, values, strict=True))
    return family(f"federator_tenant_{name}", series)


def _nodes_of(site: SiteView) -> Iterator[tuple[str, int]]:
    for state in NODE_STATES:
        yield state, sum(getattr(row, f"nodes_{state}") for row in site.summary)


def _stranded(site: SiteView) -> Iterator[tuple[str, float]]:
    for name in site.partitions:
        given = [row.gpus_stranded for row in site.summary if row.partition == name]
        known = [gpus for gpus in given if gpus is not None]
        if known or not given:  # an older agent tells none
            yield name, sum(known)


def _partitions(site: SiteView) -> Iterator[tuple[tuple[str, str], int]]:
    """Its partitions' GPUs, by partition and use."""
    for name in site.partitions:
        rows = [row for row in site.summary if row.partition == name]
        there, allocated = sum(r.gpus for r in rows), sum(r.gpus_alloc for r in rows)
        out, down = sum(r.gpus_out for r in rows), sum(r.gpus_down for r in rows)
        free = max(0, there - allocated - out)
        uses = zip(PARTITION_USES, (allocated, free, out - down, down), strict=True)
        yield from (((name, use), gpus) for use, gpus in uses)
