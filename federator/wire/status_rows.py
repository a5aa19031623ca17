"""Rows of the answer to ``federator status``: the pass, budget, claims, what is lent, estimates.

And drains and pools of licences, of the answer to ``fsinfo``; changed keys, of that to a reload.
"""

from __future__ import annotations

import msgspec

from federator.model.lending import LoadForecast


class PassRow(msgspec.Struct, frozen=True, kw_only=True):
    """The pass that is under way, or the last one."""

    began_s: float  # Unix time, as the next
    ended_s: float = 0.0  # 0: it is under way
    rounds: int = 0
    awarded: int = 0


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """The eviction budget; amounts are GPUs."""

    window_s: float
    gpus: float = 0.0  # that may be evicted in any window; 0: nobody is evicted
    left_gpus: float = 0.0  # of those, now
    whole_in_s: float = 0.0  # until all of it is left again, if nobody is evicted
    evicted_gpus: int = 0  # in the last window; a large victim counts longer
    evictions: int = 0  # likewise
    beyond_gpus: int = 0  # evicted besides in the last window, for start objectives


class ClaimRow(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: nodes that come free for a workload."""

    id: int  # 0: of a workload that who asks may not see
    site: str
    gpus: int  # that it will have
    to_evict_gpus: int
    starts_by_s: float  # Unix time


class LicenseRow(msgspec.Struct, frozen=True, kw_only=True):
    """Licences of one name that all sites share."""

    name: str
    total: int
    used: int  # by workloads at sites; above ``total`` after that was lowered


class TenantModeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant that the federation does not act for in full."""

    tenant: str
    mode: str  # of ``SiteMode``: the lowest of its own and those above it


class LoanRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A quota that is hardly used; times are Unix times."""

    tenant: str
    step: str  # a LoanStep's value; one of a later release is shown as it is
    since_s: float
    used_frac: float = 0.0  # of the quota, on the busiest of ``days`` whole days
    days: int = 0
    lends_at_s: float = 0.0  # once it is "noticed"
    until_s: float = 0.0  # so long it is "kept"; 0: for ever
    by: str = ""


class LendingRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Lending as it stands; times are Unix times.

    ``made_at_s`` 0: no plan is in force; then ``expires_at_s`` is when the last one ended, or 0.
    """

    mode: str  # a Lending's value
    made_at_s: float = 0.0
    expires_at_s: float = 0.0
    source: str = ""
    windows_s: tuple[float, ...] = ()
    usable_gpus: tuple[int, ...] = ()  # by window, now; below 0: owners need more than is idle
    forecasts: tuple[LoadForecast, ...] = ()
    loans: tuple[LoanRow, ...] = ()


class StartsClassRow(msgspec.Struct, frozen=True, kw_only=True):
    """How good estimated starts of a size and a quota class are."""

    gpus: str  # that jobs ask for: 1, or 5-8
    quota: str  # within or over
    latest: int  # at least one, as in ``StartsRow``
    hit_frac: float


class StartsRow(msgspec.Struct, frozen=True, kw_only=True):
    """How good estimated starts are: see docs/starts.md."""

    frac: float  # of the starts that intervals are to hold
    judged: int  # estimates since the daemon's start whose outcome is known
    latest: int  # that had been shown, of which ``hit_frac`` tells; 0: it says nothing
    hit_frac: float  # of the latest, held
    classes: tuple[StartsClassRow, ...] = ()  # by size; none of an older daemon


class DrainRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A drain, a cordon or a quarantine that has not ended; ``left`` workloads are still there."""

    nodes: tuple[str, ...] = ()  # only these of the site; none: all of it
    cordon: bool = False
    reason: str = ""
    by: str = ""
    since_s: float = 0.0  # Unix time, as the next
    deadline_s: float = 0.0  # 0: none
    migrate: bool = False
    left: int = 0
    written_off: bool = False  # ``left``: attempts that it must end when it returns
    gangs: bool = False  # slow nodes, where no job of several nodes starts
    until_s: float = 0.0  # Unix time at which that lapses


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A key of federation.yaml, with its values as JSON; "": it is absent, and has no default."""

    key: str  # with dots, as tenants.vision.quota.gpus
    before: str
    after: str
