"""Says why a workload is not tried: a limit of its tenant or its array, or a silent site."""

from __future__ import annotations

from federator.model.lifecycle import AT_SITE
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.tenant import Amounts
from federator.model.workload import WorkloadId
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


class LimitRefusals:
    """Answers ``limit_refusal`` from memory: many of one tenant ask for the same in a pass.

    Args:
        holdings: what tenants hold; everything is forgotten when that changes.
    """

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._known: dict[tuple[int, Amounts], Refusal | None] = {}
        self._as_of = -1

    def refusal(self, row: int, amounts: Amounts) -> Refusal | None:
        """As ``limit_refusal``."""
        if self._as_of != self._holdings.version:
            self._known.clear()
            self._as_of = self._holdings.version
        if (row, amounts) not in self._known:
            self._known[row, amounts] = limit_refusal(self._holdings, row, amounts)
        return self._known[row, amounts]


def running_tasks(ledger: Ledger) -> dict[WorkloadId, int]:
    """The number of tasks of each array that are at sites or have a claim, as a pass first asks.

    A claim has its place: its victims leave for it, and it is awarded when they have.
    """
    tasks: dict[WorkloadId, int] = {}
    waiting = [ledger.entries[id_] for id_ in ledger.claims]
    for entry in (*ledger.in_state(*AT_SITE), *waiting):
        array = entry.workload.array
        if array is not None:
            tasks[array.array_id] = tasks.get(array.array_id, 0) + 1
    return tasks
