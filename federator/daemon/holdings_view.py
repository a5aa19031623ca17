"""Sums up what the federation holds of each node: within quota, beyond it, and for claims."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from federator.model.lifecycle import AT_SITE
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.queue.quota_status import QuotaStatus, quota_statuses
from federator.wire.holdings_rows import NodeHoldings, SiteHoldings

MAX_NODES: Final = 50_000  # of one answer, some 1.5 MB
STANDINGS_KEPT_S: Final = 5.0  # with 20,000 at sites they take some 0.1 s

_Sums = dict[str, list[int]]
"""Owner's, guests' and claimed GPUs, by node."""


class HoldingsView:
    """What sites' nodes hold of the federation.

    Args:
        federation: read only.
        by_quota: whether its policy knows quotas; without, everybody is an owner.
    """

    def __init__(self, federation: Federation, *, by_quota: bool) -> None:
        self._federation = federation
        self._by_quota = by_quota
        self._standings: Mapping[WorkloadId, QuotaStatus] = {}
        self._standings_at_s = float("-inf")

    def at(self, sites: Sequence[str], now_s: float) -> tuple[SiteHoldings, ...]:
        """The holdings at these sites, in their order; what one answer does not hold is left off.

        Args:
            sites: by name; all are the federation's.
            now_s: Unix time.
        """
        sums = self._sums(frozenset(sites), now_s)
        rows, total = [], 0
        for name in sites:
            held = sums[name]
            total += len(held)
            rows.append(self._row(name, held if total <= MAX_NODES else None))
        return tuple(rows)

    def _row(self, name: str, held: _Sums | None) -> SiteHoldings:
        site, drains = SiteName(name), self._federation.ledger.drains
        return SiteHoldings(
            site=name,
            nodes={} if held is None else {node: NodeHoldings(*n) for node, n in held.items()},
            drained=site in drains.by_site or site in drains.written_off,
            drained_nodes=drains.nodes_at(site),
            limping_nodes={n: drain.reason for n, drain in drains.limping.get(site, {}).items()},
            left_off=held is None,
        )

    def _sums(self, sites: Collection[str], now_s: float) -> dict[str, _Sums]:
        standings = self._standings_of(now_s) if self._by_quota else None
        found: dict[str, _Sums] = {name: {} for name in sites}
        for entry in self._federation.ledger.in_state(*AT_SITE):
            if entry.site not in found:
                continue
            standing = standings.get(entry.workload.id) if standings is not None else None
            is_guest = standings is not None and not (standing and standing.within_quota)
            for plan in entry.plan:
                for node, share in plan.nodes.items():
                    if share.gpus:
                        _of(found[entry.site], node)[1 if is_guest else 0] += share.gpus
        for claim, _ in self._federation.claims():
            for plan in claim.jobs if claim.site in found else ():
                for node, share in plan.nodes.items():
                    _of(found[claim.site], node)[2] += share.gpus
        return found

    def _standings_of(self, now_s: float) -> Mapping[WorkloadId, QuotaStatus]:
        if not 0 <= now_s - self._standings_at_s < STANDINGS_KEPT_S:
            self._standings = quota_statuses(self._federation.ledger)
            self._standings_at_s = now_s
        return self._standings


def _of(sums: _Sums, node: str) -> list[int]:
    return sums.setdefault(node, [0, 0, 0])
