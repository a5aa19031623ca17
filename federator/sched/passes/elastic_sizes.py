"""Says on how many nodes an elastic workload may start now, and which of its offers is best.

It may always have its least. It may have up to what it asked for, as a rigid job of that size
would, so that nobody waits longer than behind such a job; and more only while nobody waits. It is
charged for the size that it takes, and takes none that its quota or a limit does not cover.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf

from federator.model.plan import JobPlan
from federator.model.sizes import asked_nodes, jobs_at, larger_sizes, tried_sizes
from federator.model.workload import Workload
from federator.sched.passes.auction import Award
from federator.sched.state.holdings import Charge, Holdings


def allowed_sizes(
    workload: Workload, holdings: Holdings, *, within: bool, alone: bool, most: float = inf
) -> tuple[int, ...]:
    """The numbers of nodes above its least that sites may bid for, largest first.

    Args:
        workload: that waits.
        holdings: what tenants hold.
        within: whether it ranks within quota: it stays there.
        alone: whether nobody else waits.
        most: a larger size has failed it.
    """
    sizes = larger_sizes(workload)
    sizes = sizes[bisect_left(sizes, -most, key=lambda s: -s) :]
    if not alone:
        sizes = sizes[bisect_left(sizes, -asked_nodes(workload), key=lambda s: -s) :]
    # A size is covered if a larger one is: so few are looked at, however many there are.
    first = bisect_left(sizes, True, key=lambda s: is_covered(workload, s, holdings, within=within))
    if first == len(sizes):
        return ()
    largest = sizes[first]
    return (largest, *(size for size in tried_sizes(workload) if size < largest))


def is_covered(workload: Workload, size: int, holdings: Holdings, *, within: bool) -> bool:
    """Tell whether quota and limits have room for so many nodes of a workload more."""
    tenancy = holdings.tenancy
    row = tenancy.row(workload.tenant)
    amounts = tenancy.resources.request(jobs_at(workload.jobs, size))
    if holdings.beyond_limit(row, amounts) is not None:
        return False
    return not within or holdings.keeps_quota(Charge(row=row, amounts=amounts, weighted_gpus=0.0))


def nodes_of(plans: Sequence[JobPlan]) -> int:
    """The nodes of a plan."""
    return sum(len(plan.nodes) for plan in plans)


def is_enlarged(workload: Workload, plans: Sequence[JobPlan]) -> bool:
    """Tell whether a plan of an elastic workload has more nodes than its least."""
    return workload.elastic is not None and nodes_of(plans) > (workload.jobs[0].nodes or 0)


def largest_first(workload: Workload, offers: Sequence[Award]) -> Sequence[Award]:
    """Offers in order of preference: of an elastic workload the one of most nodes comes first.

    One without victims still comes before one with. Others are left as they are.
    """
    if workload.elastic is None:
        return offers
    return sorted(offers, key=lambda o: (bool(o.bid.victims), -nodes_of(o.bid.jobs)))
