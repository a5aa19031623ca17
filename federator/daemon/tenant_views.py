"""Rows for ``federator tenants``: what each tenant has, uses, borrows and lends.

*Borrowed* is what a tenant's own workloads hold at sites that stand over quota now. They borrow
first what no quota promises to anybody, then what stands idle of others' quotas:

``lent in all = max(0, borrowed by all - max(0, capacity of ready sites - sum of top quotas))``

It is shared out in proportion to what each tenant has idle, and nobody lends more than that. *Idle*
is what a quota exceeds the use of its tenant and all below it by; what of it belongs to quotas
below, or goes beyond one above, is not the tenant's. A top quota is one that no ancestor's bounds.
All of this is figured for each resource alone; a quota that does not count it promises none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite

from federator.daemon.views import RankSnapshot
from federator.model.tenant import Tenancy
from federator.model.workload import TenantName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.queue.quota_status import QuotaStatus, quota_statuses
from federator.sched.state.credit import CreditWeights, fair_share_terms, usage_shares
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import TenantRow

Table = list[list[int]]
"""By tenant's row and by resource."""


def tenant_rows(
    federation: Federation,
    users: Mapping[TenantName, tuple[str, ...]],
    weights: CreditWeights,
    ranks: RankSnapshot,
    now_s: float,
) -> tuple[TenantRow, ...]:
    """All tenants; children behind their parent, otherwise in the order of the configuration.

    Args:
        federation: whose tenants.
        users: of every configured tenant; others were met in the log.
        weights: of the credit.
        ranks: for the numbers of those that wait, which may be a few seconds old.
        now_s: Unix time, for all else.
    """
    ledger = federation.ledger
    tenancy, holdings = ledger.tenancy, ledger.holdings
    averages = holdings.averages(now_s)
    shares, fair_share = usage_shares(averages), fair_share_terms(averages, weights)
    borrowed, lent = borrowed_and_lent(federation, quota_statuses(ledger))

    def row_of(row: int) -> TenantRow:
        tenant, (pending, within) = tenancy.tenants[row], ranks.pending.get(row, (0, 0))
        return TenantRow(
            name=tenant.name,
            parent=tenant.parent or "",
            depth=len(tenancy.chain(row)) - 1,
            configured=tenant.name in users,
            priority=tenant.priority,
            users=users.get(tenant.name, ()),
            home=tuple(sorted(tenancy.home(row))),
            start_within_s=tenancy.start_within_s(row),
            quota=_quota_of(tenancy, row),
            limit=_limit(tenancy, row),
            used=_by_resource(tenancy, holdings.used(row)),
            used_own=_by_resource(tenancy, holdings.own(row)),
            borrowed=_by_resource(tenancy, borrowed[row]),
            lent=_by_resource(tenancy, lent[row]),
            pending=pending,
            pending_within=within if ranks.by_quota else None,
            pending_over=pending - within if ranks.by_quota else None,
            average_gpus=float(averages[row]),
            usage_share_frac=float(shares[row]),
            fair_share_term=float(fair_share[row]) if ranks.by_quota else None,
            preempt_tax_gpu_s=ledger.tax.by_preemptor.get(tenant.name, 0.0),
            preempt_lost_gpu_s=ledger.tax.by_victim.get(tenant.name, 0.0),
            mode=tenancy.mode(row).value,
        )

    return tuple(row_of(row) for row in _family_order(tenancy))


def _quota_of(tenancy: Tenancy, row: int) -> dict[str, int | None] | None:
    quota = tenancy.quotas[row]
    return None if quota is None else _bounds(tenancy, quota)


def borrowed_and_lent(
    federation: Federation, statuses: Mapping[WorkloadId, QuotaStatus]
) -> tuple[Table, Table]:
    """The amounts that each tenant borrows, and those that it lends; ``statuses`` are of now."""
    ledger = federation.ledger
    borrowed = _borrowed(ledger, statuses)
    return borrowed, _lent(ledger, borrowed, _capacity(federation, ledger.tenancy))


def _by_resource(tenancy: Tenancy, amounts: Sequence[int]) -> dict[str, int]:
    return dict(zip(tenancy.resources.names, amounts, strict=True))


def _bounds(tenancy: Tenancy, bound: Sequence[float]) -> dict[str, int | None]:
    amounts = (int(b) if isfinite(b) else None for b in bound)
    return dict(zip(tenancy.resources.names, amounts, strict=True))


def _limit(tenancy: Tenancy, row: int) -> dict[str, int | None]:
    return _bounds(tenancy, tenancy.limits[row] or (inf,) * len(tenancy.resources))


def _family_order(tenancy: Tenancy) -> Iterator[int]:
    children: dict[TenantName | None, list[int]] = {}
    for row, tenant in enumerate(tenancy.tenants):
        children.setdefault(tenant.parent, []).append(row)
    stack = children.get(None, [])[::-1]
    while stack:
        row = stack.pop()
        yield row
        stack += children.get(tenancy.tenants[row].name, [])[::-1]


def _borrowed(ledger: Ledger, statuses: Mapping[WorkloadId, QuotaStatus]) -> Table:
    found = [[0] * len(ledger.tenancy.resources) for _ in ledger.tenancy.tenants]
    for id_, standing in statuses.items():
        charge = ledger.entries[id_].charge
        if charge is not None and not standing.within_quota:
            sums = found[charge.row]
            sums[:] = [s + a for s, a in zip(sums, charge.amounts, strict=True)]
    return found


def _capacity(federation: Federation, tenancy: Tenancy) -> Sequence[int]:
    """The total capacity of the ready sites, whatever runs there; by resource."""
    gpus = cpus = 0
    types: dict[str, int] = {}
    for site in federation.sites.values():
        empty = site.empty if site.ready else None
        for free in empty.room.nodes if empty is not None else ():
            node = free.node
            gpus, cpus = gpus + node.gpus, cpus + node.cpus
            types[node.gpu_type] = types.get(node.gpu_type, 0) + node.gpus
    return tenancy.resources.amounts(gpus, cpus, types)


def _lent(ledger: Ledger, borrowed: Table, capacity: Sequence[int]) -> Table:
    """The amounts that each tenant lends; the module's docstring says how it is figured."""
    tenancy = ledger.tenancy
    lent = [[0] * len(tenancy.resources) for _ in tenancy.tenants]
    for k, has in enumerate(capacity):
        holders = _holders(tenancy, k)
        promised = sum(_quota(tenancy, row, k) for row, above in holders.items() if above is None)
        total = sum(sums[k] for sums in borrowed) - max(0, has - promised)
        idle = {
            row: max(0, _quota(tenancy, row, k) - ledger.holdings.used(row)[k]) for row in holders
        }
        own = _own_parts(idle, holders, tenancy)
        parts = shared_out(max(0, min(total, sum(own.values()))), list(own.values()))
        for row, part in zip(own, parts, strict=True):
            lent[row][k] = part
    return lent


def _quota(tenancy: Tenancy, row: int, k: int) -> int:
    quota = tenancy.quotas[row]
    return int(quota[k]) if quota is not None and isfinite(quota[k]) else 0


def _holders(tenancy: Tenancy, k: int) -> dict[int, int | None]:
    """Every tenant whose quota counts resource ``k``, with the nearest one above it."""
    rows = {r for r, quota in enumerate(tenancy.quotas) if quota is not None and isfinite(quota[k])}
    return {
        row: next((r for r in tenancy.chain(row)[1:] if r in rows), None) for row in sorted(rows)
    }


def _own_parts(
    idle: Mapping[int, int], holders: Mapping[int, int | None], tenancy: Tenancy
) -> dict[int, int]:
    """The part of the idle quotas that is each tenant's own; they sum to that of the top quotas."""
    below: dict[int, list[int]] = {}
    for row, above in holders.items():
        if above is not None:
            below.setdefault(above, []).append(row)
    left = dict(idle)
    for row in sorted(holders, key=lambda r: len(tenancy.chain(r))):  # parents first
        children = below.get(row, [])
        wanted = [idle[child] for child in children]
        parts = shared_out(min(left[row], sum(wanted)), wanted)
        left[row] -= sum(parts)
        left.update(zip(children, parts, strict=True))
    return left


def shared_out(total: int, wanted: Sequence[int]) -> list[int]:
    """Divide a number in proportion to what is wanted, in whole ones.

    Args:
        total: at least 0, at most the sum of ``wanted``.
        wanted: each at least 0.

    Returns:
        As many numbers, none larger than what is wanted, that sum to ``total``. What rounding
        leaves goes to those that lost most by it; ties: the first.
    """
    whole = sum(wanted)
    if not whole:
        return [0] * len(wanted)
    parts = [total * w // whole for w in wanted]
    lost = sorted(range(len(wanted)), key=lambda k: -(total * wanted[k] % whole))
    for k in lost[: total - sum(parts)]:
        parts[k] += 1
    return parts
