"""Makes the answer to ``federator status``: the federation as a whole, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from federator.daemon.quota_calls import loan_rows
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.site_mode import SiteMode
from federator.model.tenant import Tenancy
from federator.sched.passes.federation import Federation
from federator.sched.passes.round import PassSummary
from federator.sched.state.evictions import charged, since
from federator.wire.client_protocol import SiteRow, StatusReply
from federator.wire.status_rows import BudgetRow, ClaimRow, LendingRow, PassRow, TenantModeRow


def status_reply(
    name: str,
    policy: str,
    federation: Federation,
    sites: Sequence[SiteRow],
    now_s: float,
    keep_ended_s: float = 0.0,
) -> StatusReply:
    """How the federation stands.

    Args:
        name: of the federation.
        policy: its name in federation.yaml.
        federation: read only.
        sites: their rows, as fsinfo shows them.
        now_s: Unix time.
        keep_ended_s: so long what has ended stays in the log.
    """
    ledger, last = federation.ledger, federation.rounds.last_pass
    live = (state for state in WorkloadState if state not in TERMINAL)
    return StatusReply(
        federation=name,
        now_s=now_s,
        policy=policy,
        epoch=ledger.epoch,
        sites=tuple(sites),
        queue={state.value: ledger.by_state.count(state) for state in live},
        gpus_held=sum(entry.held_gpus for entry in ledger.in_state(*AT_SITE)),
        last_pass=None if last is None else _pass_row(last),
        budget=_budget(federation, now_s),
        claims=tuple(
            ClaimRow(
                id=claim.workload,
                site=claim.site,
                gpus=sum(s.gpus for plan in claim.jobs for s in plan.nodes.values()),
                to_evict_gpus=gpus,
                starts_by_s=claim.starts_by_s,
            )
            for claim, gpus in federation.claims()
        ),
        lending=_lending(federation, now_s),
        keep_ended_s=keep_ended_s,
        tenant_modes=tenant_modes(ledger.tenancy),
    )


def tenant_modes(tenancy: Tenancy) -> tuple[TenantModeRow, ...]:
    """The tenants that are not in mode enforced, in the order of the configuration."""
    return tuple(
        TenantModeRow(tenant=tenant.name, mode=tenancy.mode(row).value)
        for row, tenant in enumerate(tenancy.tenants)
        if tenancy.mode(row) is not SiteMode.ENFORCED
    )


def pass_rows(federation: Federation) -> tuple[PassRow, ...]:
    """The last passes, oldest first."""
    return tuple(map(_pass_row, federation.rounds.recent_passes))


def _pass_row(summary: PassSummary) -> PassRow:
    return PassRow(
        began_s=summary.began_s,
        ended_s=summary.ended_s,
        rounds=summary.rounds,
        awarded=summary.awarded,
    )


def _budget(federation: Federation, now_s: float) -> BudgetRow:
    window_s = federation.rules.preempt_window_s
    evictions = federation.ledger.evictions
    gpus, left_gpus = federation.eviction_budget(now_s)
    counted = charged(evictions.within, gpus, window_s, now_s)
    within = [each for each, _ in counted]
    beyond = since(evictions.beyond, now_s - window_s)
    return BudgetRow(
        window_s=window_s,
        gpus=gpus,
        left_gpus=left_gpus,
        whole_in_s=max((until_s - now_s for _, until_s in counted), default=0.0),
        evicted_gpus=sum(eviction.gpus for eviction in within),
        evictions=len(within),
        beyond_gpus=sum(eviction.gpus for eviction in beyond),
    )


def _lending(federation: Federation, now_s: float) -> LendingRow:
    mode, planned = federation.rules.lending.value, federation.ledger.planned
    loans = loan_rows(federation.ledger)
    if planned is None:
        return LendingRow(mode=mode, loans=loans)
    plan = planned.plan
    if not plan.holds(now_s):
        return LendingRow(mode=mode, expires_at_s=plan.expires_at_s, loans=loans)
    return LendingRow(
        mode=mode,
        made_at_s=plan.made_at_s,
        expires_at_s=plan.expires_at_s,
        source=plan.source,
        windows_s=plan.windows_s,
        usable_gpus=tuple(int(gpus) for gpus in federation.lendable_gpus(now_s)),
        forecasts=plan.forecasts,
        loans=loans,
    )
