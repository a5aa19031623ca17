"""Reads a log in the Standard Workload Format; its processors are taken for GPUs.

The format is that of the Parallel Workloads Archive: 18 numbers a line, -1 for unknown, comments
behind ``;``. Used are job number, submission, run time, processors (allocated, else requested),
user and partition. The pool is the one named as the partition; where there is only one pool, that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from federator.errors import InvalidRequest
from federator.sim.importers.trace_csv import MAX_TIME_S, TraceBuilder, read_text, shown
from federator.sim.trace import Trace, TracePool

_FIELDS = {
    "job": 0,
    "submit": 1,
    "run time": 3,
    "allocated processors": 4,
    "requested processors": 7,
    "user": 11,
    "partition": 15,
}


def read_swf(path: Path, pools: Sequence[TracePool], whole: str | None = None) -> Trace:
    """Read a log.

    Raises:
        InvalidRequest: one line with file, line, field, and what was expected.
    """
    builder = TraceBuilder(pools)
    for line, text in enumerate((read_text(path) if whole is None else whole).splitlines(), 1):
        words = text.partition(";")[0].split()
        if not words:
            continue
        if len(words) != 18:
            raise InvalidRequest(f"{path}:{line}: expected 18 fields, found {len(words)}")
        found = {name: _whole(path, line, name, words[k]) for name, k in _FIELDS.items()}
        processors = found["allocated processors"] or found["requested processors"]
        builder.add(
            job_id=words[0],
            line=line,
            submit_s=found["submit"],
            duration_s=found["run time"],
            gpus=processors,
            num_nodes=None,
            cpus=processors,
            pool=pools[0].name if len(pools) == 1 else words[15].removeprefix("-1"),
            user=words[11].removeprefix("-1"),
        )
    return builder.trace


def _whole(path: Path, line: int, name: str, text: str) -> int | None:
    """A whole number; None where it is negative, which means unknown."""
    try:
        number = float(text) if len(text) < 20 else float("nan")
    except ValueError:
        number = float("nan")
    if not number <= MAX_TIME_S or number % 1:
        raise InvalidRequest(f"{path}:{line}: {name}: expected a whole number, found {shown(text)}")
    return None if number < 0 else int(number)
