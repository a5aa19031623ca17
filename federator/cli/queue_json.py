"""Writes rows of the queue as JSON, with the times for people beside those for programs."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from federator.cli.start_text import start_json
from federator.wire.client_protocol import QueueRow


def json_of(rows: Sequence[QueueRow], now_s: float) -> str:
    """The answer of ``fsqueue --json``, in one line."""
    answer = {"schema": 1, "now_s": now_s, "jobs": [_with_times(row) for row in rows]}
    return msgspec.json.encode(answer, enc_hook=str).decode()


def slurm_json_of(rows: Sequence[QueueRow], now_s: float) -> str:
    """The rows as ``squeue --json`` of Slurm 24.11 has them, in one line."""
    from federator.cli.slurm_json import jobs_of  # noqa: PLC0415  # only where it is asked for

    return msgspec.json.encode(jobs_of(rows, now_s)).decode()


def iso(at_s: float) -> str:
    """A Unix time as ISO 8601 in UTC, to the second; "": it has not come yet."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s)) if at_s > 0 else ""


def _with_times(row: QueueRow) -> dict[str, object]:
    fields: dict[str, object] = msgspec.structs.asdict(row)
    fields["start"] = start_json(row.start)
    del fields["details"]  # the request as squeue's formats show it: see ``slurm_json_of``
    times = {
        "submitted_at": row.submitted_at_s,
        "started_at": row.started_at_s,
        "ended_at": row.ended_at_s,
    }
    return fields | {name: iso(at_s) for name, at_s in times.items()}
