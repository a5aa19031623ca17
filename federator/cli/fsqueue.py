"""fsqueue: what is in the federation's queue, where it runs, and why the rest waits."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import click

from federator import __version__
from federator.cli.client import call
from federator.cli.preemption_words import preemption_lines
from federator.cli.queue_json import json_of
from federator.cli.rank_words import rank_text
from federator.cli.usage import run
from federator.cli.words import listed, printable, reason_text, refusal_text, unexpected
from federator.errors import FederatorError, InvalidRequest
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.reason import ReasonCode
from federator.sites.calls import ErrorReply, QueueCall, QueueReply, QueueRow

_S = WorkloadState
SHORT: Final[Mapping[str, str]] = MappingProxyType({
    _S.PENDING.value: "PD", _S.AWARDED.value: "CF", _S.LAUNCHING.value: "CF",
    _S.RUNNING.value: "R", _S.PREEMPTING.value: "CG",
    _S.CANCELLING.value: "CG", _S.COMPLETED.value: "CD",
    _S.FAILED.value: "F", _S.TIMEOUT.value: "TO", _S.CANCELLED.value: "CA",
})  # fmt: skip
"""Slurm's two-letter codes; CF: the site has it and it has not started."""

STATES: Final = frozenset(state.value for state in WorkloadState)
ENDED: Final = frozenset(state.value for state in TERMINAL)
_SAYS_WHY: Final = frozenset({_S.PREEMPTING.value, _S.TIMEOUT.value, _S.CANCELLED.value})
_PLAIN_NODE: Final = re.compile(r"[A-Za-z0-9._-]+")

_HEADER: Final = (
    f"{'JOBID':>14} {'NAME':<12} {'USER':<8} {'ACCOUNT':<8} {'ST':<2} {'TIME':>10} "
    f"{'NODES':>5} {'GPUS':>5} {'SITE':<8} {'SITE_JOBID':>10} NODELIST(REASON)"
)


@click.command(context_settings={"help_option_names": ["--help"]})
@click.argument("positional", nargs=-1, metavar="[JOBID]...")
@click.option("-j", "--jobs", help="Only these job ids (comma separated).")
@click.option("-u", "--user", "users", help="Only these users (comma separated).")
@click.option("--me", is_flag=True, help="Only my own.")
@click.option("-t", "--states", help="'all' shows jobs that have ended too; or a list of states.")
@click.option("-h", "--noheader", is_flag=True, help="No header line.")
@click.option("-i", "--iterate", type=click.FloatRange(min=0.1), metavar="SECONDS",
              help="Repeat for ever.")  # fmt: skip
@click.option(
    "--why",
    is_flag=True,
    help="For every job that waits its rank, and each site's reason; of all what evictions cost.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
@click.version_option(__version__, prog_name="fsqueue")
def fsqueue(  # noqa: PLR0913, PLR0917  # one parameter for each option of squeue
    positional: tuple[str, ...],
    jobs: str | None,
    users: str | None,
    me: bool,
    states: str | None,
    noheader: bool,
    iterate: float | None,
    why: bool,
    as_json: bool,
) -> None:
    """Show the jobs of the federation.

    Examples: fsqueue --me · fsqueue --why 4294967297 · fsqueue -t all --json
    """
    wanted_states = _states(states)
    question = QueueCall(
        ids=(*(id_ for word in positional for id_ in listed(word)), *listed(jobs)),
        users=(*listed(users), *((my_name(),) if me else ())),
        ended=not wanted_states.isdisjoint(ENDED),
        why=why,
        files=as_json,
    )
    while True:
        reply = _ask(question)
        rows = [r for r in reply.rows if r.state in wanted_states or r.state not in STATES]
        if reply.left_off:
            note = f"the {reply.left_off} oldest jobs are left off; ask for fewer (-j, -u)"
            print(f"fsqueue: {note}", file=sys.stderr)
        if as_json:
            print(json_of(rows, reply.now_s))
        else:
            print(render(rows, reply.now_s, header=not noheader, why=why))
        if iterate is None:
            return
        sys.stdout.flush()
        time.sleep(iterate)


def _ask(question: QueueCall) -> QueueReply:
    reply = call(question)
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    return reply


def my_name() -> str:
    import pwd  # noqa: PLC0415

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"#{os.getuid()}"


def _states(text: str | None) -> frozenset[str]:
    """The states asked for by name or code; the live ones when none are."""
    if text is None:
        return STATES - ENDED
    asked = {word.upper() for word in listed(text)}
    wanted = {state for state, code in SHORT.items() if asked & {state, code, "ALL"}}
    unknown = asked - STATES - set(SHORT.values()) - {"ALL"}
    if unknown or not asked:
        raise InvalidRequest(f"Invalid job state specified: {','.join(sorted(unknown)) or text!r}")
    return frozenset(wanted)


def render(rows: list[QueueRow], now_s: float, *, header: bool, why: bool) -> str:
    """The table as text, safe for a terminal; ``now_s`` is the daemon's clock."""
    lines = [_HEADER] if header else []
    for row in rows:
        lines.append(_line(row, now_s))
        if why:
            lines += [f"{'':>14}   {line}" for line in _why(row, now_s)]
    return "\n".join(map(printable, lines))


def shown_id(row: QueueRow) -> str:
    """As squeue writes it: ``ARRAY_INDEX`` for a task of an array."""
    return f"{row.array_id}_{row.array_index}" if row.array_id else str(row.id)


def _line(row: QueueRow, now_s: float) -> str:
    site_job = str(row.site_job_id or "")
    state = SHORT.get(row.state, "?")
    return (
        f"{shown_id(row):>14} {row.name[:12]:<12} {row.user[:8]:<8} {row.tenant[:8]:<8} "
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
    if row.state == _S.PENDING.value and row.reason is not None:
        return f"({row.reason.code.value})"
    if row.state == _S.FAILED.value:
        detail = row.reason.code.value if row.reason else row.site_state
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
    """Run the command; errors are one line and exit status 1, as squeue's."""
    try:
        run(fsqueue, "fsqueue", usage_status=1)
    except FederatorError as error:
        print(printable(f"fsqueue: error: {error}"), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
