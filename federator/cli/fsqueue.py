"""fsqueue: what is in the federation's queue, where it runs, and why the rest waits."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click
import msgspec

from federator import __version__
from federator.cli.client import call
from federator.cli.words import printable, reason_text, refusal_text
from federator.errors import FederatorError, InvalidRequest
from federator.sites.protocol import ErrorReply, QueueCall, QueueReply, QueueRow

SHORT: Final[Mapping[str, str]] = MappingProxyType({
    "PENDING": "PD", "AWARDED": "CF", "LAUNCHING": "CF", "RUNNING": "R", "CANCELLING": "CG",
    "COMPLETED": "CD", "FAILED": "F", "TIMEOUT": "TO", "CANCELLED": "CA",
})  # fmt: skip
"""Slurm's two-letter codes; CF: the site has it and it has not started."""

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
@click.option("--why", is_flag=True, help="Each site's reason for every job that waits.")
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
        ids=(*positional, *_listed(jobs)),
        users=(*_listed(users), *((my_name(),) if me else ())),
        ended=wanted_states != {"live"},
    )
    while True:
        reply = _ask(question)
        rows = [r for r in reply.rows if _shown(r, wanted_states)]
        if as_json:
            answer = {"schema": 1, "now_s": reply.now_s, "jobs": rows}
            print(msgspec.json.encode(answer, enc_hook=str).decode())
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
    assert isinstance(reply, QueueReply)
    return reply


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part for part in (text or "").split(",") if part)


def my_name() -> str:
    import pwd  # noqa: PLC0415

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"#{os.getuid()}"


def _states(text: str | None) -> set[str]:
    if text is None:
        return {"live"}
    codes = {code: state for state, code in SHORT.items()} | {"CF": "LAUNCHING"}
    wanted = {codes.get(s.upper(), s.upper()) for s in _listed(text)}
    unknown = wanted - set(SHORT) - {"ALL"}
    if unknown or not wanted:
        raise InvalidRequest(f"Invalid job state specified: {','.join(sorted(unknown)) or text!r}")
    return wanted | ({"AWARDED"} if "LAUNCHING" in wanted else set())


def _shown(row: QueueRow, states: set[str]) -> bool:
    return bool(states & {"live", "ALL", row.state})


def render(rows: list[QueueRow], now_s: float, *, header: bool, why: bool) -> str:
    """The table as text; ``now_s`` is the daemon's clock."""
    lines = [_HEADER] if header else []
    for row in rows:
        lines.append(_line(row, now_s))
        if why:
            lines += _why(row)
    return "\n".join(lines)


def _line(row: QueueRow, now_s: float) -> str:
    job_id = f"{row.array_id}_{row.array_index}" if row.array_id else str(row.id)
    site_job = str(row.site_job_id or "")
    return (
        f"{job_id:>14} {printable(row.name)[:12]:<12} {row.user[:8]:<8} {row.tenant[:8]:<8} "
        f"{SHORT[row.state]:<2} {_elapsed(row, now_s):>10} {row.nodes or '-':>5} {row.gpus:>5} "
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
    nodes = ",".join(row.node_names)
    if len(row.node_names) > 3:
        from ClusterShell.NodeSet import NodeSet  # noqa: PLC0415  # slow to import

        nodes = str(NodeSet.fromlist(row.node_names))
    if row.unknown_since_s:
        return f"{nodes} (unknown for {int(now_s - row.unknown_since_s)} s: site not heard)"
    if row.state == "PENDING" and row.reason is not None:
        return f"({row.reason.code.value})"
    if row.state == "FAILED":
        detail = row.reason.code.value if row.reason else row.site_state
        ending = f"signal {row.signal}" if row.signal else f"exit {row.exit_code}"
        return f"{nodes} ({detail}: {ending})"
    return nodes


def _why(row: QueueRow) -> list[str]:
    if row.state != "PENDING":
        return [f"{'':>14}   {reason_text(row.reason)}"] if row.reason is not None else []
    lines = [f"{site or 'federation'}: {refusal_text(r)}" for site, r in row.refusals.items()]
    if not row.refusals and row.reason is not None:
        lines.append(reason_text(row.reason))
    return [f"{'':>14}   {line}" for line in lines]


def main() -> None:
    """Run the command; errors are one line and exit status 1, as squeue's."""
    try:
        fsqueue()
    except FederatorError as error:
        print(f"fsqueue: error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
