"""Detects the kind of a file of jobs by how it begins, whatever its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from federator.sim.importers.trace_csv import read_text, read_trace
from federator.sim.importers.trace_sacct import read_sacct
from federator.sim.importers.trace_swf import read_swf
from federator.sim.trace import Trace, TracePool


def read_any_trace(path: Path, pools: Sequence[TracePool]) -> Trace:
    """Read CSV, ``sacct --parsable2``, ``sacct --json`` or SWF, plain or gzipped.

    Raises:
        InvalidRequest: one line with the file, the place in it, and what was expected.
    """
    text = read_text(path)  # once: it may be a pipe
    start = text[:65_536].lstrip()
    first = start.partition("\n")[0]
    if start.startswith("{") or ("|" in first and "JobID" in first):
        return read_sacct(path, pools, text)
    if start.startswith(";") or (len(first.split()) == 18 and "," not in first):
        return read_swf(path, pools, text)
    return read_trace(path, pools, text)
