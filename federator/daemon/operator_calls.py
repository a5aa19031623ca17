"""Makes the observation of an operator's call, of whichever kind it is."""

from __future__ import annotations

from collections.abc import Collection

from federator.daemon.drain_calls import drain_asked
from federator.daemon.plan_calls import plan_asked
from federator.model.message import DrainAsked, PlanAsked, ResumeAsked, WriteOffAsked
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import DrainCall, PlanCall, ResumeCall, WriteOffCall

OperatorCall = DrainCall | ResumeCall | WriteOffCall | PlanCall


def operator_asked(
    call: OperatorCall,
    user: str,
    client: int,
    sites: Collection[str],
    ledger: Ledger,
    now_s: float,
) -> DrainAsked | ResumeAsked | WriteOffAsked | PlanAsked:
    """As ``drain_asked`` and ``plan_asked``."""
    if isinstance(call, PlanCall):
        return plan_asked(call, client, ledger, now_s)
    return drain_asked(call, user, client, sites, now_s)
