"""Says why a workload is not tried: a limit of its tenant or its array, or a silent site."""

from __future__ import annotations

from federator.model.lifecycle import AT_SITE
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.resources import Amounts
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
        unit=tenancy.resources.unit(resource),
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


class Throttles:
    """The places that arrays with a throttle have left in one pass.

    A claim has its place: its victims leave for it, and it is awarded when they have.

    Args:
        ledger: counted when the first task is asked about.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tasks: dict[WorkloadId, int] | None = None  # by array
        self._placed: set[WorkloadId] = set()  # of them, and not at a site

    def take(self, workload: Workload) -> Refusal | None:
        """Give a task a place, as often as it is asked about; or the refusal when none is left."""
        array = workload.array
        if array is None or not array.max_running:
            return None
        tasks = self._counted()
        if workload.id in self._placed:
            return None
        if tasks.get(array.array_id, 0) >= array.max_running:
            return wait(ReasonCode.ARRAY_LIMIT, array.max_running)
        tasks[array.array_id] = tasks.get(array.array_id, 0) + 1
        self._placed.add(workload.id)
        return None

    def give_back(self, workload: Workload) -> None:
        """A task that has a place does not start in this pass; harmless for others."""
        if workload.id in self._placed and workload.id not in self._ledger.claims:
            assert workload.array is not None
            self._placed.discard(workload.id)
            self._counted()[workload.array.array_id] -= 1

    def _counted(self) -> dict[WorkloadId, int]:
        if self._tasks is None:
            entries = self._ledger.entries
            self._placed = set(self._ledger.claims)
            self._tasks = {}
            for entry in (
                *self._ledger.in_state(*AT_SITE),
                *map(entries.__getitem__, self._placed),
            ):
                array = entry.workload.array
                if array is not None:
                    self._tasks[array.array_id] = self._tasks.get(array.array_id, 0) + 1
        return self._tasks
