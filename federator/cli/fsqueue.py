"""fsqueue: what is in the federation's queue, where it runs, and why the rest waits."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from federator.cli import flags
from federator.cli.client import call
from federator.cli.flags import Flag, Given, Program, SlurmsOwn
from federator.cli.preemption_text import preemption_lines
from federator.cli.rank_text import rank_text
from federator.cli.text import listed, my_name, printable, reason_text, refusal_text, unexpected
from federator.errors import InvalidRequest
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.reason import ReasonCode
from federator.wire.client_protocol import ErrorReply, QueueCall, QueueReply, QueueRow

_S = WorkloadState
SHORT: Final[Mapping[str, str]] = MappingProxyType(
    {
        _S.PENDING.value: "PD",
        _S.HELD.value: "PD",
        _S.AWARDED.value: "CF",
        _S.LAUNCHING.value: "CF",
        _S.RUNNING.value: "R",
        _S.PREEMPTING.value: "CG",
        _S.CANCELLING.value: "CG",
        _S.COMPLETED.value: "CD",
        _S.FAILED.value: "F",
        _S.TIMEOUT.value: "TO",
        _S.CANCELLED.value: "CA",
    }
)
"""Slurm's two-letter codes; CF: the site has it and it has not started."""

STATES: Final = frozenset(state.value for state in WorkloadState)
ENDED: Final = frozenset(state.value for state in TERMINAL)
_WAITS: Final = frozenset({_S.PENDING.value, _S.HELD.value})
_SAYS_WHY: Final = frozenset({_S.PREEMPTING.value, _S.TIMEOUT.value, _S.CANCELLED.value})
_ID: Final = re.compile(r"[0-9]+(_[0-9]+)?(;.+)?", re.ASCII)
_BITSTR_LEN: Final = 64  # characters of a list of tasks; squeue's default
_PLAIN_NODE: Final = re.compile(r"[A-Za-z0-9._-]+")

_HEADER: Final = (
    f"{'NAME':<12} {'USER':<8} {'ACCOUNT':<8} {'ST':<2} {'TIME':>10} "
    f"{'NODES':>5} {'GPUS':>5} {'SITE':<8} {'SITE_JOBID':>10} NODELIST(REASON)"
)
_ID_WIDTH: Final = 14  # at least


PROGRAM: Final = Program(
    "fsqueue",
    "[JOBID]...",
    "Show the jobs of the federation.\n\n"
    "Examples: fsqueue --me · fsqueue --why 4294967297 · fsqueue -t all --json",
    (
        Flag("jobs", "j", "IDS", "Only these job ids (comma separated)."),
        Flag("user", "u", "NAMES", "Only these users (comma separated)."),
        Flag("me", about="Only my own."),
        Flag("array", "r", about="One row for each waiting task of an array."),
        Flag("states", "t", "STATES", "'all' shows jobs that have ended too; or a list of states."),
        Flag("noheader", "h", about="No header line."),
        Flag("iterate", "i", "SECONDS", "Repeat for ever."),
        Flag(
            "why",
            about="For every job that waits its rank, and each site's reason; of all what "
            "evictions cost.",
        ),
        Flag("json", about="Print JSON (docs/formats.md)."),
    ),
)


def fsqueue(given: Given) -> int:
    """Show the table, or the same as JSON; with --iterate again and again."""
    pause_s = _pause_s(given.get("iterate"))
    states = _states(given.get("states"))
    question = QueueCall(
        ids=_ids(given),
        users=(*listed(given.get("user")), *((my_name(),) if "me" in given else ())),
        ended=not states.isdisjoint(ENDED),
        why="why" in given,
        collapsed="array" not in given and "json" not in given,
        files="json" in given,
    )
    while True:
        _show(_ask(question), states, given)
        if pause_s is None:
            return 0
        sys.stdout.flush()
        time.sleep(pause_s)


def _ids(given: Given) -> tuple[str, ...]:
    """The job ids asked for: ``N``, ``N_INDEX``, and either with ``;FEDERATION`` behind it."""
    words = (*given.operands, *filter(None, [given.get("jobs")]))
    ids = tuple(id_ for word in words for id_ in listed(word))
    for id_ in ids:
        if not _ID.fullmatch(id_):
            raise InvalidRequest(f"Invalid job id: {id_}")
    return ids


def _pause_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        pause_s = float(text)
    except ValueError:
        pause_s = 0.0
    if not 0.1 <= pause_s < 1e9:
        raise InvalidRequest(f"--iterate={text}: expected seconds, at least 0.1")
    return pause_s


def _show(reply: QueueReply, states: frozenset[str], given: Given) -> None:
    rows = [r for r in reply.rows if r.state in states or r.state not in STATES]
    if reply.left_off:
        note = f"{reply.left_off} jobs are left off, of those that run the last; ask for fewer"
        print(f"fsqueue: {note} (-j, -u)", file=sys.stderr)
    if "json" in given:
        from federator.cli.queue_json import json_of  # noqa: PLC0415

        print(json_of(rows, reply.now_s))
    else:
        print(render(rows, reply.now_s, header="noheader" not in given, why="why" in given))


def _ask(question: QueueCall) -> QueueReply:
    reply = call(question)
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    if len(question.ids) == 1 and reply.unknown:
        raise SlurmsOwn("slurm_load_jobs error: Invalid job id specified")
    return reply


def _states(text: str | None) -> frozenset[str]:
    """The states asked for by name or code; the live ones when none are."""
    if text is None:
        return STATES - ENDED
    asked = {word.upper() for word in listed(text)}
    wanted = {state for state, code in SHORT.items() if asked & {state, code, "ALL"}}
    unknown = asked - STATES - set(SHORT.values()) - {"ALL"}
    if unknown or not asked:
        raise InvalidRequest(f"Invalid job state specified: {','.join(sorted(unknown)) or text!r}")
    return frozenset(wanted | _WAITS if _S.PENDING.value in wanted else wanted)


def render(rows: list[QueueRow], now_s: float, *, header: bool, why: bool) -> str:
    """The table as text, safe for a terminal; ``now_s`` is the daemon's clock."""
    ids = [shown_id(row) for row in rows]
    width = max(map(len, ids), default=0)
    width = max(width, _ID_WIDTH)
    lines = [f"{'JOBID':>{width}} {_HEADER}"] if header else []
    for id_, row in zip(ids, rows, strict=True):
        lines.append(f"{id_:>{width}} {_line(row, now_s)}")
        if why:
            lines += [f"{'':>{_ID_WIDTH}}   {line}" for line in _why(row, now_s)]
    return "\n".join(map(printable, lines))


def shown_id(row: QueueRow) -> str:
    """As squeue writes it: ``ARRAY_INDEX`` for a task of an array, ``ARRAY_[5-99%4]`` for many."""
    if row.array_tasks:
        return f"{row.array_id}_{_shortened(row.array_tasks)}"
    return f"{row.array_id}_{row.array_index}" if row.array_id else str(row.id)


def _shortened(tasks: str) -> str:
    """A long list of tasks as squeue shows it: its beginning, and three dots."""
    if len(tasks) <= _BITSTR_LEN:
        return tasks
    indices, mark, throttle = tasks.strip("[]").partition("%")
    kept = indices[:_BITSTR_LEN].rpartition(",")[0]
    return f"[{kept},...{mark}{throttle}]"


def _line(row: QueueRow, now_s: float) -> str:
    site_job = str(row.site_job_id or "")
    state = SHORT.get(row.state, "?")
    return (
        f"{row.name[:12]:<12} {row.user[:8]:<8} {row.tenant[:8]:<8} "
        f"{state:<2} {_elapsed(row, now_s):>10} {row.nodes or '-':>5} {row.gpus:>5} "
        f"{row.site:<8} {site_job:>10} {_where(row, now_s)}"
    )


def _elapsed(row: QueueRow, now_s: float) -> str:
    if not row.started_at_s:
        return "0:00"
    seconds = int(max(0.0, (row.ended_at_s or now_s) - row.started_at_s))
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    if days or hours:
        return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"


def _where(row: QueueRow, now_s: float) -> str:
    nodes = folded(row.node_names)
    if row.unknown_since_s:
        return f"{nodes} (unknown for {int(now_s - row.unknown_since_s)} s: site not heard)"
    if row.state in _WAITS and row.reason is not None:
        return f"({row.reason.code.value})"
    if row.state == _S.FAILED.value:
        detail = row.reason.code.value if row.reason else row.site_state
        if row.exit_code is None:
            return f"{nodes} ({detail})"
        ending = f"signal {row.signal}" if row.signal else f"exit {row.exit_code}"
        return f"{nodes} ({detail}: {ending})"
    if row.state in _SAYS_WHY and row.reason is not None:
        return f"{nodes} ({row.reason.code.value})"
    return nodes


def folded(names: Sequence[str]) -> str:
    """Write many names in Slurm's bracket notation; only plain ones, for sites make them up."""
    if len(names) <= 3 or not all(map(_PLAIN_NODE.fullmatch, names)):
        return ",".join(names)
    from ClusterShell.NodeSet import NodeSet  # noqa: PLC0415  # slow to import

    return str(NodeSet.fromlist(list(names)))


def _why(row: QueueRow, now_s: float) -> list[str]:
    lines: list[str] = []
    if row.state != _S.PENDING.value:
        lines += [reason_text(row.reason)] if row.reason is not None else []
    else:
        lines += [rank_text(row.rank, row.tenant)] if row.rank is not None else []
        lines += [f"{site or 'federation'}: {refusal_text(r)}" for site, r in row.refusals.items()]
        if not row.refusals and row.reason is not None:
            lines.append(reason_text(row.reason))
    lines += [
        f"setback at {site}: {reason_text(setback.reason)}"
        for site, setback in row.setbacks.items()
        if setback.reason.code is ReasonCode.NODE_FAILED and setback.reason != row.reason
    ]
    evictions = preemption_lines(row.preemption, now_s)
    return [*lines, *(f"{label.lower()}: {text}" for label, text in evictions)]


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, fsqueue)


if __name__ == "__main__":
    main()
