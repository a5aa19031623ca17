"""Says which workloads the federation itself does not let start in a pass, whatever room there is.

Those of a tenant in mode shadow or advisory, those beyond a limit of their tenant, their user or
the throttle of their array, those that want more licences than a pool has left, those to which
nothing is lent (``guests``), those whose data sets are at no site, and those that may be at a site
though they wait.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from federator.model.lending import LendingDecision
from federator.model.mappings import NOTHING
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.tenant import Tenancy
from federator.model.workload import Workload, WorkloadId
from federator.sched.passes.data_places import data_nowhere
from federator.sched.passes.limits import LimitRefusals, Places, limit_refusal, wait
from federator.sched.queue.guests import Guests
from federator.sched.state.backlog import Lane
from federator.sched.state.fleet_licenses import Pools
from federator.sched.state.holdings import Charge
from federator.sched.state.ledger import Ledger, WorkloadRecord

MOST_NOT_LENT: Final = 100  # workloads of a lane that are looked at in a pass, and run too long


class Withheld:
    """The refusals of one pass that no site gives.

    Args:
        ledger: read for what has changed meanwhile.
        unsure: workloads that may be at a site though they wait.
        guests: which work over quota may start.
        pools: the licences that all sites share.

    Attributes:
        guests: as above.
    """

    def __init__(
        self,
        ledger: Ledger,
        unsure: Container[WorkloadId],
        guests: Guests,
        pools: Pools = NOTHING,
    ) -> None:
        self._ledger = ledger
        self._unsure = unsure
        self._limits = LimitRefusals(ledger.holdings)
        self._places = Places(ledger, pools)
        self._not_lent: dict[Lane, int] = {}  # of how many the forecast did not let start
        self.guests = guests

    def of_lane(self, lane: Lane) -> Refusal | None:
        """The refusal of all of a lane; None: there is none."""
        if (refusal := tenant_refusal(self._ledger.tenancy, lane.row)) is not None:
            return refusal
        if (refusal := self.guests.withheld(lane)) is not None:
            return refusal
        if (refusal := data_nowhere(self._ledger, lane.data)) is not None:
            return refusal
        row = lane.row
        if (refusal := self._places.full(row)) is not None:
            return refusal
        if not self._ledger.tenancy.limit_rows(row):
            return None
        return self._limits.refusal(row, lane.shape.request)

    def of_lane_over_quota(self, lane: Lane) -> Refusal | None:
        """The refusal of all that is over quota in a lane; also once many of it run too long."""
        if self._not_lent.get(lane, 0) < MOST_NOT_LENT:
            return self.guests.withheld_over_quota(lane)
        return lane.over_refusal

    def not_lent(self, entry: WorkloadRecord, *, within: bool) -> Refusal | None:
        """The refusal of one to which nothing is lent; ``within``: it is within quota."""
        return self.guests.refusal(entry, within=within)

    def count_not_lent(self, lane: Lane, refusal: Refusal) -> None:
        """One is not lent GPUs for so long as it runs; others of its lane may be shorter."""
        self._not_lent[lane] = self._not_lent.get(lane, 0) + 1
        if self._not_lent[lane] >= MOST_NOT_LENT:
            lane.over_refusal = refusal

    def of(self, entry: WorkloadRecord) -> Refusal | None:
        """The refusal of one that is not tried now; who has a place keeps it."""
        workload = entry.workload
        if workload.id in self._unsure:
            return wait(ReasonCode.NO_ANSWER)
        tenancy = self._ledger.tenancy
        if (refusal := tenant_refusal(tenancy, tenancy.row(workload.tenant))) is not None:
            return refusal
        if (refusal := data_nowhere(self._ledger, workload.needed_data)) is not None:
            return refusal
        return self._places.take(workload)

    def of_plan(
        self, workload: Workload, charge: Charge, *, within: bool
    ) -> LendingDecision | Refusal | None:
        """Say whether a plan may be taken, by what it really takes, and on what forecast.

        ``within``: it would be within quota, at home.
        """
        beyond = tenant_refusal(self._ledger.tenancy, charge.row)
        beyond = beyond or limit_refusal(self._ledger.holdings, charge.row, charge.amounts)
        if beyond is not None:
            return beyond
        row, amounts = charge.row, charge.amounts
        return self.guests.decide(workload, row, amounts, within=within, named=True)

    def was_not_awarded(self, workload: Workload) -> None:
        """It was tried and does not start after all: a task gives its place back."""
        self._places.give_back(workload)


def tenant_refusal(tenancy: Tenancy, row: int) -> Refusal | None:
    """The refusal of all work of a tenant for which the federation starts nothing."""
    if tenancy.mode(row).acts:
        return None
    reason = Reason(code=ReasonCode.TENANT_MODE, detail=tenancy.tenants[row].name)
    return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
