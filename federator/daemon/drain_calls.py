"""Reads operators' calls that drain, cordon or resume a site, and words the answers."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from federator.errors import InvalidRequest
from federator.model.drain import DrainRefusal, DrainRefusalCode, LeaveDrill
from federator.model.event import SiteDrained, SiteWrittenOff
from federator.model.lifecycle import AT_SITE
from federator.model.message import (
    AnswerDrained,
    AnswerDrainRefused,
    DrainAsked,
    ResumeAsked,
    WriteOffAsked,
)
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.wire.client_protocol import (
    DrainCall,
    DrainReply,
    ErrorReply,
    ResumeCall,
    WriteOffCall,
)
from federator.wire.status_rows import DrainRow

MOST_NODES: Final = 65_536  # of one call
MOST_WORDS: Final = 500  # characters of a reason
MOST_AHEAD_S: Final = 366 * 86_400.0  # of a deadline
_NODES_NAMED: Final = 5  # in one message


def drain_asked(
    call: DrainCall | ResumeCall | WriteOffCall,
    user: str,
    client: int,
    sites: Collection[str],
    now_s: float,
) -> DrainAsked | ResumeAsked | WriteOffAsked:
    """Make the observation of an operator's call.

    Args:
        call: as it came.
        user: the operator.
        client: whom to answer.
        sites: those of federation.yaml.
        now_s: Unix time.

    Raises:
        InvalidRequest: there is no such site, or the call contradicts itself.
    """
    if call.site not in sites:
        known = ", ".join(sites)
        raise InvalidRequest(f"unknown site {call.site[:64]!r}; one of {known}")
    if not isinstance(call, ResumeCall) and len(call.reason) > MOST_WORDS:
        raise InvalidRequest(f"--reason has {len(call.reason)} characters, more than {MOST_WORDS}")
    if isinstance(call, WriteOffCall):
        return WriteOffAsked(client=client, site=SiteName(call.site), reason=call.reason, by=user)
    if len(call.nodes) > MOST_NODES:
        raise InvalidRequest(f"{len(call.nodes)} nodes in one request, at most {MOST_NODES}")
    site, nodes = SiteName(call.site), tuple(dict.fromkeys(call.nodes))
    if isinstance(call, ResumeCall):
        drill = None if call.drill is None else _checked(call.drill, nodes)
        return ResumeAsked(client=client, site=site, nodes=nodes, by=user, drill=drill)
    if call.cordon and (call.migrate or call.deadline_s):
        raise InvalidRequest("a cordon moves nobody; use drain with --migrate or --deadline")
    if call.deadline_s and not 0 < call.deadline_s <= now_s + MOST_AHEAD_S:
        raise InvalidRequest("--deadline: expected a time within a year from now")
    if call.revoked and not call.deadline_s:
        raise InvalidRequest("--revoked: expected a --deadline, by which it is gone")
    return DrainAsked(
        client=client,
        site=site,
        nodes=nodes,
        reason=call.reason,
        by=user,
        cordon=call.cordon,
        migrate=call.migrate,
        deadline_s=call.deadline_s,
        revoked=call.revoked,
    )


def _checked(drill: LeaveDrill, nodes: tuple[str, ...]) -> LeaveDrill:
    if nodes or not 0 <= drill.took_s <= MOST_AHEAD_S or drill.workloads < 0:
        raise InvalidRequest("a leave drill: expected one of a whole site, in seconds from 0 on")
    return replace(drill, wrong=drill.wrong[:MOST_WORDS])


def drain_reply(command: AnswerDrained | AnswerDrainRefused) -> DrainReply | ErrorReply:
    """The core's answer, for the wire."""
    if isinstance(command, AnswerDrainRefused):
        return ErrorReply(message=_refusal_text(command.site, command.refusal))
    return DrainReply(
        site=command.site,
        running=command.running,
        withdrawn=command.withdrawn,
        not_requeued=command.not_requeued,
    )


def _refusal_text(site: SiteName, refusal: DrainRefusal) -> str:
    names = ",".join(refusal.nodes[:_NODES_NAMED])
    names += f" and {more} more" if (more := len(refusal.nodes) - _NODES_NAMED) > 0 else ""
    what = f"{site}:{names}" if names else site
    since, earliest = _clock(refusal.since_s), _clock(refusal.earliest_s)
    done = "cordoned" if refusal.cordon else "drained"
    whose = f"since {since} by {refusal.by or 'an operator'}"
    whose += f": {refusal.reason}" if refusal.reason else ""
    texts = {
        DrainRefusalCode.UNKNOWN_SITE: f"unknown site {site!r}",
        DrainRefusalCode.UNKNOWN_NODES: f"site {site} has no node {names}",
        DrainRefusalCode.NOT_DRAINED: f"{what} is neither drained nor cordoned",
        DrainRefusalCode.TOO_SOON: (
            f"the deadline leaves no time to save and to leave; the earliest is {earliest}"
        ),
        DrainRefusalCode.DRAINED: (
            f"{what} is {done} already, {whose}; end that first with federator resume {what}"
        ),
        DrainRefusalCode.IN_CONTACT: (
            f"site {site} is in contact, since {since}: it is not gone; "
            f"to empty it: federator drain {site}"
        ),
        DrainRefusalCode.JUST_LEFT: (
            f"site {site} may be back at once; it can be written off from {earliest} on"
        ),
        DrainRefusalCode.WRITTEN_OFF: (
            f"site {site} is written off, {whose}; it takes work again when it is back and has "
            "ended what it had"
        ),
    }
    return texts[refusal.code]


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def drain_rows(federation: Federation, site: SiteName) -> tuple[DrainRow, ...]:
    """The drains of a site and of its nodes."""
    ledger = federation.ledger
    gone = ledger.drains.written_off.get(site)
    drains = tuple(ledger.drains.at(site))
    here = [e for e in ledger.in_state(*AT_SITE) if e.site == site] if drains else []
    on: dict[str, set[WorkloadId]] = {}
    for entry in here:
        for name in entry.node_names:
            on.setdefault(name, set()).add(entry.workload.id)
    rows = tuple(
        _row(drain, len(set().union(*(on.get(name, ()) for name in drain.nodes))))
        if drain.nodes
        else _row(drain, len(here))
        for drain in drains
    )
    return rows if gone is None else (_row_of_gone(gone), *rows)


def _row_of_gone(gone: SiteWrittenOff) -> DrainRow:
    return DrainRow(
        reason=gone.reason,
        by=gone.by,
        since_s=gone.at_s,
        left=len(gone.attempts),
        written_off=True,
    )


def _row(drain: SiteDrained, left: int) -> DrainRow:
    return DrainRow(
        nodes=drain.nodes,
        cordon=drain.cordon,
        reason=drain.reason,
        by=drain.by,
        since_s=drain.at_s,
        deadline_s=drain.deadline_s,
        migrate=drain.migrate,
        left=left,
        gangs=drain.gangs,
        until_s=drain.until_s,
    )
