"""Decides which work over quota may start: by borrowing, by lending, or not.

Three kinds of work over quota:

* It may be evicted, and evictions are allowed: it starts, and is had back by an eviction.
* It may not be evicted. It starts while all such work of its tenant fits into the tenant's quota
  (``borrowing``); else only if it is lent by a forecast (``lending``, where that is on).
* Nobody is evicted at all. With ``lending`` off it starts; with it on, only by a forecast.
"""

from __future__ import annotations

from federator.model.lending import Lending, LendingDecision
from federator.model.reason import Reason, Refusal, RefusalKind
from federator.model.resources import Amounts
from federator.model.workload import Workload, WorkloadId
from federator.sched.queue.borrowing import FirmWork, not_lent
from federator.sched.queue.lending import LendingRoom
from federator.sched.state.backlog import Lane
from federator.sched.state.ledger import Ledger, WorkloadRecord


class Guests:
    """The rules for work over quota in one pass.

    Args:
        ledger: the queue.
        firm: work that may not be evicted, where such work starts only within quota; else None.
        room: the GPUs that may be lent; None: it is not asked.
        lending: whether it is obeyed.
        evicts: whether anybody may be evicted.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        firm: FirmWork | None = None,
        room: LendingRoom | None = None,
        lending: Lending = Lending.OFF,
        evicts: bool = True,
    ) -> None:
        self._ledger, self._firm, self._room, self._evicts = ledger, firm, room, evicts
        self._runs_s: dict[WorkloadId, float] = {}  # of those that were asked about
        self._obeys = room is not None and lending is Lending.ON

    @property
    def keeps_firm_work_home(self) -> bool:
        """Whether work that may not be evicted starts at its tenant's home alone."""
        return self._firm is not None

    def lendable_gpus(self) -> list[float]:
        """By window of the plan in force; empty where there is none."""
        return [] if self._room is None else self._room.usable_gpus()

    # ---- a lane ----

    def withheld(self, lane: Lane) -> Refusal | None:
        """The refusal of all of a lane that may not be evicted; None: some of it may start."""
        if self._firm is None or lane.shape.preemptible:
            return None
        if self._firm.has_room(lane.row, lane.shape.request):
            return None
        if self._obeys:
            return self._never_lent(lane)
        tenant = self._ledger.tenancy.tenants[lane.row].name
        return not_lent(self._ledger.tenancy, tenant, lane.shape.request)

    def withheld_over_quota(self, lane: Lane) -> Refusal | None:
        """The refusal of all that is over quota in a lane, where nobody is evicted."""
        return self._never_lent(lane) if self._obeys and not self._evicts else None

    def _never_lent(self, lane: Lane) -> Refusal | None:
        assert self._room is not None
        reason = self._room.never_lent(lane.shape.request)
        return None if reason is None else _wait(reason)

    # ---- one workload ----

    def decide(
        self, workload: Workload, row: int, amounts: Amounts, *, within: bool, named: bool = False
    ) -> LendingDecision | Refusal | None:
        """Say whether it may start: None: as it likes; else on what forecast; or why not.

        Args:
            workload: it waits.
            row: of its tenant.
            amounts: that it would hold.
            within: it would be within quota, at home.
            named: say who lends.
        """
        if self._evicts and workload.preemptible:
            return None
        if self._firm is not None:
            if self._firm.has_room(row, amounts):
                return None
            if not self._obeys:
                return not_lent(self._ledger.tenancy, workload.tenant, amounts)
        if self._room is None or (within and self._firm is None):
            return None
        decision = self._room.decide(amounts, self._run_s(workload), named=named)
        if not self._obeys:
            return _as_advice(decision)
        return decision if decision.held is None else _wait(decision.held)

    def refusal(self, entry: WorkloadRecord, *, within: bool) -> Refusal | None:
        """The refusal of one before any site is asked; by what it asks for."""
        if not self._obeys:
            return None  # a lane says it all
        tenancy, workload = self._ledger.tenancy, entry.workload
        row = tenancy.row(workload.tenant)
        found = self.decide(workload, row, tenancy.resources.request(workload.jobs), within=within)
        return found if isinstance(found, Refusal) else None

    def _run_s(self, workload: Workload) -> float:
        """Within so many seconds it is predicted to be over, or ended by its time limit."""
        known = self._runs_s.get(workload.id)
        if known is None:
            found = self._ledger.durations.expected(workload)
            known = workload.time_limit_s if found is None else found.q90_s
            self._runs_s[workload.id] = known
        return known

    def started(
        self,
        workload: Workload,
        row: int,
        amounts: Amounts,
        decision: LendingDecision | None,
        *,
        within: bool,
    ) -> None:
        """One was awarded."""
        lent = decision is not None and decision.is_lent
        if self._firm is not None and not workload.preemptible and not lent:
            self._firm.add(row, amounts)
        if self._room is not None and not within:
            self._room.started(amounts, decision)


def _as_advice(decision: LendingDecision) -> LendingDecision:
    return LendingDecision(
        owners=decision.owners,
        until_s=decision.until_s,
        window_s=decision.window_s,
        planned_at_s=decision.planned_at_s,
        held=decision.held,
        advisory=True,
    )


def _wait(reason: Reason) -> Refusal:
    return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
