"""Answers fsacct: what lives comes from the ledger, what has ended from the history.

The ledger is read at once, in the daemon's turn. The history is read by threads of its own, so that
nobody waits for its database but who asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from ClusterShell.NodeSet import NodeSet, NodeSetException

from federator.daemon.history_answers import NO_HISTORY, HistoryAnswers, check_names
from federator.daemon.queue_details import partitions_of
from federator.daemon.queue_selection import Group, array_tasks, collapsed, most_telling
from federator.daemon.views import find
from federator.errors import HistoryError, InvalidRequest
from federator.history.measured import FIRST_S
from federator.history.query import (
    HistoryPage,
    HistoryQuestion,
    JobName,
    is_called,
    is_wanted,
)
from federator.history.rows import glance_of, reason_words, row_of
from federator.history.service import JobHistory
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.reason import Reason
from federator.model.viewer import Viewer
from federator.model.workload import SiteName
from federator.sched.passes.spoken import Spoken
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.wire.accounting_rows import AccountingRow
from federator.wire.client_protocol import AccountingCall, AccountingReply, ErrorKind, ErrorReply
from federator.wire.replies import Reply

WhyWaits = Callable[[WorkloadRecord, Spoken], Reason | None]
MAX_ROWS: Final = 2_000  # of the history, in one answer; there are more answers
MAX_LIVE: Final = 5_000  # of the ledger
_LIVE: Final = tuple(state for state in WorkloadState if state not in TERMINAL)
_ENDED: Final = tuple(state for state in WorkloadState if state in TERMINAL)
_WAITS: Final = frozenset({WorkloadState.AWARDED, WorkloadState.LAUNCHING}) | (
    frozenset(_LIVE) - AT_SITE
)


class _Known(NamedTuple):
    """The ledger's part of an answer."""

    rows: list[AccountingRow]
    left_off: int  # rows that one answer does not hold


class AccountingDesk:
    """Takes the calls of fsacct.

    Args:
        federation: its name.
        ledger: read, never changed.
        history: of what has ended; None: none is kept.
        clock: Unix time.
        why_waits: the main reason of one that waits.

    Attributes:
        sites: those that are configured.
    """

    def __init__(
        self,
        federation: str,
        ledger: Ledger,
        history: JobHistory | None,
        clock: Callable[[], float],
        why_waits: WhyWaits,
    ) -> None:
        self._federation, self.sites = federation, frozenset[SiteName]()
        self._why_waits = why_waits
        self._ledger, self._history, self._clock = ledger, history, clock
        self._answers = HistoryAnswers()

    def take(
        self,
        call: AccountingCall,
        answer: Callable[[Reply], None],
        viewer: Viewer | None = None,
    ) -> None:
        """Take a call; the answer may come later.

        Args:
            call: what is asked.
            answer: takes the answer.
            viewer: who asks; None: one who sees all.

        Raises:
            InvalidRequest: it names what there cannot be.
        """
        question = self._question(call, viewer)
        if self._history is None:
            answer(self._reply(call, self._known(call, question, 0.0), HistoryPage([], None)))
            return
        known = self._known(call, question, self._history.at_s)
        made = self._with_history(self._history, call, question, known)
        self._answers.give(made, answer, call)

    def _question(self, call: AccountingCall, viewer: Viewer | None) -> HistoryQuestion:
        kinds = (call.ids, call.users, call.tenants, call.names, call.clusters, call.states)
        check_names((*kinds, call.partitions, call.nodes))
        _node_set(call.nodes)  # refuses what is no list of nodes
        return HistoryQuestion(
            start_s=call.start_s,
            end_s=call.end_s,
            jobs=tuple(map(_job_name, call.ids)),
            users=call.users,
            tenants=call.tenants,
            names=call.names,
            sites=self._sites_of(call.clusters),
            states=frozenset(call.states),
            viewer=viewer,
        )

    def _sites_of(self, clusters: tuple[str, ...]) -> tuple[str, ...]:
        """Those that a user calls clusters; none: the whole federation."""
        for name in clusters:
            if name not in (*self.sites, self._federation):
                known = ", ".join(sorted(self.sites))
                raise InvalidRequest(
                    f"'{name[:64]}' is no cluster: give a site ({known}), the federation "
                    f"({self._federation}), or all"
                )
        return () if self._federation in clusters else clusters

    # ---- the ledger ----

    def _known(self, call: AccountingCall, question: HistoryQuestion, since_s: float) -> _Known:
        """What lives, and what has ended since the history was written; on the first page only."""
        if call.after is not None:
            return _Known([], 0)
        nodes = _node_set(call.nodes)
        entries = [
            entry
            for entry in self._entries(call, since_s)
            if is_called(entry.workload.user, entry.workload.tenant, entry.workload.name, question)
            and is_wanted(glance_of(entry), question)
            and _is_there(entry, call, nodes)
        ]
        groups = collapsed(sorted(entries, key=lambda entry: entry.workload.id))
        kept = most_telling(groups, MAX_LIVE)
        rows = [_row_of(group, call.ids) for group in kept]
        if call.reasons:
            spoken = Spoken(codes=True)  # details may be of strangers
            for row, (entry, *_) in zip(rows, kept, strict=True):
                if entry.state not in TERMINAL and entry.state in _WAITS:
                    row.reason = reason_words(self._why_waits(entry, spoken))
        return _Known(rows, len(groups) - len(kept))

    def _entries(self, call: AccountingCall, since_s: float) -> Iterator[WorkloadRecord]:
        ledger = self._ledger
        if call.ids:
            for id_ in {id_ for name in call.ids for id_ in find(ledger, name)}:
                entry = ledger.entries[id_]
                if entry.state not in TERMINAL or entry.over_at_s >= since_s:
                    yield entry
            return
        yield from ledger.in_state(*_LIVE)
        for state in _ENDED:
            for id_ in reversed(ledger.by_state.ids(state)):
                entry = ledger.entries[id_]
                if entry.over_at_s < since_s:
                    break
                yield entry

    # ---- the history ----

    async def _with_history(
        self,
        history: JobHistory,
        call: AccountingCall,
        question: HistoryQuestion,
        known: _Known,
    ) -> Reply:
        try:
            page = await history.page(question, call.after, MAX_ROWS)
            reply = self._reply(call, known, page)
            if call.attempts:
                made = await history.attempts_of([row.id for row in reply.rows])
                for row in reply.rows:
                    latest = row.last.attempt if row.last is not None else 0
                    earlier = made.get(row.id, ())
                    row.earlier = tuple(a for a in earlier if a.attempt != latest)
            if call.use:
                await _add_use(history, reply.rows)
        except HistoryError as error:
            return self._without_history(call, question, error)
        return reply

    def _without_history(
        self, call: AccountingCall, question: HistoryQuestion, error: HistoryError
    ) -> Reply:
        """The ledger's part alone, which says that it is a part; of a later page nothing."""
        if call.after is not None:
            return ErrorReply(message=str(error), kind=ErrorKind.UNAVAILABLE)
        known = self._known(call, question, 0.0)
        reply = self._reply(call, known, HistoryPage([], None))
        note = f"{error}; what ended long ago is not shown"
        return msgspec.structs.replace(reply, note=note)

    def _reply(self, call: AccountingCall, known: _Known, page: HistoryPage) -> AccountingReply:
        ended = {row.id for row in page.rows}
        rows = [*page.rows, *(row for row in known.rows if row.id not in ended)]
        nodes = _node_set(call.nodes)
        return AccountingReply(
            rows=tuple(row for row in rows if _is_at(row, call, nodes)),
            now_s=self._clock(),
            federation=self._federation,
            after=page.after,
            left_off=known.left_off,
            note="" if self._history is not None else NO_HISTORY,
        )


async def _add_use(history: JobHistory, rows: Sequence[AccountingRow]) -> None:
    """Write into attempts what they used, as far as it is known, and whether more may come."""
    found = await history.use_of([row.id for row in rows])
    for row in rows:
        for attempt in (*row.earlier, *([] if row.last is None else [row.last])):
            known = found.get((row.id, attempt.attempt))
            if known is not None:
                attempt.use, attempt.use_due_at_s = known
            elif attempt.site_job_id and attempt.started_at_s and attempt.ended_at_s > history.at_s:
                attempt.use_due_at_s = attempt.ended_at_s + FIRST_S


def _job_name(text: str) -> JobName:
    head, mark, index = text.partition("_")
    numbers = (head, index) if mark else (head,)
    if not all(n.isascii() and n.isdecimal() and len(n) < 20 for n in numbers):
        raise InvalidRequest(f"Invalid job id specified: {text[:60]}")
    return JobName(int(head), int(index) if mark else None)


def _is_there(entry: WorkloadRecord, call: AccountingCall, nodes: NodeSet | None) -> bool:
    """As ``_is_at``, of what its row would say."""
    if call.partitions and not set(partitions_of(entry)) & set(call.partitions):
        return False
    planned = [name for plan in entry.plan for name in plan.nodes]
    return nodes is None or any(name in nodes for name in planned)


def _row_of(group: Group, ids: tuple[str, ...]) -> AccountingRow:
    """One row for a workload, or for the waiting tasks of an array."""
    row = row_of(group[0])
    if group[0].state not in TERMINAL:
        row.state = "PENDING" if group[0].state in _WAITS else "RUNNING"
        row.site_state = ""
    if len(group) > 1:
        row.array_tasks = array_tasks(group, ids)
    return row


def _node_set(names: tuple[str, ...]) -> NodeSet | None:
    """The nodes asked for; None: any.

    Raises:
        InvalidRequest: these are no names of nodes.
    """
    try:
        return NodeSet(",".join(names)) if names else None
    except NodeSetException as error:
        raise InvalidRequest(f"--nodelist: {error}") from error


def _is_at(row: AccountingRow, call: AccountingCall, nodes: NodeSet | None) -> bool:
    last = row.last
    partitions = (last.partition if last is not None else row.asked_partition).split(",")
    if call.partitions and not set(partitions) & set(call.partitions):
        return False
    if nodes is None:
        return True
    try:
        return last is not None and bool(NodeSet(last.node_list) & nodes)
    except NodeSetException:
        return False
