"""The queue as a page: filtered, sorted, one page of it; the answer of ``/api/queue``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final

import msgspec

from federator.cli.text import reason_text
from federator.model.lifecycle import WorkloadState
from federator.model.viewer import Viewer
from federator.wire.client_protocol import QueueReply, QueueRow

PAGE: Final = 100
MOST_PAGE: Final = 1_000  # rows of one page
MOST_CHOICES: Final = 500  # names that a filter offers
MOST_WORD: Final = 256  # characters of a filter
STATES: Final = tuple(
    state.value
    for state in WorkloadState
    if state.value not in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")
)
SORTS: Final[Mapping[str, Callable[[QueueRow], object]]] = MappingProxyType(
    {
        "id": lambda row: row.id,
        "name": lambda row: (row.name, row.id),
        "user": lambda row: (row.user, row.id),
        "tenant": lambda row: (row.tenant, row.id),
        "state": lambda row: (row.state, row.id),
        "priority": lambda row: (row.priority, row.id),
        "gpus": lambda row: (row.gpus, row.id),
        "site": lambda row: (row.site, row.id),
        "submitted": lambda row: (row.submitted_at_s, row.id),
    }
)


class QueueFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What of the queue is asked for; "" asks for any."""

    user: str = ""
    tenant: str = ""
    state: str = ""
    site: str = ""
    name: str = ""  # a part of it, whatever its case
    sort: str = "id"
    down: bool = False  # the largest first
    page: int = 1
    per_page: int = PAGE

    def query(self) -> dict[str, str]:
        """As the query of an address; what is as by default is left out."""
        found = {n: getattr(self, n) for n in ("user", "tenant", "state", "site", "name")}
        found = {n: word for n, word in found.items() if word}
        if self.sort != "id" or self.down:
            found["sort"] = f"{'-' if self.down else ''}{self.sort}"
        if self.per_page != PAGE:
            found["per_page"] = str(self.per_page)
        return found


class QueueItem(msgspec.Struct, frozen=True, kw_only=True):
    """One workload, or the waiting tasks of an array in one row."""

    id: str  # as fsqueue writes it
    link: str  # the id of its own page
    name: str
    user: str
    tenant: str
    priority: int
    state: str
    tasks: int
    nodes: int
    gpus: int
    site: str
    submitted_at_s: float
    started_at_s: float
    time_limit_s: float | None  # null: none
    attempt: int
    reason_code: str  # "": none
    reason: str
    unknown_since_s: float  # its site has not been heard since; 0: it is heard


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the queue."""

    schema: int = 1
    now_s: float
    rows: tuple[QueueItem, ...]
    total: int  # that the filter leaves
    page: int
    pages: int
    states: dict[str, int]  # of all that the viewer sees, by state
    users: tuple[str, ...]  # that there are
    tenants: tuple[str, ...]
    sites: tuple[str, ...]
    left_off: int  # that the daemon's answer did not hold


def filter_of(query: Mapping[str, str]) -> QueueFilter:
    """Read the query of an address; what makes no sense is as by default."""
    words = {n: query.get(n, "")[:MOST_WORD] for n in ("user", "tenant", "state", "site", "name")}
    sort = query.get("sort", "id")
    name = sort.removeprefix("-")
    return QueueFilter(
        **words,
        sort=name if name in SORTS else "id",
        down=sort.startswith("-") and name in SORTS,
        page=_number(query.get("page", ""), 1, 1_000_000),
        per_page=_number(query.get("per_page", ""), PAGE, MOST_PAGE),
    )


def _number(text: str, default: int, most: int) -> int:
    sound = text.isascii() and text.isdecimal() and len(text) < 10
    return max(1, min(int(text), most)) if sound else default


def queue_view(reply: QueueReply, wanted: QueueFilter, viewer: Viewer | None) -> QueueView:
    """One page of what a viewer sees; ``viewer`` None: all."""
    seen = [row for row in reply.rows if viewer is None or viewer.sees(row.user, row.tenant)]
    found = sorted(_selected(seen, wanted), key=SORTS[wanted.sort], reverse=wanted.down)  # type: ignore[arg-type]
    pages = max(1, -(-len(found) // wanted.per_page))
    page = min(wanted.page, pages)
    shown = found[(page - 1) * wanted.per_page : page * wanted.per_page]
    states = Counter[str]()
    for row in seen:
        states[row.state] += row.tasks
    return QueueView(
        now_s=reply.now_s,
        rows=tuple(map(item_of, shown)),
        total=len(found),
        page=page,
        pages=pages,
        states={state: states[state] for state in STATES if states[state]},
        users=_names(row.user for row in seen),
        tenants=_names(row.tenant for row in seen),
        sites=_names(row.site for row in seen),
        left_off=reply.left_off if viewer is None else 0,
    )


def _names(words: Iterable[str]) -> tuple[str, ...]:
    """To choose from; what is no name of an account or the like is only in the rows."""
    sound = {word for word in words if word and word.isprintable() and len(word) <= MOST_WORD}
    return tuple(sorted(sound)[:MOST_CHOICES])


def _selected(rows: Iterable[QueueRow], wanted: QueueFilter) -> Iterable[QueueRow]:
    for field in ("user", "tenant", "state", "site"):
        word = getattr(wanted, field)
        if word:
            rows = [row for row in rows if getattr(row, field) == word]
    part = wanted.name.casefold()
    return [row for row in rows if part in row.name.casefold()] if part else rows


def item_of(row: QueueRow) -> QueueItem:
    """A row of the queue's table."""
    array = f"{row.array_id}_{row.array_tasks or row.array_index}"
    return QueueItem(
        id=array if row.array_id else str(row.id),
        link=link_of(row),
        name=row.name,
        user=row.user,
        tenant=row.tenant,
        priority=row.priority,
        state=row.state,
        tasks=row.tasks,
        nodes=row.nodes,
        gpus=row.gpus,
        site=row.site,
        submitted_at_s=row.submitted_at_s,
        started_at_s=row.started_at_s,
        time_limit_s=row.time_limit_s if row.time_limit_s < inf else None,
        attempt=row.attempt,
        reason_code="" if row.reason is None else row.reason.code.value,
        reason="" if row.reason is None else reason_text(row.reason),
        unknown_since_s=row.unknown_since_s,
    )


def link_of(row: QueueRow) -> str:
    """The id that a workload's own page goes by."""
    if not row.array_id:
        return str(row.id)
    return str(row.array_id) if row.tasks > 1 else f"{row.array_id}_{row.array_index}"
