"""Reads from the audit how long the federation took to leave each site when that was last tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from federator.audit.acts import LEAVE_DRILL
from federator.audit.chain import AuditAct, opened
from federator.audit.file import files_of, raw_lines
from federator.errors import AuditError, DamagedAudit
from federator.model.drain import DatedDrill, LeaveDrill
from federator.model.unreadable import UNREADABLE
from federator.model.workload import SiteName

_MARK: Final = msgspec.json.encode({"act": LEAVE_DRILL})[1:-1]


def last_drills(folder: Path, since_s: float) -> dict[SiteName, DatedDrill]:
    """The last drill of each site since a Unix time; a line that was changed tells of none.

    Raises:
        AuditError: the audit cannot be read.
    """
    found: dict[SiteName, DatedDrill] = {}
    try:
        for path in reversed(files_of(folder) if folder.is_dir() else []):
            found = dict(_drills(path, since_s)) | found
            if _begins_before(path, since_s):
                break
    except OSError as error:
        raise AuditError(f"{folder}: {error.strerror}") from error
    return found


def _drills(path: Path, since_s: float) -> Iterator[tuple[SiteName, DatedDrill]]:
    for raw in raw_lines([path]):
        act = _act(raw) if _MARK in raw else None
        if act is None or act.act != LEAVE_DRILL or act.at_s < since_s:
            continue
        try:
            drill = msgspec.convert(act.effect, LeaveDrill)
        except UNREADABLE:
            continue
        yield SiteName(act.on), DatedDrill(at_s=act.at_s, drill=drill)


def _begins_before(path: Path, since_s: float) -> bool:
    """Whether the files before this one are older still."""
    first = next((act for raw in raw_lines([path]) if (act := _act(raw)) is not None), None)
    return first is not None and first.at_s < since_s


def _act(raw: bytes) -> AuditAct | None:
    """What a line tells; None: it is not as it was written, or is being written."""
    try:
        return opened(raw)[0].done
    except DamagedAudit:
        return None
