"""The amounts each tenant holds at the sites, now and on average; charged and released once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from federator.model.event import SnapshotUsage
from federator.model.plan import JobPlan
from federator.model.resources import Amounts
from federator.model.tenant import Tenancy
from federator.sched.state.credit import F64
from federator.sched.state.usage import UsageAverage, WindowAverage


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The amounts that one placed workload holds, from its award until it has left its site."""

    row: int
    amounts: Amounts
    weighted_gpus: float
    lent: bool = False  # by a forecast: it takes nothing from the tenant's own quota


class Holdings:
    """Sums of charges, by tenant and with all its descendants.

    Args:
        tenancy: the tenants.
        usage: told of every change.
    """

    def __init__(self, tenancy: Tenancy, usage: UsageAverage) -> None:
        self.tenancy = tenancy
        self._usage = usage
        self._own: list[list[int]] = []
        self._used: list[list[int]] = []
        self._within: list[list[int]] = []
        self._counted: list[list[int]] = []
        self.version = 0  # changes with every charge

    def own(self, row: int) -> Sequence[int]:
        """The amounts that the tenant itself holds."""
        self._grow()
        return self._own[row]

    def used(self, row: int) -> Sequence[int]:
        """The amounts that the tenant and its descendants hold."""
        self._grow()
        return self._used[row]

    def within(self, row: int) -> Sequence[int]:
        """The part of ``used`` that was awarded within quota."""
        self._grow()
        return self._within[row]

    def counted(self, row: int) -> Sequence[int]:
        """The amounts that count against the tenant's quota before its own waiting workloads do.

        All that it holds itself, borrowed or not (MAST), and of its descendants what was awarded
        within quota: what one of them borrowed is nobody else's loss. Not what was lent to it by a
        forecast: its own quota is kept free for its next workload (SIA).
        """
        self._grow()
        return self._counted[row]

    def averages(self, now_s: float) -> F64:
        """(T,) mean weighted GPUs in use of each tenant itself, without descendants."""
        return self._usage.averages(len(self.tenancy), now_s)

    def frozen(self) -> Holdings:
        """A copy of the sums, that stays as it is; it knows no averages."""
        copy = Holdings(self.tenancy, WindowAverage(1.0))
        for theirs, ours in (
            (copy._own, self._own),
            (copy._used, self._used),
            (copy._within, self._within),
            (copy._counted, self._counted),
        ):
            theirs.extend([*row] for row in ours)
        return copy

    def charge_for(self, row: int, plans: Sequence[JobPlan], *, lent: bool = False) -> Charge:
        """The charge of these plans."""
        shares = [share for plan in plans for share in plan.nodes.values()]
        gpus, cpus = sum(s.gpus for s in shares), sum(s.cpus for s in shares)
        mem_mib = sum(
            max(plan.whole_mem_mib, sum(share.mem_mib for share in plan.nodes.values()))
            for plan in plans
        )
        types: dict[str, int] = {}
        for plan in plans:
            for name, number in plan.gpu_types.items():
                types[name] = types.get(name, 0) + number
        return Charge(
            row=row,
            amounts=self.tenancy.resources.amounts(gpus, cpus, types),
            weighted_gpus=self.tenancy.resources.weighted_gpus(gpus, types, cpus, mem_mib),
            lent=lent,
        )

    def add(self, charge: Charge, within_quota: bool, at_s: float) -> None:
        """From now on the tenant holds this."""
        self._book(charge, within_quota, 1)
        self._usage.change(charge.row, charge.weighted_gpus, at_s)

    def release(self, charge: Charge, within_quota: bool, at_s: float) -> None:
        """Undo ``add``."""
        self._book(charge, within_quota, -1)
        self._usage.change(charge.row, -charge.weighted_gpus, at_s)

    # ---- snapshots ----

    def saved_usage(self, at_s: float) -> Iterator[SnapshotUsage]:
        """The usage that a snapshot must keep; the sums follow from the workloads."""
        return self._usage.saved([tenant.name for tenant in self.tenancy.tenants], at_s)

    def restore_usage(self, saved: SnapshotUsage) -> None:
        """Know what was ``saved_usage``."""
        self._usage.restore(saved, [self.tenancy.row(use.tenant) for use in saved.tenants])

    def restore(self, charge: Charge, within_quota: bool) -> None:
        """The tenant holds this, and its usage knows."""
        self._book(charge, within_quota, 1)

    def correct_usage(self, charges: Iterable[Charge]) -> None:
        """Make usage agree with these: all that is held. Weights may have been set anew."""
        weighted = [0.0] * len(self.tenancy)
        for charge in charges:
            weighted[charge.row] += charge.weighted_gpus
        for row, gpus in enumerate(weighted):
            self._usage.correct(row, gpus)

    def keeps_quota(self, charge: Charge) -> bool:
        """Tell whether what is awarded within quota stays so with this charge on top."""
        rows = self.tenancy.quota_rows(charge.row)
        return bool(rows) and all(
            fits(self.within(r), charge.amounts, self.tenancy.quotas[r]) for r in rows
        )

    def beyond_limit(self, row: int, amounts: Amounts) -> tuple[int, int] | None:
        """The first (tenant row, resource) whose limit would be passed; None when all hold."""
        for r in self.tenancy.limit_rows(row):
            limit = self.tenancy.limits[r]
            for k, (used, more) in enumerate(zip(self.used(r), amounts, strict=True)):
                if limit is not None and more and used + more > limit[k]:
                    return r, k
        return None

    def _book(self, charge: Charge, within_quota: bool, sign: int) -> None:
        self._grow()
        self.version += 1
        self._sum(self._own[charge.row], charge.amounts, sign)
        for row in self.tenancy.chain(charge.row):
            self._sum(self._used[row], charge.amounts, sign)
            if within_quota:
                self._sum(self._within[row], charge.amounts, sign)
            if within_quota or (row == charge.row and not charge.lent):
                self._sum(self._counted[row], charge.amounts, sign)

    @staticmethod
    def _sum(total: list[int], amounts: Amounts, sign: int) -> None:
        for k, amount in enumerate(amounts):
            total[k] += sign * amount

    def _grow(self) -> None:
        for sums in (self._own, self._used, self._within, self._counted):
            while len(sums) < len(self.tenancy):
                sums.append([0] * len(self.tenancy.resources))


def fits(used: Sequence[int], more: Sequence[int], bound: Sequence[float] | None) -> bool:
    """Tell whether ``more`` on top of ``used`` stays within ``bound``.

    In GPUs and CPUs even where ``more`` has none of them, as MAST has it; in GPUs of a type, which
    is beyond the paper, only where it has some.
    """
    if bound is None:
        return True
    if used[0] + more[0] > bound[0] or used[1] + more[1] > bound[1]:
        return False
    return all(u + m <= b or not m for u, m, b in zip(used[2:], more[2:], bound[2:], strict=True))
