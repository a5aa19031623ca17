"""The words that a shell may complete with: ids, names and sites, as the daemon knows them now.

``fsqueue --complete=KIND`` prints them, a line each, with what it is behind a tab. A shell waits
for it at each press of the key: it takes little time, and ends silently whatever goes wrong.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, MappingProxyType
from typing import Final

from federator.cli.client import call
from federator.cli.job_states import state_name
from federator.cli.text import is_utf8, my_name, printable
from federator.errors import FederatorError
from federator.wire.client_protocol import (
    NodesCall,
    NodesReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SiteRow,
    SitesCall,
    SitesReply,
    TenantsCall,
    TenantsReply,
)

LIMIT_S: Final = 1.0
MOST: Final = 500  # words of one kind: more help nobody


class _TooLate(Exception):  # not an error
    """The time is over."""


def say(kind: str) -> int:
    """Print the words of a kind; none where the daemon does not tell them in time."""
    before = signal.signal(signal.SIGALRM, _end)
    try:
        with contextlib.suppress(FederatorError, ValueError, _TooLate):
            signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
            for word, about in _first(WORDS[kind]()):
                print(f"{word}\t{about}" if about else word)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return 0


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise _TooLate


def _first(words: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each word once, at most ``MOST``; those that a shell would split or read are left out."""
    seen: set[str] = set()
    for word, about in words:
        if word and word not in seen and is_utf8(word) and not set(word) - _HARMLESS:
            seen.add(word)
            yield word, printable(about)
        if len(seen) == MOST:
            return


_HARMLESS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+@%/"
)


def _rows(*, own: bool = False, ended: bool = False) -> tuple[QueueRow, ...]:
    """Rows of the queue, the newest first."""
    users = (my_name(),) if own else ()
    reply = call(QueueCall(users=users, ended=ended, collapsed=True, brief=True), LIMIT_S)
    rows = reply.rows if isinstance(reply, QueueReply) else ()
    return tuple(sorted(rows, key=lambda row: -row.id))


def _ids(*, own: bool = False, ended: bool = False) -> Iterator[tuple[str, str]]:
    for row in _rows(own=own, ended=ended):
        own_id = f"{row.array_id}_{row.array_index}" if row.array_id and row.tasks == 1 else row.id
        yield str(own_id), f"{row.name} {state_name(row)}"


def _names() -> Iterator[tuple[str, str]]:
    return ((row.name, "") for row in _rows())


def _users() -> Iterator[tuple[str, str]]:
    return ((row.user, "") for row in _rows())


def _accounts() -> Iterator[tuple[str, str]]:
    reply = call(TenantsCall(), LIMIT_S)
    rows = reply.rows if isinstance(reply, TenantsReply) else ()
    return ((row.name, "") for row in rows)


def _site_rows() -> tuple[SiteRow, ...]:
    reply = call(SitesCall(), LIMIT_S)
    return reply.sites if isinstance(reply, SitesReply) else ()


def _sites() -> Iterator[tuple[str, str]]:
    return ((row.name, row.region) for row in _site_rows())


def _partitions() -> Iterator[tuple[str, str]]:
    return ((part.partition, row.name) for row in _site_rows() for part in row.partitions)


def _gpu_types() -> Iterator[tuple[str, str]]:
    return ((part.gpu_type, row.name) for row in _site_rows() for part in row.partitions)


def _nodes() -> Iterator[tuple[str, str]]:
    from federator.wire.node_rows import unpacked_nodes  # noqa: PLC0415  # slow to import

    reply = call(NodesCall(), LIMIT_S)
    sites = reply.sites if isinstance(reply, NodesReply) else ()
    known = [(row.site, unpacked_nodes(row.nodes)) for row in sites if row.nodes]
    return ((node.name, site) for site, has in known for node in has.nodes)


WORDS: Final[Mapping[str, Callable[[], Iterable[tuple[str, str]]]]] = MappingProxyType(
    {
        "jobs": _ids,
        "own-jobs": lambda: _ids(own=True),
        "ended-jobs": lambda: _ids(own=True, ended=True),
        "names": _names,
        "users": _users,
        "accounts": _accounts,
        "sites": _sites,
        "partitions": _partitions,
        "gpu-types": _gpu_types,
        "nodes": _nodes,
    }
)
"""By the name of the kind: each word, and what it is, which may be empty."""
