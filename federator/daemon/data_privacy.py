"""Leaves names of data sets out of the queue for those who may not see them; they are counted.

What a job writes is shown to its user, and to those who see everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.daemon.data_calls import Sees, sees
from federator.model.data_use import DataUse
from federator.model.reason import Reason, ReasonCode, Refusal
from federator.model.workload import WorkloadId
from federator.sched.state.ledger import Ledger
from federator.wire.client_protocol import QueueReply, QueueRow
from federator.wire.replies import Reply


def without_hidden_names(
    reply: Reply, ledger: Ledger, caller: Caller, config: FederationConfig
) -> Reply:
    """An answer about the queue, as far as the caller may see the data sets that jobs name.

    The web page shows one answer to all of its users, so it gets the names that all may see.
    """
    caller = caller._replace(speaks=False)
    if not isinstance(reply, QueueReply) or caller.sees_all:
        return reply
    if not any(row.datasets or row.output for row in reply.rows):
        return reply
    rows = tuple(
        _without_output(row) if row.output and row.user != caller.user else row
        for row in reply.rows
    )
    may_see = sees(caller, config)
    rows = tuple(
        _row(row, _uses_of(ledger, row), may_see, ledger)
        if row.datasets and row.user != caller.user
        else row
        for row in rows
    )
    return replace(reply, rows=rows)


def _uses_of(ledger: Ledger, row: QueueRow) -> tuple[DataUse, ...]:
    entry = ledger.entries.get(WorkloadId(row.id))
    return () if entry is None else entry.workload.data


def _row(row: QueueRow, uses: Sequence[DataUse], may_see: Sees, ledger: Ledger) -> QueueRow:
    seen = [use.label for use in uses if _is_seen(use, may_see, ledger)]
    if len(seen) == len(uses):
        return row
    hidden = f"{len(uses) - len(seen)} not shown"
    return replace(_without_names(row, hidden), datasets=(*seen, hidden))


def _without_output(row: QueueRow) -> QueueRow:
    return replace(_without_names(row, "1 not shown"), output=None)


def _without_names(row: QueueRow, hidden: str) -> QueueRow:
    """The same without the words of its reasons that name data sets, or may."""
    return replace(
        row,
        reason=None if row.reason is None else _reason(row.reason, hidden),
        refusals={site: _refusal(refusal, hidden) for site, refusal in row.refusals.items()},
        setbacks={
            site: replace(setback, reason=_reason(setback.reason, hidden))
            for site, setback in row.setbacks.items()
        },
        regions=tuple(replace(each, bytes_to_move=0, staging_s=0.0) for each in row.regions),
    )


def _is_seen(use: DataUse, may_see: Sees, ledger: Ledger) -> bool:
    of = ledger.catalogue.find(use.name, use.version)
    return of is not None and of.owner == use.owner and may_see(of)


def _refusal(refusal: Refusal, hidden: str) -> Refusal:
    return replace(refusal, reasons=tuple(_reason(each, hidden) for each in refusal.reasons))


def _reason(reason: Reason, hidden: str) -> Reason:
    """``FedFiles`` names data sets by their paths."""
    if reason.code not in (ReasonCode.DATA, ReasonCode.FILES):
        return reason
    return replace(reason, detail=f"data sets, {hidden}")
