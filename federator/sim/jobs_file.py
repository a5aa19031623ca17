"""Where does the fate of each job go? A CSV file, or a Parquet one if its name says so."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from federator.errors import InvalidRequest
from federator.sim.summary import COLUMNS, job_columns, write_jobs
from federator.sim.trace import Timetable, Trace

PARQUET: Final = ".parquet"
_TEXT: Final = frozenset({"job_id", "pool", "site"})  # the other columns are whole numbers

WriteJobs = Callable[[Trace, Timetable], None]


@contextmanager
def jobs_file(path: Path | None) -> Iterator[WriteJobs]:
    """Open before the replay, so that a mistake in the name costs no time.

    Args:
        path: of the file; None: nothing is written.

    Raises:
        InvalidRequest: it cannot be written, or needs a library that is not installed.
    """
    if path is None:
        yield lambda *_: None
        return
    parquet = path.suffix == PARQUET
    if parquet and importlib.util.find_spec("pyarrow") is None:
        raise InvalidRequest(
            f"--jobs-out: {path}: Parquet needs pyarrow, which is not installed here; install "
            "federator[parquet], or name a .csv file"
        )
    try:
        if parquet:
            with path.open("wb") as binary:
                yield lambda trace, timetable: _write_parquet(trace, timetable, binary)
        else:
            with path.open("w", encoding="utf-8", newline="") as text:
                yield lambda trace, timetable: write_jobs(trace, timetable, text)
    except OSError as error:
        raise InvalidRequest(f"--jobs-out: {path}: cannot be written: {error.strerror}") from error


def _write_parquet(trace: Trace, timetable: Timetable, file: BinaryIO) -> None:
    import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = [pa.string() if name in _TEXT else pa.int64() for name in COLUMNS]
    arrays = [
        pa.array(column, kind)
        for column, kind in zip(job_columns(trace, timetable), types, strict=True)
    ]
    fields = [pa.field(n, k, nullable=False) for n, k in zip(COLUMNS, types, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), file)
