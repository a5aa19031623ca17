"""Lends owners' idle GPUs to work that cannot be had back, as far as forecasts leave them over.

Idle quota is lent because its owner can have it back by an eviction. Where nobody is evicted, or
for a workload that may not be, nothing gives it back but its end. Such a workload starts over quota
only on GPUs that no owner is expected to need before it is over: of the GPUs that are idle now,
those that are left once every owner has room for its waiting work within quota and for the new load
that the lending plan forecasts in the workload's window, at most for all that its quota has left.
An owner whose quota is lent since it is hardly used (``QuotaLoan``) has room for its waiting work
alone.

One value is for one pass. It is exact while the pass lasts: work within quota takes what was kept
for it, all else takes from what may be lent.

Source:
    SIA sec. 5.3, Figure 8: spare starts, with the reservations of all queues summed up (all of them
    hold from now on, so the sum is the maximum); sec. 5.5 for partial preemption, where the reserve
    shrinks by what can be had back. Chosen here: the order of the pass in place of the shortest
    window first; a quota above others bounds the sum below it; a tenant without a forecast, or
    with one that is off, keeps all of its quota.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, NamedTuple

from federator.model.lending import LendingDecision, LendingPlan, LoadForecast, Owners
from federator.model.reason import Reason, ReasonCode
from federator.model.resources import Amounts
from federator.model.tenant import Tenancy
from federator.model.workload import TenantName
from federator.sched.state.ledger import Ledger

_GPUS: Final = 0  # of ``Tenancy.resources``
_CPUS: Final = 1


class Idle(NamedTuple):
    """The GPUs that nobody holds, and those that could be had back within the grace."""

    amounts: Sequence[float]  # by resource; CPUs are not looked at
    reclaimable_gpus: float = 0.0


class LendingRoom:
    """The GPUs that may be lent now, by window of the plan in force.

    Args:
        ledger: read once, when it is first asked for; scanned for quota before.
        plan: the lending plan; None: there is none that has not expired.
        idle: called at most once.
        now_s: Unix time.
    """

    def __init__(
        self, ledger: Ledger, plan: LendingPlan | None, idle: Callable[[], Idle], now_s: float
    ) -> None:
        self._ledger, self._tenancy = ledger, ledger.tenancy
        self._plan, self._idle, self._now_s = plan, idle, now_s
        self._usable: list[list[float]] | None = None  # by window and resource
        self._spare: list[dict[int, float]] = []  # of owners, by window and row
        self._most: list[list[tuple[float, int]]] = []  # heaps of these, by window; some are old
        self._taken: dict[int, float] = {}  # before it was first asked for, by resource

    # ---- questions ----

    def usable_gpus(self) -> list[float]:
        """By window; below 0 where owners need more than is idle."""
        return [] if self._plan is None else [amounts[_GPUS] for amounts in self._room()]

    def never_lent(self, amounts: Amounts) -> Reason | None:
        """The reason why nobody who asks for this much is lent it, however short; None: some are.

        Room for a longer window is room for a shorter one, unless the forecast of that is off.
        """
        if self._plan is None:
            return Reason(code=ReasonCode.NO_PLAN)
        room = self._room()
        windows = range(len(room))
        if any(self._lacking(amounts, window) is None for window in windows):
            return None
        most = max(windows, key=lambda window: room[window][_GPUS])
        return self._kept(amounts, most)

    def decide(self, amounts: Amounts, run_s: float, *, named: bool = True) -> LendingDecision:
        """Lend this much for so long, or say why not.

        Args:
            amounts: by resource.
            run_s: within so many seconds it is predicted to be over.
            named: say who lends; else it is only decided.
        """
        plan = self._plan
        if plan is None:
            return LendingDecision(held=Reason(code=ReasonCode.NO_PLAN))
        window = plan.window_for(run_s)
        if window is None:
            longest_s = plan.windows_s[-1]
            held = Reason(code=ReasonCode.BEYOND_FORECAST, more_in_s=longest_s)
            return LendingDecision(held=held, planned_at_s=plan.made_at_s)
        window_s = plan.windows_s[window]
        if self._lacking(amounts, window) is not None:
            held = self._kept(amounts, window)
            return LendingDecision(held=held, window_s=window_s, planned_at_s=plan.made_at_s)
        return LendingDecision(
            owners=self._owners(amounts[_GPUS], window) if named else {},
            until_s=self._now_s + run_s,
            window_s=window_s,
            planned_at_s=plan.made_at_s,
        )

    def _lacking(self, amounts: Amounts, window: int) -> int | None:
        """The first resource of which too little may be lent; None: there is enough of all."""
        usable = self._room()[window]
        for resource, amount in enumerate(amounts):
            if resource != _CPUS and amount and amount > usable[resource]:
                return resource
        return None

    def _kept(self, amounts: Amounts, window: int) -> Reason:
        resource = self._lacking(amounts, window) or _GPUS
        assert self._plan is not None
        return Reason(
            code=ReasonCode.KEPT,
            needed=amounts[resource],
            free=max(0, int(self._room()[window][resource])),
            unit=self._tenancy.resources.unit(resource),
            more_in_s=self._plan.windows_s[window],
        )

    def _owners(self, gpus: int, window: int) -> Owners:
        """From whom so many are lent: those who have most to spare, then nobody's own."""
        found: Owners = {}
        spare, most = self._spare[window], self._most[window]
        looked_at = []
        while gpus and most:
            over, row = heappop(most)
            if -over != spare[row]:  # it has lent since
                if spare[row] >= 1:
                    heappush(most, (-spare[row], row))
                continue
            looked_at.append((over, row))
            some = min(gpus, int(-over))
            found[self._tenancy.tenants[row].name] = some
            gpus -= some
        for item in looked_at:
            heappush(most, item)
        return found | ({"": gpus} if gpus else {})

    # ---- what the pass does ----

    def started(self, amounts: Amounts, decision: LendingDecision | None) -> None:
        """Somebody starts who is not within quota; ``decision``: on what forecast."""
        if self._usable is None:
            for resource, amount in enumerate(amounts):
                self._taken[resource] = self._taken.get(resource, 0.0) + amount
            return
        for usable in self._usable:
            for resource, amount in enumerate(amounts):
                usable[resource] -= amount
        for name, gpus in decision.owners.items() if decision is not None else ():
            row = self._tenancy.row(TenantName(name)) if name else None
            for spare in self._spare:
                if row in spare:
                    spare[row] -= gpus

    # ---- what is kept ----

    def _room(self) -> list[list[float]]:
        if self._usable is None:
            assert self._plan is not None
            idle, needs = self._idle(), _OwnersNeeds(self._ledger, self._plan)
            have = [a - self._taken.get(k, 0.0) for k, a in enumerate(idle.amounts)]
            self._usable = []
            for window in range(len(self._plan.windows_s)):
                keep = [needs.total(resource, window) for resource in range(len(have))]
                keep[_GPUS] = max(0.0, keep[_GPUS] - idle.reclaimable_gpus)
                self._usable.append([a - b for a, b in zip(have, keep, strict=True)])
                self._spare.append(needs.spare(window))
                self._most.append([(-over, row) for row, over in self._spare[-1].items()])
                heapify(self._most[-1])
        return self._usable


class _OwnersNeeds:
    """The GPUs that owners are expected to want of their quotas, beside what they hold."""

    def __init__(self, ledger: Ledger, plan: LendingPlan) -> None:
        self._tenancy: Tenancy = ledger.tenancy
        self._holdings = ledger.holdings
        self._loans = ledger.loans
        self._pending = _waiting_within(ledger)
        self._forecasts = {(f.tenant, f.gpu_type): f for f in plan.forecasts}
        self._children: dict[int, list[int]] = {}
        rows = range(len(ledger.tenancy))
        self._owners = [row for row in rows if ledger.tenancy.quota_rows(row)]
        for row in self._owners:
            chain = ledger.tenancy.chain(row)
            if len(chain) > 1:
                self._children.setdefault(chain[1], []).append(row)
        self._roots = [row for row in self._owners if ledger.tenancy.quota_rows(row)[-1] == row]

    def total(self, resource: int, window: int) -> float:
        """Of all tenants together."""
        if resource == _CPUS:
            return 0.0
        needs = (self._need(row, resource, window) for row in self._roots)
        return sum(need for need in needs if need < inf)

    def spare(self, window: int) -> dict[int, float]:
        """The GPUs of their own that owners will not need, by row: where no quota is below."""
        found = {}
        for row in self._owners:
            if self._tenancy.quotas[row] is not None and row not in self._children:
                over = self._unused(row, _GPUS) - self._need(row, _GPUS, window)
                if 0 < over < inf:
                    found[row] = over
        return found

    def _need(self, row: int, resource: int, window: int) -> float:
        own = self._own_need(row, resource, window)
        own += sum(self._need(child, resource, window) for child in self._children.get(row, ()))
        return min(own, self._unused(row, resource))

    def _own_need(self, row: int, resource: int, window: int) -> float:
        bounds = (self._tenancy.quotas[at] or () for at in self._tenancy.quota_rows(row))
        if all(bound[resource] == inf for bound in bounds):
            return 0.0  # a type that no quota of its counts
        waits = self._pending.get(row)
        waiting = waits[resource] if waits is not None else 0
        if self._is_lent(row):
            return waiting
        forecast = self._forecast(row, resource)
        if forecast is None or forecast.is_off(window):
            return inf
        return waiting + forecast.new_gpus[window]

    def _is_lent(self, row: int) -> bool:
        """Tell whether the nearest quota above a tenant is lent fully, since it is unused."""
        nearest = self._tenancy.quota_rows(row)[0]
        return self._loans.is_lent(self._tenancy.tenants[nearest].name)

    def _forecast(self, row: int, resource: int) -> LoadForecast | None:
        gpu_type = "" if resource == _GPUS else self._tenancy.resources.names[resource]
        return self._forecasts.get((self._tenancy.tenants[row].name, gpu_type))

    def _unused(self, row: int, resource: int) -> float:
        quota = self._tenancy.quotas[row]
        if quota is None:
            return inf
        return max(0.0, quota[resource] - self._holdings.counted(row)[resource])


def _waiting_within(ledger: Ledger) -> dict[int, list[int]]:
    """The amounts that waiting workloads within quota ask for, by row of their tenant."""
    backlog = ledger.backlog
    found: dict[int, list[int]] = {}
    for row in backlog.rows():
        for lane in backlog.lanes(row):
            if lane.within:
                total = found.setdefault(row, [0] * len(lane.shape.request))
                for resource, amount in enumerate(lane.shape.request):
                    total[resource] += amount * lane.within
    return found
