"""``federator data report``: how near jobs are to their data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click
import msgspec

from federator.cli.client import call
from federator.cli.data_sets import json_option
from federator.cli.text import printable, unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ErrorReply
from federator.wire.data_rows import DataReportCall, DataReportReply, NearnessRow

AT_MOST_FRAC: Final = 0.001  # of starts that are not collocated: MAST publishes less for its own
_MANY: Final = 4  # so many regions or more are shown together


@click.command()
@json_option
def report(as_json: bool) -> None:
    """Show how near jobs are to their data: where they could run, and where they ran; operators.

    Jobs with data sets count that wait, run, or ended lately. Not collocated are those whose data
    was copied after they were submitted.

    Example: federator data report
    """
    reply = call(DataReportCall())
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, DataReportReply):
        raise unexpected(reply)
    if as_json:
        print(msgspec.json.encode(_document(reply)).decode())
        return
    for line in _lines(reply):
        print(printable(line))


def _lines(reply: DataReportReply) -> list[str]:
    there, staged = (reply.starts.get(word, NearnessRow()) for word in ("there", "staged"))
    lines = [
        f"Candidate regions of jobs that wait: {_spread(reply.candidates)}",
        f"Regions in which a job ran:          {_spread(reply.ran_in)}",
        f"Regions in which its like ran:       {_spread(reply.kinds_ran_in)}",
    ]
    frac = _apart_frac(reply)
    if frac is None:
        return [*lines, "Not collocated: no job with data sets has run"]
    hours = there.gpu_h + staged.gpu_h
    gpu_h = f", {100 * staged.gpu_h / hours:.3g} % of GPU hours" if hours else ""
    unit = "GPUs" if there.gpus + staged.gpus else "jobs"
    verdict = "within" if frac < AT_MOST_FRAC else "not within"
    return [
        *lines,
        f"Not collocated: {staged.workloads} of {there.workloads + staged.workloads} jobs, "
        f"{100 * frac:.3g} % of {unit}{gpu_h}; {verdict} {100 * AT_MOST_FRAC:g} %",
    ]


def _apart_frac(reply: DataReportReply) -> float | None:
    """The part of GPUs that started from copies made since; of jobs, where none has a GPU."""
    there, staged = (reply.starts.get(word, NearnessRow()) for word in ("there", "staged"))
    if there.gpus + staged.gpus:
        return staged.gpus / (there.gpus + staged.gpus)
    jobs = there.workloads + staged.workloads
    return staged.workloads / jobs if jobs else None


def _spread(counts: Mapping[int, int]) -> str:
    """``1: 30 (60 %), 4 or more: 20 (40 %)``."""
    total = sum(counts.values())
    if not total:
        return "no job"
    shown: dict[str, int] = {}
    for number, jobs in sorted(counts.items()):
        name = "none" if not number else str(number) if number < _MANY else f"{_MANY} or more"
        shown[name] = shown.get(name, 0) + jobs
    return ", ".join(f"{name}: {jobs} ({100 * jobs / total:.0f} %)" for name, jobs in shown.items())


def _document(reply: DataReportReply) -> dict[str, Any]:
    return {
        "schema": 1,
        "now_s": reply.now_s,
        "candidates": reply.candidates,
        "ran_in": reply.ran_in,
        "kinds_ran_in": reply.kinds_ran_in,
        "starts": {word: reply.starts.get(word, NearnessRow()) for word in ("there", "staged")},
        "not_collocated_frac": _apart_frac(reply),
    }
