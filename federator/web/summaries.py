"""Tenants over time, scheduling passes, and what leaves or comes: drains, claims, evictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from federator.web.past import Past
from federator.wire.client_protocol import PassesReply, StatusReply, TenantRow, TenantsReply
from federator.wire.status_rows import BudgetRow, DrainRow, LendingRow, PassRow


class TenantPast(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's GPUs over the last hours; lists of equal length, oldest first."""

    at_s: tuple[float, ...]
    used: tuple[int, ...]
    borrowed: tuple[int, ...]
    lent: tuple[int, ...]
    quota: tuple[int | None, ...]


class TenantItem(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant now, and lately."""

    now: TenantRow
    past: TenantPast


class TenantsView(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``/api/tenants``."""

    schema: int = 1
    now_s: float
    policy: str
    tenants: tuple[TenantItem, ...]


def tenants_view(reply: TenantsReply, past: Past) -> TenantsView:
    """All tenants with their last hours."""
    return TenantsView(
        now_s=reply.now_s,
        policy=reply.policy,
        tenants=tuple(TenantItem(now=row, past=_past_of(row.name, past)) for row in reply.rows),
    )


def _past_of(tenant: str, past: Past) -> TenantPast:
    samples = past.of(tenant)
    return TenantPast(
        at_s=tuple(at_s for at_s, _ in samples),
        used=tuple(sample.used for _, sample in samples),
        borrowed=tuple(sample.borrowed for _, sample in samples),
        lent=tuple(sample.lent for _, sample in samples),
        quota=tuple(sample.quota for _, sample in samples),
    )


class PassesView(msgspec.Struct, frozen=True, kw_only=True):
    """The last scheduling passes; the answer of ``/api/passes``. Durations are of those that
    ended."""

    schema: int = 1
    now_s: float
    passes: tuple[PassRow, ...]  # oldest first
    median_s: float
    p95_s: float
    longest_s: float
    awarded: int


def passes_view(reply: PassesReply) -> PassesView:
    """The passes, and how long they took."""
    took_s = sorted(row.ended_s - row.began_s for row in reply.passes if row.ended_s)
    return PassesView(
        now_s=reply.now_s,
        passes=reply.passes,
        median_s=_quantile(took_s, 0.5),
        p95_s=_quantile(took_s, 0.95),
        longest_s=took_s[-1] if took_s else 0.0,
        awarded=sum(row.awarded for row in reply.passes),
    )


def _quantile(rising: Sequence[float], frac: float) -> float:
    return rising[min(len(rising) - 1, int(frac * len(rising)))] if rising else 0.0


class DrainItem(msgspec.Struct, frozen=True, kw_only=True):
    """A drain or a cordon of a site, or of nodes of it."""

    site: str
    drain: DrainRow


class ClaimItem(msgspec.Struct, frozen=True, kw_only=True):
    """A claim; ``id`` is 0 where its workload is not the viewer's to see."""

    id: int
    site: str
    gpus: int
    to_evict_gpus: int
    starts_by_s: float


class LostItem(msgspec.Struct, frozen=True, kw_only=True):
    """What evictions have destroyed since the log began, in GPU-seconds."""

    tenant: str
    lost_gpu_s: float  # of its own workloads
    caused_gpu_s: float  # of others', for its own workloads


class OperationsView(msgspec.Struct, frozen=True, kw_only=True):
    """Drains, claims, evictions, lost work and lending; the answer of ``/api/operations``."""

    schema: int = 1
    now_s: float
    federation: str
    policy: str
    queue: dict[str, int]
    drains: tuple[DrainItem, ...]
    claims: tuple[ClaimItem, ...]
    budget: BudgetRow
    lost: tuple[LostItem, ...]  # tenants that lost or caused any, the most lost first
    lending: LendingRow


def operations_view(
    reply: StatusReply, tenants: TenantsReply, is_seen: Callable[[int], bool]
) -> OperationsView:
    """What leaves, what comes free, and for whom; and what that has destroyed.

    Args:
        reply: the daemon's.
        tenants: likewise.
        is_seen: whether the viewer may see a workload.
    """
    return OperationsView(
        now_s=reply.now_s,
        federation=reply.federation,
        policy=reply.policy,
        queue=reply.queue,
        drains=tuple(
            DrainItem(site=site.name, drain=drain) for site in reply.sites for drain in site.drains
        ),
        claims=tuple(
            ClaimItem(
                id=claim.id if is_seen(claim.id) else 0,
                site=claim.site,
                gpus=claim.gpus,
                to_evict_gpus=claim.to_evict_gpus,
                starts_by_s=claim.starts_by_s,
            )
            for claim in reply.claims
        ),
        budget=reply.budget,
        lost=_lost(tenants),
        lending=reply.lending,
    )


def _lost(tenants: TenantsReply) -> tuple[LostItem, ...]:
    found = [
        LostItem(
            tenant=row.name,
            lost_gpu_s=row.preempt_lost_gpu_s,
            caused_gpu_s=row.preempt_tax_gpu_s,
        )
        for row in tenants.rows
        if row.preempt_lost_gpu_s or row.preempt_tax_gpu_s
    ]
    return tuple(sorted(found, key=lambda each: -each.lost_gpu_s))
