"""Reads and checks ``T.csv[.gz]`` and ``P.csv``; every error names its place."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final

from federator.errors import InvalidRequest
from federator.sim.trace import LeftOut, LeftOutReason, Trace, TracePool

MAX_TIME_S: Final = 253_402_300_799  # the last second of the year 9999, as a Unix time
MAX_COUNT: Final = 10**9
MAX_UNPACKED: Final = 2**32  # bytes of a gzipped file, unpacked
MAX_NODES: Final = 10**6  # of a pool
MAX_NODE_GPUS: Final = 10**6
_WHOLE: Final = re.compile(r"([0-9]{1,18})(?:\.0*)?")  # a table program may write 12.0
_SHOWN: Final = 60  # characters of a value that a message shows

_TRACE: Final = (
    "submit_s",
    "duration_s",
    "gpus",
    "num_nodes",
    "pool",
    "user",
    "cpus",
    "job_id",
)
_TRACE_NEEDED: Final = frozenset(_TRACE[:3]) | {"pool"}
_POOLS: Final = ("pool", "nodes", "gpus_per_node", "gpus", "gpu_type")
_POOLS_NEEDED: Final = frozenset(_POOLS[:3])


class TraceBuilder:
    """Collects the jobs of a file, and those that it has to leave out.

    Args:
        pools: that jobs may name.
    """

    def __init__(self, pools: Sequence[TracePool]) -> None:
        self.trace = Trace(pools=tuple(pools))
        self._index = {pool.name: k for k, pool in enumerate(pools)}
        self._users: dict[str, str] = {}  # one string for each user

    def knows(self, pool: str) -> bool:
        return pool in self._index

    def leave_out(
        self, reason: LeftOutReason, job_id: str, line: int, pool: str, gpus: int | None
    ) -> None:
        left_out = LeftOut(job_id=job_id, line=line, pool=pool, gpus=gpus or 0, reason=reason)
        self.trace.left_out.append(left_out)

    def add(  # noqa: PLR0913 - a job's columns
        self,
        *,
        job_id: str,
        line: int,
        submit_s: int | None,
        duration_s: int | None,
        gpus: int | None,
        num_nodes: int | None,
        cpus: int | None,
        pool: str,
        user: str,
    ) -> None:
        """Take a job; None and "" mean unknown."""
        trace = self.trace
        if not self.knows(pool):
            reason = LeftOutReason.OTHER_POOL if pool else LeftOutReason.NO_POOL
            return self.leave_out(reason, job_id, line, pool, gpus)
        if gpus is None:
            return self.leave_out(LeftOutReason.NO_GPUS, job_id, line, pool, gpus)
        if submit_s is None:
            return self.leave_out(LeftOutReason.NO_SUBMISSION, job_id, line, pool, gpus)
        if duration_s is None:
            return self.leave_out(LeftOutReason.NO_DURATION, job_id, line, pool, gpus)
        row = self._index[pool]
        own = trace.pools[row]
        if gpus > own.gpus:
            return self.leave_out(LeftOutReason.TOO_LARGE, job_id, line, pool, gpus)
        trace.job_id.append(job_id)
        trace.submit_s.append(submit_s)
        trace.duration_s.append(duration_s or 1)
        trace.gpus.append(gpus)
        trace.num_nodes.append(num_nodes or -(-gpus // own.gpus_per_node) or 1)
        trace.cpus.append(cpus or 0)
        trace.pool.append(row)
        trace.user.append(self._users.setdefault(user, user))
        return None


class CsvTable:
    """The rows of a CSV file, and where a mistake in them is.

    Args:
        path: of the file, plain or gzipped.
        columns: wanted; others are ignored.
        needed: those without which the file means nothing.
        delimiter: between fields; only with the comma may fields be quoted.
        text: of the file, if it has been read: a pipe can be read only once.

    Raises:
        InvalidRequest: one line with file, line, column, and what was expected.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        needed: frozenset[str],
        delimiter: str = ",",
        text: str | None = None,
    ) -> None:
        self.path = path
        lines = io.StringIO(read_text(path) if text is None else text, newline="")
        if delimiter == ",":
            self._reader = csv.reader(lines, strict=True)
        else:
            self._reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        header = [name.strip() for name in self._next() or ()]
        for name in columns:
            if header.count(name) > 1:
                raise self.mistake(name, "expected this column once")
        missing = [name for name in columns if name in needed and name not in header]
        if missing:
            found = f"found {shown(','.join(header))}" if header else "the file is empty"
            raise self.mistake(missing[0], f"expected a column of this name in the header, {found}")
        self._width = len(header)
        # A column that is not there is read from one that is always empty, behind all others.
        at = [header.index(name) if name in header else self._width for name in columns]
        self._pick = itemgetter(*at)

    @property
    def line(self) -> int:
        """Of the row read last."""
        return self._reader.line_num

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The wanted columns of each row; "" where the file has no such column."""
        width, pick = self._width, self._pick
        while (fields := self._next()) is not None:
            if not fields:
                continue
            if len(fields) != width:
                raise self.mistake("", f"expected {width} fields, found {len(fields)}")
            fields.append("")
            yield pick(fields)

    def whole(self, column: str, text: str, least: int, most: int) -> int | None:
        """A whole number, or None where there is none."""
        if len(text) < 16 and text.isascii() and text.isdigit():
            number = int(text)
        elif not text.strip():
            return None
        elif (match := _WHOLE.fullmatch(text.strip())) is not None:
            number = int(match[1])
        else:
            raise self._not_whole(column, text, least, most)
        if not least <= number <= most:
            raise self._not_whole(column, text, least, most)
        return number

    def _not_whole(self, column: str, text: str, least: int, most: int) -> InvalidRequest:
        unit = " of seconds" if column.endswith("_s") else ""
        return self.mistake(
            column, f"expected a whole number{unit} from {least} to {most}, found {shown(text)}"
        )

    def mistake(self, column: str, message: str) -> InvalidRequest:
        """An error about the row read last."""
        where = f"{self.path}:{max(1, self.line)}"
        return InvalidRequest(": ".join(part for part in (where, column, message) if part))

    def _next(self) -> list[str] | None:
        try:
            return next(self._reader, None)
        except csv.Error as error:
            raise self.mistake("", f"expected comma-separated values: {error}") from error


def read_text(path: Path) -> str:
    """A text file, plain or gzipped, in UTF-8 with or without a byte order mark."""
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = _unpacked(path, data)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidRequest(f"{path}:{line}: expected UTF-8, found other bytes") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidRequest(f"{path}: cannot be unpacked: {error}") from error
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else None
        raise InvalidRequest(f"{path}: cannot be read: {said or error}") from error


def _unpacked(path: Path, data: bytes) -> bytes:
    """In pieces, as a small file may unpack to more than there is memory."""
    found = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while piece := file.read(1 << 24):
            found += piece
            if len(found) > MAX_UNPACKED:
                raise InvalidRequest(f"{path}: unpacks to more than {MAX_UNPACKED} bytes")
    return bytes(found)


def shown(text: str) -> str:
    """A value as a message shows it: one line, safe for a terminal."""
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return repr(text)


def read_pools(path: Path) -> tuple[TracePool, ...]:
    """Read ``P.csv``.

    Raises:
        InvalidRequest: one line with file, line, column, and what was expected.
    """
    table = CsvTable(path, _POOLS, _POOLS_NEEDED)
    pools: dict[str, TracePool] = {}
    for row in table.rows():
        pool = _pool(table, row)
        if pool.name in pools:
            raise table.mistake("pool", f"expected each pool once, found {shown(pool.name)} again")
        pools[pool.name] = pool
    if not pools:
        raise table.mistake("pool", "expected at least one pool, found none")
    return tuple(pools.values())


def _pool(table: CsvTable, row: Sequence[str]) -> TracePool:
    name, nodes, gpus_per_node, gpus, gpu_type = row
    name, gpu_type = name.strip(), gpu_type.strip()
    if not name or not name.isprintable():
        raise table.mistake("pool", f"expected a name, found {shown(name) if name else 'nothing'}")
    count = table.whole("nodes", nodes, 1, MAX_NODES)
    size = table.whole("gpus_per_node", gpus_per_node, 1, MAX_NODE_GPUS)
    for column, number in (("nodes", count), ("gpus_per_node", size)):
        if number is None:
            raise table.mistake(column, "expected a whole number, found nothing")
    pool = TracePool(name=name, nodes=count or 0, gpus_per_node=size or 0, gpu_type=gpu_type)
    if pool.gpus > MAX_COUNT:
        raise table.mistake("nodes", f"expected at most {MAX_COUNT} GPUs in all")
    total = table.whole("gpus", gpus, 1, MAX_COUNT)
    if total not in (None, pool.gpus):
        raise table.mistake("gpus", f"expected nodes x gpus_per_node = {pool.gpus}, found {total}")
    return pool


def read_trace(path: Path, pools: Sequence[TracePool], text: str | None = None) -> Trace:
    """Read ``T.csv`` or ``T.csv.gz``; ``text``: of the file, if it has been read.

    Raises:
        InvalidRequest: one line with file, line, column, and what was expected.
    """
    table = CsvTable(path, _TRACE, _TRACE_NEEDED, text=text)
    builder = TraceBuilder(pools)
    whole = table.whole
    for count, row in enumerate(table.rows(), 1):
        submit_s, duration_s, gpus, num_nodes, pool, user, cpus, job_id = row
        if pool and not builder.knows(pool):
            pool = pool.strip()
            if pool and not builder.knows(pool):
                raise table.mistake("pool", f"expected one of {_names(pools)}, found {shown(pool)}")
        builder.add(
            job_id=job_id or str(count),
            line=table.line,
            submit_s=whole("submit_s", submit_s, 0, MAX_TIME_S),
            duration_s=whole("duration_s", duration_s, 0, MAX_TIME_S),
            gpus=whole("gpus", gpus, 0, MAX_COUNT),
            num_nodes=whole("num_nodes", num_nodes, 0, MAX_COUNT),
            cpus=whole("cpus", cpus, 0, MAX_COUNT),
            pool=pool,
            user=user,
        )
    return builder.trace


def _names(pools: Sequence[TracePool]) -> str:
    names = [pool.name for pool in pools]
    rest = f" … ({len(names)} pools)" if len(names) > 10 else ""
    return ", ".join(names[:10]) + rest
