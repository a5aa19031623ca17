"""fseff: how well jobs used their CPUs, memory and GPUs, as seff shows it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import log
from typing import Final, NamedTuple

import msgspec

from federator.cli import flags
from federator.cli.accounting_columns import moment_text
from federator.cli.client import call
from federator.cli.efficiency import Efficiency, advice, efficiency_of
from federator.cli.flags import Flag, Given, Program
from federator.cli.text import clock_text, listed, printable, unexpected
from federator.errors import InvalidRequest, SiteUnavailable
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow
from federator.wire.client_protocol import AccountingCall, AccountingReply, ErrorKind, ErrorReply

PROGRAM: Final = Program(
    "fseff",
    "JOBID...",
    "Show how well jobs used their CPUs, memory and GPUs, and what to ask for next time.\n\n"
    "Examples: fseff 4294967297 · fseff --json 4294967297_3",
    (Flag("json", about="Print JSON (docs/formats.md)."),),
)
_UNITS: Final = ("K", "M", "G", "T", "P", "E")
ASKED_S: Final = 60.0  # a site that is there answers sooner


class _Missing(NamedTuple):
    """What to say instead of a figure."""

    cpu: str
    mem: str
    gpu: str


def fseff(given: Given) -> int:
    """Show each job that was asked for; 2 if there is none."""
    ids = tuple(id_.partition(";")[0] for word in given.operands for id_ in listed(word))
    if not ids:
        raise InvalidRequest("give the id of a job")
    reply = _ask(AccountingCall(ids=ids, attempts=True, use=True))
    rows = sorted(reply.rows, key=lambda row: row.id)
    if reply.note:
        print(printable(f"fseff: {reply.note}"), file=sys.stderr)
    if not rows:
        print("Job not found.", file=sys.stderr)
        return 2
    if "json" in given:
        jobs = [_as_json(row, reply.now_s) for row in rows]
        print(msgspec.json.encode({"schema": 1, "now_s": reply.now_s, "jobs": jobs}).decode())
        return 0
    print("\n\n".join(printed(row, reply.now_s) for row in rows))
    return 0


def _ask(question: AccountingCall) -> AccountingReply:
    reply = call(question)
    if isinstance(reply, ErrorReply):
        error = SiteUnavailable if reply.kind is ErrorKind.UNAVAILABLE else InvalidRequest
        raise error(reply.message)
    if not isinstance(reply, AccountingReply):
        raise unexpected(reply)
    return reply


def shown_attempt(row: AccountingRow) -> AccountingAttempt | None:
    """The last attempt that ran; None: none did."""
    made = (*row.earlier, *([] if row.last is None else [row.last]))
    return next((each for each in reversed(made) if each.started_at_s), None)


def printed(row: AccountingRow, now_s: float) -> str:
    """The text about one job, in seff's lines and order."""
    return printable_lines(_lines(row, now_s))


def printable_lines(lines: Iterator[str]) -> str:
    return "\n".join(map(printable, lines))


def _lines(row: AccountingRow, now_s: float) -> Iterator[str]:
    made = shown_attempt(row)
    yield f"Job ID: {row.id}"
    if row.array_id:
        yield f"Array Job ID: {row.array_id}_{row.array_index}"
    if made is not None:
        yield f"Cluster: {made.site}"
    yield f"User/Group: {row.user}/{row.tenant}"
    if row.state in ("PENDING", "RUNNING"):
        yield f"State: {row.state}"
    else:
        code = made.exit_code if made is not None else 0
        yield f"State: {row.state} (exit code {code})"
    if made is None:
        yield f"Efficiency not available for jobs in the {row.state} state."
        return
    found = efficiency_of(made, now_s)
    if made.attempt > 1:
        yield f"Attempt: {made.attempt}; fsacct -j {row.id} shows the others"
    yield from _figures(found, made, now_s)
    if row.state in ("PENDING", "RUNNING"):
        yield "WARNING: Efficiency statistics can only be obtained after the job has ended."
        return
    hints = list(advice(row, found))
    if hints:
        yield "Next time ask for:"
    yield from (f"  {hint}" for hint in hints)


def _missing(made: AccountingAttempt, now_s: float) -> _Missing:
    """Words for a figure that is not there: that it is to come, or why it never will."""
    site, due_at_s = made.site, made.use_due_at_s
    if not made.ended_at_s:
        return _Missing(*["not known before its end"] * 3)
    if due_at_s > now_s:
        return _Missing(*[f"not known yet: {site} is asked at {moment_text(due_at_s)}"] * 3)
    if due_at_s:
        since = f"since {moment_text(due_at_s)}" if now_s - due_at_s > ASKED_S else "now"
        return _Missing(*[f"not known yet: {site} is asked {since}"] * 3)
    if made.use is None:
        return _Missing(*[f"not known: {site} has not said"] * 3)
    accounts = f"not measured: {site} has no accounts of this job (sacct)"
    if made.use.alloc_cpus is not None:
        accounts = f"not measured by the Slurm of {site}, or the job was too short"
    gpus = f"not measured: no node of {site} reported it (node hooks), nor did its Slurm"
    return _Missing(accounts, accounts, gpus)


def _figures(found: Efficiency, made: AccountingAttempt, now_s: float) -> Iterator[str]:
    missing = _missing(made, now_s)
    if found.cpus == 1:
        yield "Cores: 1"
    else:
        yield f"Nodes: {found.nodes}"
        yield f"Cores per node: {found.cpus // found.nodes}"
    if found.cpu_s is None or found.cpu_frac is None:
        yield f"CPU Utilized: {missing.cpu}"
    else:
        walltime = clock_text(found.elapsed_s * found.cpus)
        yield f"CPU Utilized: {clock_text(round(found.cpu_s))}"
        yield f"CPU Efficiency: {found.cpu_frac:.2%} of {walltime} core-walltime"
    yield f"Job Wall-clock time: {clock_text(found.elapsed_s)}"
    yield from _memory(found, missing.mem)
    if found.gpus:
        yield from _gpus(found, missing.gpu)


def _memory(found: Efficiency, missing: str) -> Iterator[str]:
    if found.mem_mib is None:
        yield f"Memory Utilized: {missing}"
        return
    yield f"Memory Utilized: {size_text(found.mem_mib)}"
    if found.mem_frac is not None:
        whole = size_text(found.given_mem_mib)
        on_node = size_text(found.given_mem_mib / found.nodes)
        yield f"Memory Efficiency: {found.mem_frac:.2%} of {whole} ({on_node}/node)"


def _gpus(found: Efficiency, missing: str) -> Iterator[str]:
    yield f"GPUs: {found.gpus}"
    if found.gpu_frac is None:
        yield f"GPU Efficiency: {missing}"
    else:
        yield f"GPU Efficiency: {found.gpu_frac:.2%}"
    if found.gpu_mem_mib is not None:
        yield f"GPU Memory Utilized: {size_text(found.gpu_mem_mib)} (the most on one GPU)"


def size_text(mib: float) -> str:
    """``512.00 MB``, ``1.50 GB``, as seff writes memory."""
    kib = mib * 1024
    if kib < 1:
        return "0.00 MB"
    at = min(int(log(kib, 1024) + 1e-9), len(_UNITS) - 1)
    return f"{kib / 1024**at:.2f} {_UNITS[at]}B"


def _as_json(row: AccountingRow, now_s: float) -> dict[str, object]:
    made = shown_attempt(row)
    fields = {"id": row.id, "user": row.user, "tenant": row.tenant, "state": row.state}
    if made is None:
        nothing = {"attempt": 0, "site": "", "efficiency": None, "asked_at_s": 0.0, "next_time": []}
        return {**fields, **nothing}
    found = efficiency_of(made, now_s)
    ended = row.state not in ("PENDING", "RUNNING")
    return {
        **fields,
        "attempt": made.attempt,
        "site": made.site,
        "efficiency": found._asdict(),
        "asked_at_s": made.use_due_at_s,
        "next_time": list(advice(row, found)) if ended else [],
    }


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, fseff)


if __name__ == "__main__":
    main()
