"""Makes the rules for work over quota that hold in one pass."""

from __future__ import annotations

from collections.abc import Callable

from federator.model.lending import Lending
from federator.sched.queue.borrowing import FirmWork, borrowers_must_be_preemptible
from federator.sched.queue.guests import Guests
from federator.sched.queue.lending import Idle, LendingRoom
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules


def guest_rules(
    ledger: Ledger, rules: Rules, idle: Callable[[], Idle], *, by_quota: bool, now_s: float
) -> Guests:
    """The rules of now.

    Args:
        ledger: scanned for quota.
        rules: see ``Rules``.
        idle: the GPUs that nobody holds.
        by_quota: whether the policy ranks by quota.
        now_s: Unix time.
    """
    firm = borrowers_must_be_preemptible(ledger.tenancy, rules, by_quota=by_quota)
    return Guests(
        ledger,
        firm=FirmWork(ledger) if firm else None,
        room=lending_room(ledger, rules, idle, by_quota=by_quota, now_s=now_s),
        lending=rules.lending,
        evicts=rules.evicts,
    )


def lending_room(
    ledger: Ledger, rules: Rules, idle: Callable[[], Idle], *, by_quota: bool, now_s: float
) -> LendingRoom | None:
    """The GPUs that may be lent; None where nobody asks: lending is off, or there is no quota."""
    if rules.lending is Lending.OFF or not by_quota:
        return None
    if all(quota is None for quota in ledger.tenancy.quotas):
        return None
    plan = None if ledger.planned is None else ledger.planned.plan
    in_force = plan if plan is not None and plan.holds(now_s) else None
    return LendingRoom(ledger, in_force, idle, now_s)
