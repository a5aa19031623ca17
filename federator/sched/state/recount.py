"""Counts the ledger anew by other tenants: holdings, usage and the queue, as after a restart."""

from __future__ import annotations

from federator.model.lifecycle import AT_SITE
from federator.model.tenant import Tenancy
from federator.sched.state.backlog import Backlog
from federator.sched.state.holdings import Holdings
from federator.sched.state.ledger import Ledger
from federator.sched.state.usage import UsageAverage


def recount(ledger: Ledger, tenancy: Tenancy, usage: UsageAverage, now_s: float) -> None:
    """Have a ledger go on with other tenants; its workloads stay what they are.

    Args:
        ledger: changed in place; everybody who watches it hears of every workload.
        tenancy: none of its rows has been used.
        usage: an empty average, which goes on from the present one.
        now_s: Unix time.
    """
    before, version = ledger.tenancy, ledger.holdings.version
    saved = list(ledger.holdings.saved_usage(now_s))
    for tenant in before.tenants:
        tenancy.row(tenant.name)  # those that are not configured any more keep their order
    ledger.tenancy = tenancy
    ledger.holdings, ledger.backlog = Holdings(tenancy, usage), Backlog(tenancy)
    ledger.holdings.version = version + 1
    for each in saved:
        ledger.holdings.restore_usage(each)
    for entry in ledger.entries.values():
        ledger.count(entry)
    at_sites = ledger.in_state(*AT_SITE)
    ledger.holdings.correct_usage(e.charge for e in at_sites if e.charge is not None)
