"""Writes one row for each job: a CSV file, or a Parquet one if its name says so."""

from __future__ import annotations

import importlib.util
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Final

from federator.errors import InvalidRequest
from federator.sim.report.summary import COLUMNS, job_columns, write_jobs
from federator.sim.trace import Timetable, Trace

PARQUET: Final = ".parquet"
CSV: Final = ".csv"
_TEXT: Final = frozenset({"job_id", "pool", "site"})  # the other columns are whole numbers


def checked_format(path: Path | None) -> str:
    """``.parquet`` or ``.csv``, by the name; asked before the replay.

    Raises:
        InvalidRequest: it needs a library that is not installed.
    """
    if path is None or path.suffix != PARQUET:
        return CSV
    if importlib.util.find_spec("pyarrow") is None:
        raise InvalidRequest(
            f"--jobs-out: {path}: Parquet needs pyarrow, which is not installed here; install "
            "federator[parquet], or name a .csv file"
        )
    return PARQUET


def write_jobs_file(file: IO[bytes], file_format: str, trace: Trace, timetable: Timetable) -> None:
    """Write what became of each job, in a format of ``checked_format``."""
    if file_format == PARQUET:
        _write_parquet(trace, timetable, file)
        return
    text = TextIOWrapper(file, encoding="utf-8", newline="")
    write_jobs(trace, timetable, text)
    text.detach()  # flushes; the file stays open for whoever opened it


def _write_parquet(trace: Trace, timetable: Timetable, file: IO[bytes]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = [pa.string() if name in _TEXT else pa.int64() for name in COLUMNS]
    arrays = [
        pa.array(column, kind)
        for column, kind in zip(job_columns(trace, timetable), types, strict=True)
    ]
    fields = [pa.field(n, k, nullable=False) for n, k in zip(COLUMNS, types, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), file)
