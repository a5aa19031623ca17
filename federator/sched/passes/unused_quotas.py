"""Lends quotas that are hardly used: nothing of them is held back for a forecast.

A quota of which little was used on each of the last days is lent fully once its tenant had notice
of it. What its tenant waits for within the quota has its room as before, and evictions and claims
go on as before: what is lent is the hold-back alone. As soon as the tenant holds and waits for as
much as counts as use, the hold-back returns.
"""

from __future__ import annotations

from typing import Final

from federator.model.event import QuotaLoan
from federator.model.lending import Lending
from federator.model.message import AnswerLoan, QuotaAsked, QuotasMeasured
from federator.model.quota_loan import OPEN_STEPS, LoanStep
from federator.model.tenant import Tenancy
from federator.model.workload import TenantName
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger

_GPUS: Final = 0  # of ``Tenancy.resources``
_DAY_S: Final = 86_400.0


def quotas_measured(turn: Transaction, seen: QuotasMeasured) -> None:
    """Give notice of quotas that were hardly used, and end what other days' use ends."""
    below_frac = turn.rules.unused.below_frac
    for name, used_frac in seen.unused.items():
        mode = _mode(turn.ledger.tenancy, name)
        if mode is not Lending.OFF and not _is_in_use(turn.ledger, name, below_frac):
            _notice(turn, name, mode, used_frac)
    for last in turn.ledger.loans.open():
        if last.tenant not in seen.unused:
            _step(turn, last.tenant, LoanStep.ENDED)


def _notice(turn: Transaction, name: TenantName, mode: Lending, used_frac: float) -> None:
    last = turn.ledger.loans.by_tenant.get(name)
    days, now_s = turn.rules.unused.days, turn.now_s
    if last is not None and last.step is LoanStep.KEPT:
        return  # while it lasts: its end is a step of its own
    if last is not None and last.step is LoanStep.USED and now_s < last.at_s + days * _DAY_S:
        return  # use that the days do not show yet
    if mode is Lending.ADVISORY:
        if last is None or last.step is not LoanStep.ADVISED:
            _step(turn, name, LoanStep.ADVISED, used_frac)
    elif last is None or last.step not in (LoanStep.NOTICED, LoanStep.LENT):
        _step(turn, name, LoanStep.NOTICED, used_frac, now_s + turn.rules.unused.notice_s)


def quota_asked(turn: Transaction, asked: QuotaAsked) -> None:
    """Keep a quota back, or judge it as others again; said twice it is as said once."""
    step = LoanStep.KEPT if asked.keep else LoanStep.RELEASED
    turn.record(
        QuotaLoan(
            at_s=turn.now_s, tenant=asked.tenant, step=step, until_s=asked.until_s, by=asked.by
        )
    )
    turn.commands.append(AnswerLoan(client=asked.client, tenant=asked.tenant, step=step))


def time_passed(turn: Transaction) -> bool:
    """Lend what had its notice, and return what is in use; whether more may be lent now."""
    more = False
    for last in [*turn.ledger.loans.by_tenant.values()]:
        if last.step is LoanStep.KEPT and 0 < last.until_s <= turn.now_s:
            _step(turn, last.tenant, LoanStep.RELEASED)
        elif last.step in OPEN_STEPS:
            more |= _go_on(turn, last)
    return more


def _go_on(turn: Transaction, last: QuotaLoan) -> bool:
    name, below_frac = last.tenant, turn.rules.unused.below_frac
    mode = _mode(turn.ledger.tenancy, name)
    if mode is Lending.OFF or (mode is Lending.ADVISORY) is not (last.step is LoanStep.ADVISED):
        _step(turn, name, LoanStep.ENDED)
    elif _is_in_use(turn.ledger, name, below_frac):
        _step(turn, name, LoanStep.USED)
    elif last.step is LoanStep.NOTICED and last.lends_at_s <= turn.now_s:
        _step(turn, name, LoanStep.LENT, last.used_frac)
        return True
    return False


def _step(
    turn: Transaction,
    name: TenantName,
    step: LoanStep,
    used_frac: float = 0.0,
    lends_at_s: float = 0.0,
) -> None:
    days = turn.rules.unused.days if step in OPEN_STEPS else 0
    turn.record(
        QuotaLoan(
            at_s=turn.now_s,
            tenant=name,
            step=step,
            used_frac=used_frac,
            days=days,
            lends_at_s=lends_at_s,
        )
    )


def _mode(tenancy: Tenancy, name: TenantName) -> Lending:
    """Of a tenant that the configuration knows, and guarantees GPUs."""
    if not tenancy.is_configured(name):
        return Lending.OFF
    row = tenancy.row(name)
    quota = tenancy.quotas[row]
    return tenancy.tenants[row].unused_quota if quota and quota[_GPUS] else Lending.OFF


def _is_in_use(ledger: Ledger, name: TenantName, below_frac: float) -> bool:
    """Tell whether a tenant holds, or waits within its quota for, so much of it at the moment."""
    tenancy, row = ledger.tenancy, ledger.tenancy.row(name)
    quota = tenancy.quotas[row]
    assert quota is not None
    wanted = float(ledger.holdings.counted(row)[_GPUS])
    for at in ledger.backlog.rows():
        if row in tenancy.chain(at):
            wanted += sum(
                lane.shape.request[_GPUS] * lane.within for lane in ledger.backlog.lanes(at)
            )
    return wanted >= below_frac * quota[_GPUS]
