"""Makes the observation of an operator's call, of whichever kind it is."""

from __future__ import annotations

from federator.config import FederationConfig
from federator.daemon.data_plan_calls import placement_asked
from federator.daemon.drain_calls import drain_asked
from federator.daemon.plan_calls import plan_asked
from federator.daemon.quota_calls import quota_asked
from federator.model.message import (
    DataPlacementAsked,
    DrainAsked,
    PlanAsked,
    QuotaAsked,
    ResumeAsked,
    WriteOffAsked,
)
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import DrainCall, PlanCall, ResumeCall, WriteOffCall
from federator.wire.data_rows import PlaceDataCall
from federator.wire.quota_messages import QuotaCall

OperatorCall = DrainCall | ResumeCall | WriteOffCall | PlanCall | PlaceDataCall | QuotaCall


def operator_asked(
    call: OperatorCall,
    user: str,
    client: int,
    config: FederationConfig,
    ledger: Ledger,
    now_s: float,
) -> DrainAsked | ResumeAsked | WriteOffAsked | PlanAsked | DataPlacementAsked | QuotaAsked:
    """As ``drain_asked``, ``plan_asked``, ``placement_asked`` and ``quota_asked``."""
    if isinstance(call, PlanCall):
        return plan_asked(call, client, ledger, now_s)
    if isinstance(call, PlaceDataCall):
        return placement_asked(call, client, config, ledger, now_s)
    if isinstance(call, QuotaCall):
        return quota_asked(call, user, client, ledger.tenancy, now_s)
    return drain_asked(call, user, client, config.sites, now_s)
