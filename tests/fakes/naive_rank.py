"""The ranking, said as plainly as possible: the reference that the fast one must equal.

Written from the spec (MAST sec. 4.2; tenants, limits and demotion as in docs/), with loops over
plain lists: no lanes, no heaps, no arrays, nothing kept from one ranking to the next. It takes
nothing from ``federator.sched`` but the weights and the shape of its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from federator.model.tenant import Allowance, Tenant
from federator.model.workload import Job, TenantName, Workload
from federator.sched.queue.ranked import Ranked
from federator.sched.state.credit import CreditWeights

LOWEST = 7

Amount = Mapping[str, float]
"""By resource: "gpus", "cpus", or "type h100"."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """What one workload holds at a site."""

    tenant: str
    gpus: int = 0
    cpus: int = 0
    gpu_types: Mapping[str, int]
    within_quota: bool = False  # when it was awarded


def naive_rank(
    tenants: Sequence[Tenant],
    waiting: Sequence[Workload],
    held: Sequence[Held],
    usage: Mapping[TenantName, float],
    weights: CreditWeights,
    now_s: float,
) -> list[Ranked]:
    """All of ``waiting``, first to try first.

    ``usage`` holds an average for everyone who ever used anything.
    """
    by_name = {t.name: t for t in tenants}
    unranked = {w.id: _terms(w, usage, weights, now_s) for w in waiting}
    own_level = {
        w.id: by_name[w.tenant].priority if w.tenant in by_name else LOWEST for w in waiting
    }

    def scan_key(w: Workload) -> tuple[float, ...]:
        demoted = max(0, w.asked_priority - own_level[w.id])
        return (demoted, -unranked[w.id][0], w.submitted_at_s, w.id)

    given: list[tuple[TenantName, Amount]] = []
    found: list[Ranked] = []
    for w in sorted(waiting, key=scan_key):
        within = _fits(by_name, w, held, given)
        if within:
            given.append((w.tenant, request(w)))
        priority = max(own_level[w.id], w.asked_priority) if within else LOWEST
        found.append(Ranked(w.id, priority, within, *unranked[w.id]))
    submitted = {w.id: w.submitted_at_s for w in waiting}
    found.sort(key=lambda r: (r.priority, -r.credit, submitted[r.id], r.id))
    return found


def _terms(
    w: Workload, usage: Mapping[TenantName, float], weights: CreditWeights, now_s: float
) -> tuple[float, float, float, float, float]:
    hours = min((now_s - w.submitted_at_s) / 3600.0, weights.age_cap_h)
    age = weights.per_hour_waited * hours
    total = 0.0
    for average in usage.values():
        total += average
    share = usage.get(w.tenant, 0.0) / total if total else 0.0
    fair_share = weights.fair_share * (1.0 - share)
    nice = weights.per_nice * w.nice
    price = 0.0 if w.requeue and not w.no_preempt else weights.non_preemptible
    return (age + fair_share - nice - price, age, fair_share, nice, price)


def _fits(
    by_name: Mapping[TenantName, Tenant],
    w: Workload,
    held: Sequence[Held],
    given: Sequence[tuple[TenantName, Amount]],
) -> bool:
    guaranteed = False
    for name in ancestry(by_name, w.tenant):
        quota = by_name[name].quota if name in by_name else None
        if quota is None:
            continue
        guaranteed = True
        for resource, bound in bounds(quota).items():
            total = request(w).get(resource, 0)
            if not total and resource not in ("gpus", "cpus"):
                continue  # a type that is not asked for
            for h in held:
                below = name in ancestry(by_name, TenantName(h.tenant))
                borrowed_by_itself = name == w.tenant == h.tenant
                if below and (h.within_quota or borrowed_by_itself):
                    total += held_of(h, resource)
            for tenant, amount in given:
                if name in ancestry(by_name, tenant):
                    total += amount.get(resource, 0)
            if total > bound:
                return False
    return guaranteed


def ancestry(by_name: Mapping[TenantName, Tenant], name: TenantName) -> list[TenantName]:
    """A tenant and those above it."""
    found = [name]
    while name in by_name and (parent := by_name[name].parent) is not None:
        name = parent
        found.append(name)
    return found


def bounds(allowance: Allowance) -> dict[str, float]:
    """Every amount that an allowance bounds."""
    typed = {f"type {name}": most for name, most in allowance.gpu_types.items()}
    return {"gpus": allowance.gpus, "cpus": allowance.cpus, **typed}


def held_of(h: Held, resource: str) -> int:
    if resource in ("gpus", "cpus"):
        return h.gpus if resource == "gpus" else h.cpus
    return h.gpu_types.get(resource.removeprefix("type "), 0)


def request(w: Workload) -> dict[str, float]:
    """What a workload asks for before it is placed."""
    total: dict[str, float] = {"gpus": 0, "cpus": 0}
    for job in w.jobs:
        nodes = 1 if job.nodes is None else job.nodes
        gpus = job.gpus if job.gpus else job.gpus_per_node * nodes
        total["gpus"] += gpus
        total["cpus"] += _cpus(job, nodes)
        if len(job.gpu_types) == 1:
            resource = f"type {job.gpu_types[0]}"
            total[resource] = total.get(resource, 0) + gpus
    return total


def _cpus(job: Job, nodes: int) -> int:
    """At least one per node, whichever way they were asked for."""
    per_node = job.cpus_per_node if job.cpus_per_node > 1 else 1
    return job.cpus if job.cpus > per_node * nodes else per_node * nodes
