"""Leaves the ids of workloads that a user does not see out of what is told of those that are seen.

A workload's own record names others: the one that it was evicted for, those that its award evicts,
the one whose room is kept. A trial's bids and the status of the daemon name some, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.daemon.queue_selection import is_seen
from federator.model.reason import NAME_ANOTHER, Reason, Refusal
from federator.model.viewer import Privacy, Viewer
from federator.model.workload import WorkloadId
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.wire.accounting_rows import AccountingRow
from federator.wire.client_protocol import (
    AccountingReply,
    QueueReply,
    QueueRow,
    SessionReply,
    StatusReply,
)
from federator.wire.replies import Reply, SiteBid, TestOnlyReply
from federator.wire.status_rows import ClaimRow

_WORDS: Final = frozenset(code.value for code in NAME_ANOTHER)

Sees = Callable[[WorkloadRecord], bool]
"""Whether somebody sees a workload."""


def without_strangers(
    reply: Reply, ledger: Ledger, caller: Caller, config: FederationConfig
) -> Reply:
    """An answer, as far as the caller may see the workloads that it names.

    The web page shows one answer to all of its users: of a workload it gets what its user, or its
    tenant, may see, and it leaves out claims itself. What the ledger has forgotten counts as a
    stranger's.
    """
    viewer = caller.viewer_by(config)
    if config.privacy is Privacy.OPEN or (viewer is None and not caller.speaks):
        return reply

    def sees_for(row: QueueRow | AccountingRow) -> Sees:
        if viewer is not None:
            return lambda entry: is_seen(entry, viewer)
        if config.privacy is Privacy.OWN:
            return lambda entry: entry.workload.user == row.user
        return lambda entry: entry.workload.tenant == row.tenant

    match reply:
        case QueueReply():
            return replace(reply, rows=tuple(_queue(r, ledger, sees_for(r)) for r in reply.rows))
        case AccountingReply():
            for row in reply.rows:
                _take_out(row, ledger, sees_for(row))
        case TestOnlyReply() | SessionReply() | StatusReply():
            return _of_others(reply, ledger, viewer)
    return reply


def _of_others(
    reply: TestOnlyReply | SessionReply | StatusReply, ledger: Ledger, viewer: Viewer | None
) -> Reply:
    """An answer whose rows have no user, as far as ``viewer``, or the web page, may see."""

    def sees(entry: WorkloadRecord) -> bool:
        return viewer is not None and is_seen(entry, viewer)

    match reply:
        case TestOnlyReply():
            return replace(reply, bids=tuple(_bid(each, ledger, sees) for each in reply.bids))
        case SessionReply():
            refusals = {site: _refusal(each, ledger, sees) for site, each in reply.refusals.items()}
            reason = reply.reason and _reason(reply.reason, ledger, sees)
            return replace(reply, reason=reason, refusals=refusals)
        case StatusReply() if viewer is not None:
            return replace(reply, claims=tuple(_claim(c, ledger, sees) for c in reply.claims))
    return reply


def _queue(row: QueueRow, ledger: Ledger, sees: Sees) -> QueueRow:
    refusals = row.refusals
    if any(reason.code in NAME_ANOTHER for each in refusals.values() for reason in each.reasons):
        refusals = {site: _refusal(each, ledger, sees) for site, each in refusals.items()}
    reason = row.reason and _reason(row.reason, ledger, sees)
    past = row.preemption
    if past is not None and (past.evicted_for or past.victims):
        evicted_for = past.evicted_for if _is_known(past.evicted_for, ledger, sees) else 0
        victims = tuple(id_ for id_ in past.victims if _is_known(id_, ledger, sees))
        past = replace(
            past,
            evicted_for=evicted_for,
            evicted_for_hidden=evicted_for != past.evicted_for,
            victims=victims,
            victims_hidden=len(past.victims) - len(victims),
        )
    if (refusals, reason, past) == (row.refusals, row.reason, row.preemption):
        return row
    return replace(row, refusals=refusals, reason=reason, preemption=past)


def _bid(bid: SiteBid, ledger: Ledger, sees: Sees) -> SiteBid:
    return bid if bid.refusal is None else replace(bid, refusal=_refusal(bid.refusal, ledger, sees))


def _claim(claim: ClaimRow, ledger: Ledger, sees: Sees) -> ClaimRow:
    return claim if _is_known(claim.id, ledger, sees) else replace(claim, id=0)


def _refusal(refusal: Refusal, ledger: Ledger, sees: Sees) -> Refusal:
    return replace(refusal, reasons=tuple(_reason(r, ledger, sees) for r in refusal.reasons))


def _reason(reason: Reason, ledger: Ledger, sees: Sees) -> Reason:
    if reason.code not in NAME_ANOTHER or _may_be_shown(reason.detail, ledger, sees):
        return reason
    return replace(reason, detail="")


def _take_out(row: AccountingRow, ledger: Ledger, sees: Sees) -> None:
    """Of a row of the history, and of its attempts, whose reasons are words."""
    last = () if row.last is None else (row.last,)
    for each in (row, *row.earlier, *last):
        code, _, detail = each.reason.partition(" ")
        if code in _WORDS and not _may_be_shown(detail, ledger, sees):
            each.reason = code


def _may_be_shown(detail: str, ledger: Ledger, sees: Sees) -> bool:
    """Whether a detail names no workload, or one that is seen."""
    return not (detail.isascii() and detail.isdecimal()) or _is_known(int(detail), ledger, sees)


def _is_known(id_: int, ledger: Ledger, sees: Sees) -> bool:
    entry = ledger.entries.get(WorkloadId(id_))
    return entry is not None and sees(entry)
