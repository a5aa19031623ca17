"""Says why a workload is not tried: a limit of its tenant or its array, or a silent site."""

from __future__ import annotations

from federator.model.lifecycle import AT_SITE
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.tenant import Amounts
from federator.model.workload import Workload, WorkloadId
from federator.sched.state.holdings import Holdings
from federator.sched.state.ledger import Ledger


def wait(code: ReasonCode, needed: int = 0) -> Refusal:
    return Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=code, needed=needed),))


def limit_refusal(holdings: Holdings, row: int, amounts: Amounts) -> Refusal | None:
    """The refusal of a tenant that may not have this much more now; None: no limit is reached."""
    beyond = holdings.beyond_limit(row, amounts)
    if beyond is None:
        return None
    at, resource = beyond
    tenancy = holdings.tenancy
    limit = tenancy.limits[at]
    assert limit is not None
    never = amounts[resource] > limit[resource]
    reason = Reason(
        code=ReasonCode.LIMIT,
        needed=amounts[resource],
        free=max(0, int(limit[resource]) - holdings.used(at)[resource]),
        unit=tenancy.unit(resource),
        detail=tenancy.tenants[at].name,
    )
    kind = RefusalKind.REJECT if never else RefusalKind.WAIT
    return Refusal(kind=kind, reasons=(reason,))


class ArrayPlaces:
    """Places in throttled arrays during one pass: of tasks at sites, with a claim, or tried.

    A claim has its place: its victims leave for it, and it is awarded when they have.

    Args:
        ledger: counted when a pass first asks.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._taken: dict[WorkloadId, int] | None = None  # by array
        self._holders: set[WorkloadId] = set()  # the tasks among them that are not at a site

    def take(self, workload: Workload) -> Refusal | None:
        """Give a task a place unless it has one; the refusal where its array has none left."""
        array = workload.array
        if array is None or not array.max_running:
            return None
        if self._taken is None:
            self._taken = self._counted()
            self._holders = set(self._ledger.claims)
        if workload.id in self._holders:
            return None
        tasks = self._taken.get(array.array_id, 0)
        if tasks >= array.max_running:
            return wait(ReasonCode.ARRAY_LIMIT, array.max_running)
        self._taken[array.array_id] = tasks + 1
        self._holders.add(workload.id)
        return None

    def give_back(self, workload: Workload) -> None:
        """A task does not start: another may have its place, unless it has a claim."""
        array, id_ = workload.array, workload.id
        if array is None or self._taken is None or id_ in self._ledger.claims:
            return
        if id_ in self._holders:
            self._holders.discard(id_)
            self._taken[array.array_id] -= 1

    def _counted(self) -> dict[WorkloadId, int]:
        ledger, tasks = self._ledger, dict[WorkloadId, int]()
        for entry in (*ledger.in_state(*AT_SITE), *(ledger.entries[id_] for id_ in ledger.claims)):
            array = entry.workload.array
            if array is not None:
                tasks[array.array_id] = tasks.get(array.array_id, 0) + 1
        return tasks
