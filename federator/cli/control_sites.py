"""Shows sites, reservations of their Slurm, and licences, as ``scontrol show`` does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final

from federator.cli.client import ask
from federator.cli.node_lists import folded
from federator.cli.queue_columns import time_text
from federator.cli.text import clock_text, printable, unexpected
from federator.errors import InvalidRequest
from federator.model.window import SiteWindow
from federator.wire.client_protocol import (
    ErrorReply,
    NodesCall,
    QueueCall,
    SiteRow,
    SitesCall,
    SitesReply,
    StatusCall,
)
from federator.wire.replies import Reply
from federator.wire.status_rows import LicenseRow

Record = tuple[tuple[tuple[str, str], ...], ...]
"""Lines of fields with their values."""


def asked(message: QueueCall | NodesCall | SitesCall | StatusCall) -> Reply:
    """The daemon's answer.

    Raises:
        InvalidRequest: it refuses.
    """
    reply = ask(message, lambda text: print(printable(f"fscontrol: {text}"), file=sys.stderr))
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    return reply


def known_time(at_s: float) -> str:
    return time_text(at_s) if 0 < at_s < inf else "Unknown"


def _sites() -> SitesReply:
    reply = asked(SitesCall())
    if not isinstance(reply, SitesReply):
        raise unexpected(reply)
    return reply


def reservations(names: Sequence[str]) -> tuple[list[Record], list[str]]:
    """Those called so, NAME or SITE:NAME, or all; who may use them only their site tells."""
    now_s = time.time()
    rows = [(row, window) for row in _sites().sites for window in row.windows]
    shown, found = [], set()
    for row, window in rows:
        called = {window.name, f"{row.name}:{window.name}"}
        if not names or called & set(names):
            shown.append(_reservation(row.name, window, now_s))
            found |= called
    missing = [name for name in names if name not in found]
    return shown, [f"Reservation {name} not found" for name in missing]


def _reservation(site: str, window: SiteWindow, now_s: float) -> Record:
    return (
        (
            ("ReservationName", window.name),
            ("Site", site),
            ("StartTime", time_text(window.starts_at_s)),
            ("EndTime", time_text(window.ends_at_s)),
            ("Duration", clock_text(window.ends_at_s - window.starts_at_s)),
        ),
        (
            ("Nodes", folded(window.nodes)),
            ("NodeCnt", str(len(window.nodes))),
            ("Flags", "MAINT" if window.maintenance else ""),
            ("State", "ACTIVE" if window.is_on(now_s) else "INACTIVE"),
        ),
    )


def sites(names: Sequence[str]) -> tuple[list[Record], list[str]]:
    found = [row for row in _sites().sites if not names or row.name in names]
    missing = set(names) - {row.name for row in found}
    return [_site(row) for row in found], [f"Site {name} not found" for name in sorted(missing)]


def _site(row: SiteRow) -> Record:
    nodes = sum(
        p.nodes_allocated + p.nodes_mixed + p.nodes_idle + p.nodes_drained + p.nodes_down
        for p in row.partitions
    )
    gpus = sum(p.gpus for p in row.partitions)
    return (
        (("SiteName", row.name), ("Region", row.region), ("State", "UP" if row.up else "DOWN")),
        (
            ("SlurmVersion", row.slurm_version or "Unknown"),
            ("DownSince", known_time(row.down_since_s)),
        ),
        (
            ("TotalNodes", str(nodes)),
            ("TotalGPUs", str(gpus)),
            ("AllocGPUs", str(sum(p.gpus_alloc for p in row.partitions))),
        ),
        (("Partitions", ",".join(dict.fromkeys(p.partition for p in row.partitions))),),
    )


def licenses(names: Sequence[str]) -> tuple[list[Record], list[str]]:
    """The pools that all sites share; those of one site its own scontrol shows."""
    rows = _sites().licenses
    missing = set(names) - {row.name for row in rows}
    return (
        [_license(row) for row in rows if not names or row.name in names],
        [f"License {name} not found" for name in sorted(missing)],
    )


def _license(row: LicenseRow) -> Record:
    """As scontrol has them; nothing of a pool is reserved."""
    free = max(0, row.total - row.used)
    numbers = (("Total", row.total), ("Used", row.used), ("Free", free), ("Reserved", 0))
    return (
        (("LicenseName", row.name),),
        (*((name, str(number)) for name, number in numbers), ("Remote", "no")),
    )


SITE_KINDS: Final[Mapping[str, Callable[[Sequence[str]], tuple[list[Record], list[str]]]]] = (
    MappingProxyType({"site": sites, "reservation": reservations, "licenses": licenses})
)
"""What is shown of sites; see ``control_show.KINDS``."""
