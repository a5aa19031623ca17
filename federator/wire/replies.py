"""Every answer of the daemon to a command, those that hold bids and plans among them."""

from __future__ import annotations

from typing import Final

import msgspec

from federator.model.plan import Bid
from federator.model.reason import ReasonCode, Refusal
from federator.model.start_estimate import StartEstimate
from federator.model.tagged import Message
from federator.wire.audit_messages import AuditReply
from federator.wire.client_protocol import (
    AccountingReply,
    CancelReply,
    ControlReply,
    DrainReply,
    ErrorReply,
    NodesReply,
    PassesReply,
    PlanReply,
    QueueReply,
    ReloadReply,
    SessionReply,
    SignalReply,
    SitesReply,
    SnapshotReply,
    StatusReply,
    SubmitReply,
    TenantsReply,
    VerifyReply,
)
from federator.wire.data_rows import DataPlanReply, DataReply, DataReportReply, DataSetsReply
from federator.wire.holdings_rows import HoldingsReply
from federator.wire.quota_messages import LoanReply
from federator.wire.usage_messages import DoctorReply, UsageReply


class SiteBid(msgspec.Struct, frozen=True, kw_only=True):
    """One site's answer to ``--test-only``: exactly one of bid and refusal."""

    site: str
    bid: Bid | None = None
    refusal: Refusal | None = None


class TestOnlyReply(Message, frozen=True, kw_only=True, tag="tested"):
    bids: tuple[SiteBid, ...]
    winner: str  # "" when no site can start it now
    advised: tuple[str, ...] = ()  # sites in mode advisory, where it would start by their sbatch
    start: StartEstimate | None = None  # where there is no winner; None: of an older daemon

    @property
    def for_watched_tenant(self) -> bool:
        """Whether the federation takes nothing of its tenant, so that it would not wait either."""
        refusals = [each.refusal for each in self.bids if each.refusal is not None]
        return any(each.reasons[0].code is ReasonCode.TENANT_MODE for each in refusals)


Reply = (
    ErrorReply
    | SubmitReply
    | TestOnlyReply
    | QueueReply
    | CancelReply
    | ControlReply
    | SignalReply
    | SessionReply
    | SitesReply
    | NodesReply
    | TenantsReply
    | UsageReply
    | DoctorReply
    | SnapshotReply
    | VerifyReply
    | AccountingReply
    | DrainReply
    | PlanReply
    | LoanReply
    | ReloadReply
    | StatusReply
    | PassesReply
    | HoldingsReply
    | AuditReply
    | DataReply
    | DataSetsReply
    | DataPlanReply
    | DataReportReply
)

reply_decoder: Final[msgspec.msgpack.Decoder[Reply]] = msgspec.msgpack.Decoder(Reply)
