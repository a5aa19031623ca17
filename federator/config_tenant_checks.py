"""Checks how the tenants of federation.yaml fit together, and with its sites and GPU types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from math import inf

from federator.config_mistakes import Mistake, brief, one_of, some
from federator.config_policy import PolicyConfig
from federator.config_tenants import LimitConfig, TenantConfig, unused_quota_mode
from federator.model.lending import Lending
from federator.model.workload import SiteName, TenantName

_Tenants = Mapping[TenantName, TenantConfig]


def parent_mistakes(tenants: _Tenants) -> Iterator[Mistake]:
    """Parents that there are not, or that form a circle."""
    parents = {n: t.parent for n, t in tenants.items() if t.parent is not None}
    for name, parent in parents.items():
        if parent not in tenants:
            message = f"unknown tenant '{parent}'; {one_of(parent, tenants)}"
            yield ("tenants", name, "parent"), message
    for circle in _circles(parents):
        message = f"parents form a circle: {some([*circle, circle[0]])}"
        if len(circle) == 1:
            message = "a tenant cannot be its own parent"
        yield ("tenants", circle[0], "parent"), message


def _circles(parents: Mapping[TenantName, TenantName]) -> Iterator[list[TenantName]]:
    """Every circle of parents, once."""
    seen: set[TenantName] = set()
    for start in parents:
        name, path = start, list[TenantName]()
        while name in parents and name not in seen:
            seen.add(name)
            path.append(name)
            name = parents[name]
        if name in path:
            yield path[path.index(name) :]


def tenant_mistakes(
    tenants: _Tenants, sites: Collection[SiteName], gpus: Collection[str]
) -> Iterator[Mistake]:
    """Users, homes and amounts that a tenant cannot have."""
    for name, tenant in tenants.items():
        at = ("tenants", name)
        if "root" in tenant.users:
            yield (*at, "users"), "lists root; any site's root could then use the tenant"
        for k, site in enumerate(tenant.home):
            if site not in sites:
                yield (
                    (*at, "home", str(k)),
                    f"unknown site '{brief(site)}'; {one_of(site, sites)}",
                )
        for key, amounts in tenant.amounts.items():
            for keys, message in _type_mistakes(amounts, gpus):
                yield (*at, key, *keys), message
        limits = tenant.limit.bounds
        for key, quota in tenant.quota.bounds.items() if tenant.quota else ():
            if key in limits and limits[key] < quota:
                message = f"limit.{brief(key)} {limits[key]} is below quota.{brief(key)} {quota}"
                yield (*at, "limit", *key.split(".", 1)), message


def _type_mistakes(amounts: LimitConfig, gpus: Collection[str]) -> Iterator[Mistake]:
    total = amounts.bounds.get("gpus", inf)
    absent = "" if amounts.gpus is not None else " (not given, so none)"
    for name, amount in amounts.gpu_types.items():
        at = ("gpu_types", name)
        if name not in gpus:
            yield at, f"unknown GPU type; {one_of(name, gpus)} (see the key 'gpus')"
        elif amount > total:
            yield at, f"{amount} of this type, of gpus {total} in all{absent}"


def tenant_warnings(tenants: _Tenants, policy: PolicyConfig) -> Iterator[str]:
    """One line for each thing that is allowed, and probably not what the admin means."""
    yield from _broken_promises(tenants)
    if not tenants:
        yield "no tenants: nobody can submit"
    if policy.name == "mast":
        for name, tenant in tenants.items():
            if all(t.quota is None for t in (tenant, *_ancestors(tenants, tenant).values())):
                yield f"tenant {name} has no quota, nor has an ancestor: all its work is over quota"
    for name, tenant in tenants.items():
        if tenant.quota is not None and tenant.quota.gpus is None:
            yield f"tenant {name}: its quota names no gpus, so it is guaranteed none"
    yield from _idle_objectives(tenants, policy)
    yield from _idle_loans(tenants, policy)


def _broken_promises(tenants: _Tenants) -> Iterator[str]:
    """Quotas that cannot all be had at once, because of those above them."""
    sums: dict[TenantName, Counter[str]] = {}
    for name, tenant in tenants.items():
        above = _ancestors(tenants, tenant)
        quota = tenant.quota.bounds if tenant.quota else {}
        for ancestor, limits in ((a, t.limit.bounds) for a, t in above.items()):
            for key in (k for k in quota if quota[k] > limits.get(k, inf)):
                yield (
                    f"tenant {name}: quota.{brief(key)} {quota[key]} is above "
                    f"limit.{brief(key)} {limits[key]} of its ancestor {ancestor}"
                )
        holder = next((a for a, t in above.items() if t.quota is not None), None)
        if holder is not None:
            sums.setdefault(holder, Counter()).update(quota)
    for name, tenant in tenants.items():
        for key, own in tenant.quota.bounds.items() if tenant.quota else ():
            if name in sums and sums[name][key] > own:
                yield (
                    f"tenant {name}: quotas below it sum to {brief(key)} {sums[name][key]}, "
                    f"more than its own {own}"
                )


def _idle_objectives(tenants: _Tenants, policy: PolicyConfig) -> Iterator[str]:
    """Start objectives that nothing can be done for."""
    preemption = policy.preemption
    for name, tenant in tenants.items():
        if not tenant.start_within_s:
            continue
        if not preemption.budget_frac or policy.name != "mast":
            yield f"tenant {name}: start_within_s has no effect: nobody is evicted"
        elif tenant.start_within_s < preemption.grace_s:
            yield (
                f"tenant {name}: start_within_s {tenant.start_within_s:g} is below the grace "
                f"of {preemption.grace_s:g} s that guests have to leave"
            )


def _idle_loans(tenants: _Tenants, policy: PolicyConfig) -> Iterator[str]:
    """Loans of unused quotas that change nothing, since no forecast holds anything back."""
    modes = {unused_quota_mode(name, tenants, policy.unused_quota.mode) for name in tenants}
    if Lending.ON in modes and policy.lending is not Lending.ON:
        yield "unused_quota: on has no effect while policy.lending is not on"


def _ancestors(tenants: _Tenants, tenant: TenantConfig) -> dict[TenantName, TenantConfig]:
    """Nearest first."""
    above: dict[TenantName, TenantConfig] = {}
    while (name := tenant.parent) is not None:
        tenant = above[name] = tenants[name]
    return above
