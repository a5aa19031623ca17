"""Follows the log, and writes into the history what it tells.

Rows and the place up to which they were read are written in one transaction: after a crash at any
moment it goes on from there, with nothing lost and nothing twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from sqlalchemy import Connection, Engine, delete, select

from federator.errors import HistoryError, NotCompacted, StaleState, StoreError
from federator.history import schema
from federator.history.database import chunks, put_rows, transaction
from federator.history.measured import to_measure
from federator.history.rows import HistoryBatch, touched
from federator.history.usage_sums import alone, counted_anew, owner_values
from federator.history.values import fitted
from federator.model.event import LogRecord, SnapshotDone
from federator.store.base import Store
from federator.store.chain import LogEnd, LogPlace
from federator.store.replaying import read_record
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow

RECORDS_AT_ONCE: Final = 1_000  # in one transaction
_IDS_AT_ONCE: Final = 500  # in one statement

log = structlog.get_logger()

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(AccountingRow).decode
_NO_ATTEMPT: Final = AccountingAttempt(attempt=0)


class _Kind(msgspec.Struct):
    """The kind of a record; the rest is not decoded."""

    type: str


_kind_of: Final = msgspec.msgpack.Decoder(_Kind).decode
_SNAPSHOT_DONE: Final = SnapshotDone.__struct_config__.tag


class _Place(NamedTuple):
    """Where in the log the rows are."""

    log: LogPlace
    within_snapshot: bool = False
    at_s: float = 0.0  # Unix time of the last record


class HistoryFollower:
    """Writes one log's history. Its methods may be called from any thread.

    Args:
        store: holds the log; read, never written, and not the object that the leader appends by.
        engine: of the database, see ``history.database``.
    """

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._lock = threading.Lock()
        self._place: _Place | None = None
        self._is_open = False
        self._like: AccountingRow | None = None
        self.went_back_at_s: dict[str, float] = {}
        """When each site last gave a job id that was no higher than one before, by what was taken;
        a history made anew takes what was long ago."""

    @property
    def at_s(self) -> float:
        """Unix time of the last record in the history; 0: not known, or within a snapshot."""
        place = self._place
        return 0.0 if place is None or place.within_snapshot else place.at_s

    def take(self) -> bool:
        """Write what comes next in the log; True when that was all there is.

        Raises:
            HistoryError: the database failed; the same call may succeed later.
            StoreError: the log, or a record, cannot be read.
        """
        with self._lock:
            try:
                return self._take()
            except HistoryError:
                self._is_open = False  # its tables may be gone, too
                raise

    def take_all(self, patience_s: float, clock: Callable[[], float]) -> None:
        """Write all that the log holds, before it is compacted.

        Args:
            patience_s: no more is begun after so long.
            clock: seconds.

        Raises:
            NotCompacted: the history could not be brought up to date.
        """
        until_s = clock() + patience_s
        if not self._lock.acquire(timeout=patience_s):
            raise NotCompacted("the history is behind the log: its database does not answer")
        try:
            up_to_date = self._take()
            while not up_to_date and clock() <= until_s:
                up_to_date = self._take()
        except (HistoryError, StoreError) as error:  # who writes the log must not end by it
            self._is_open = False
            raise NotCompacted(f"the history is behind the log: {error}") from error
        finally:
            self._lock.release()
        if not up_to_date:
            raise NotCompacted("the history is behind the log, and catches up")

    # ---- reading ----

    def _take(self) -> bool:
        if not self._is_open:
            self._open()
        try:
            found = self._read(self._place.log if self._place is not None else None)
        except StaleState:
            return self._begin_anew()
        if found:
            batch = self._folded(found)
            place, last = found[-1]
            if not self._write(batch, _Place(place, batch.within_snapshot, last.at_s)):
                return False
        return len(found) < RECORDS_AT_ONCE

    def _open(self) -> None:
        with transaction(self._engine) as connection:
            schema.prepare(connection)
            place = _stored_place(connection)
        if place is None and self._place is not None:
            log.warning(
                "history_begins_anew",
                detail="its database is empty, and had rows before: it takes what the log still "
                "has; workloads that the log has forgotten are missing",
            )
        self._place, self._is_open, self._like = _to_go_on_from(place), True, None

    def _read(self, place: LogPlace | None) -> list[tuple[LogPlace, LogRecord]]:
        with closing(self._store.read_on(place)) as rest:
            return [
                (at, read_record(at.end.next - 1, record))
                for at, record in islice(rest, RECORDS_AT_ONCE)
            ]

    def _begin_anew(self) -> bool:
        """The log is not what was read: it was compacted, or another one was put in its place."""
        with closing(self._store.read_on(None)) as rest:
            first = next((place.first for place, _ in rest), None)
        place = self._place
        if first is not None and place is not None and place.log.end.next == first:
            # All that the snapshot stands for has been read.
            behind = self._behind_snapshot()
            if behind is not None:
                self._write(HistoryBatch({}, like=self._like), place._replace(log=behind))
                return False
        log.warning(
            "history_resumes_from_snapshot",
            detail="the log was compacted before the history had all of it, or it is another one: "
            "attempts that were over by then may be missing, workloads are not",
        )
        self._place = None
        return False

    def _behind_snapshot(self) -> LogPlace | None:
        """The place behind the snapshot at the log's beginning; None: it begins with none."""
        with closing(self._store.read_on(None)) as rest:
            for place, record in rest:
                kind = _kind_of(record).type
                if kind == _SNAPSHOT_DONE:
                    return place
                if not kind.startswith("snapshot"):
                    return None
        return None

    # ---- writing ----

    def _folded(self, found: list[tuple[LogPlace, LogRecord]]) -> HistoryBatch:
        ids = {id_ for _, event in found for id_ in touched(event)}
        with transaction(self._engine) as connection:
            batch = HistoryBatch(_live_rows(connection, ids), like=self._like)
            batch.job_ids = _job_ids(connection) if self._place is not None else {}
        batch.within_snapshot = self._place is not None and self._place.within_snapshot
        batch.anew = self._place is None
        for _, event in found:
            batch.take(event)
        return batch

    def _write(self, batch: HistoryBatch, place: _Place) -> bool:
        """Put a batch and its place into the history; False: another one did so before."""
        with transaction(self._engine) as connection:
            alone(connection)  # before any row is locked, as everybody does
            stored = _stored_place(connection, locked=True)
            mine = self._place.log if self._place is not None else None
            if mine is not None and (stored is None or stored.log != mine):
                # Another daemon writes it, too, or did while this one was cut off.
                self._place, self._like = _to_go_on_from(stored), None
                return False
            _write_live(connection, batch)
            _write_ended(connection, batch)
            put_rows(connection, schema.unmeasured, to_measure(batch), replace=False)
            if batch.anew:  # what is told once more is no later than what is known
                connection.execute(schema.site_job_ids.delete())
            job_ids = ({"site": site, "job_id": last} for site, last in batch.job_ids.items())
            put_rows(connection, schema.site_job_ids, map(fitted, job_ids), replace=True)
            _write_place(connection, place)
        for at_s, site, job_id, last_id in batch.went_back:
            self.went_back_at_s[site] = max(at_s, self.went_back_at_s.get(site, 0.0))
            log.warning("site_job_ids_went_back", site=site, job_id=job_id, last_job_id=last_id)
        self._place, self._like = place, batch.like
        return True


def _to_go_on_from(stored: _Place | None) -> _Place | None:
    """None within a snapshot: what is needed for the rest of it was in another process's memory."""
    return None if stored is None or stored.within_snapshot else stored


def _stored_place(connection: Connection, *, locked: bool = False) -> _Place | None:
    query = select(schema.log_place)
    row = connection.execute(query.with_for_update() if locked else query).one_or_none()
    if row is None:
        return None
    place = LogPlace(row.first, LogEnd(row.next, row.crc))
    return _Place(place, bool(row.within_snapshot), row.at_s)


def _write_place(connection: Connection, place: _Place) -> None:
    values = {
        "first": place.log.first,
        "next": place.log.end.next,
        "crc": place.log.end.crc,
        "within_snapshot": place.within_snapshot,
        "at_s": place.at_s,
    }
    if connection.execute(schema.log_place.update().values(values)).rowcount == 0:
        connection.execute(schema.log_place.insert().values(one=1, **values))


def _live_rows(connection: Connection, ids: Iterable[int]) -> dict[int, AccountingRow]:
    table, found = schema.live, dict[int, AccountingRow]()
    for some in chunks(ids, _IDS_AT_ONCE):
        query = select(table.c.id, table.c.row).where(table.c.id.in_(some))
        found.update((id_, _decode(row)) for id_, row in connection.execute(query))
    return found


def _job_ids(connection: Connection) -> dict[str, int]:
    rows = connection.execute(select(schema.site_job_ids))
    return {row.site: row.job_id for row in rows}


def _write_live(connection: Connection, batch: HistoryBatch) -> None:
    table = schema.live
    if batch.anew:
        connection.execute(delete(table))
    for ids in chunks(batch.ended, _IDS_AT_ONCE):
        connection.execute(delete(table).where(table.c.id.in_(ids)))
    rows = ({"id": id_, "row": _encode(row)} for id_, row in batch.changed.items())
    put_rows(connection, table, rows, replace=True)


def _write_ended(connection: Connection, batch: HistoryBatch) -> None:
    table = schema.workloads
    put_rows(connection, table, map(workload_values, batch.ended.values()), replace=True)
    known = (row for id_, row in batch.known.items() if id_ not in batch.ended)
    put_rows(connection, table, map(workload_values, known), replace=False)
    with counted_anew(connection, {id_ for id_, _ in (*batch.attempts, *batch.known_attempts)}):
        for made, replace in ((batch.attempts, True), (batch.known_attempts, False)):
            rows = (
                _attempt_values(id_, attempt) | owner_values(batch, id_, attempt)
                for (id_, _), attempt in made.items()
            )
            put_rows(connection, schema.attempts, rows, replace=replace)


def workload_values(row: AccountingRow) -> dict[str, Any]:
    """The columns of a row of ``schema.workloads``."""
    values = msgspec.structs.asdict(row)
    last = values.pop("last") or _NO_ATTEMPT
    del values["earlier"], values["array_tasks"]
    return fitted(_plain(last) | values)


def _attempt_values(id_: int, made: AccountingAttempt) -> dict[str, Any]:
    return fitted({"id": id_, **_plain(made)})


def _plain(made: AccountingAttempt) -> dict[str, Any]:
    values = msgspec.structs.asdict(made)
    del values["use"], values["facts"]
    return values
