"""Counts GPUs by site: of owners, guests, local users; by tenant, what it borrows and lends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from federator.daemon.tenant_views import borrowed_and_lent
from federator.model.lifecycle import AT_SITE
from federator.model.workload import SiteName, TenantName
from federator.sched.passes.federation import Federation
from federator.sched.passes.site_view import SiteView
from federator.sched.queue.quota_status import statuses_of

USES: Final = ("owner", "guest", "local", "free", "drained", "down")
GPUS: Final = 0  # the resource, in rows of amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGpus:
    """GPUs that the federation's workloads hold, at one instant."""

    owner: Counter[SiteName]
    guest: Counter[SiteName]
    borrowed: dict[TenantName, int]
    lent: dict[TenantName, int]


def held_gpus(federation: Federation) -> HeldGpus:
    """Look through all that is at sites."""
    ledger = federation.ledger
    entries = list(ledger.in_state(*AT_SITE))
    statuses = statuses_of(entries, ledger.tenancy)
    owner, guest = Counter[SiteName](), Counter[SiteName]()
    for entry in entries:
        standing = statuses.get(entry.workload.id)
        is_owner = standing is not None and standing.within_quota
        (owner if is_owner else guest)[entry.site] += entry.held_gpus
    borrowed, lent = borrowed_and_lent(federation, statuses)
    names = [tenant.name for tenant in ledger.tenancy.tenants]
    return HeldGpus(
        owner=owner,
        guest=guest,
        borrowed={name: borrowed[row][GPUS] for row, name in enumerate(names)},
        lent={name: lent[row][GPUS] for row, name in enumerate(names)},
    )


def uses_of(site: SiteView, owner: int, guest: int) -> Iterator[tuple[str, int]]:
    """A site's GPUs by use; they sum to all that it has.

    Its partitions tell what is allocated, drained and down; where nodes are in several of them,
    their sums are scaled to what the site has. What the federation holds is newer than that.
    """
    rows = site.summary
    there = sum(row.gpus for row in rows)
    scale = min(1.0, site.gpus / there) if there else 0.0
    allocated = round(scale * sum(row.gpus_alloc for row in rows))
    down = round(scale * sum(row.gpus_down for row in rows))
    drained = round(scale * sum(row.gpus_out for row in rows)) - down
    local = max(0, allocated - owner - guest)
    free = max(0, min(there, site.gpus) - owner - guest - local - drained - down)
    return zip(USES, (owner, guest, local, free, max(0, drained), down), strict=True)
