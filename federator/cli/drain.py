"""``federator drain``, ``cordon`` and ``resume``: a site, or nodes of it, takes no new work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import msgspec

from federator.cli.client import call
from federator.cli.node_lists import expanded
from federator.cli.slurm_time import parsed_time
from federator.cli.text import counted, printable, refused, unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import (
    DrainCall,
    DrainReply,
    ErrorReply,
    ResumeCall,
    WriteOffCall,
)

_Command = Callable[..., Any]


def _where(name: str) -> tuple[str, tuple[str, ...]]:
    """A site and its nodes: ``SITE`` or ``SITE:n[1-3],n7``."""
    site, mark, nodes = name.partition(":")
    if not site or (mark and not nodes):
        raise InvalidRequest(f"expected SITE or SITE:NODES, got {printable(name[:100])!r}")
    return site, tuple(sorted(expanded(nodes, "SITE:NODES"))) if mark else ()


def _ask(message: DrainCall | ResumeCall | WriteOffCall) -> DrainReply:
    reply = call(message)
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, DrainReply):
        raise unexpected(reply)
    return reply


def _show(reply: DrainReply, text: str, *, as_json: bool) -> None:
    if as_json:
        numbers = msgspec.to_builtins(reply)
        numbers.pop("type", None)
        print(msgspec.json.encode({"schema": 1, **numbers}).decode())
    else:
        print(printable(text))


def _waiting(reply: DrainReply) -> str:
    if not reply.withdrawn:
        return ""
    return f"; {counted(reply.withdrawn, 'workload')} not yet started there can start elsewhere"


def _reason(command: _Command) -> _Command:
    return click.option("--reason", default="", help="Shown to users and operators.")(command)


def _json(command: _Command) -> _Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


@click.command()
@click.argument("site")
@_reason
@click.option("--deadline", default=None, help="All have left by then: HH:MM, now+2hours ...")
@click.option("--migrate", is_flag=True, help="Running workloads save and go on elsewhere.")
@click.option("--revoked", is_flag=True, help="It is gone at the deadline, however soon that is.")
@_json
def drain(
    *,
    site: str,
    reason: str,
    deadline: str | None,
    migrate: bool,
    revoked: bool,
    as_json: bool,
) -> None:
    """Start nothing more at SITE, or at SITE:NODES; what runs there ends, or moves.

    Without options running workloads finish. With --migrate they save and go on elsewhere, as fast
    as the eviction budget allows. With --deadline those that are left are notified so early that
    they have saved and left by then; one that may not be requeued is cancelled. With --revoked, for
    capacity that its provider takes back, the deadline may be too near: then all are notified at
    once. Only for operators: root, or the daemon's own user, on the daemon's host.

    Example: federator drain alpine --reason 'new switch' --deadline now+4hours --migrate
    """
    name, nodes = _where(site)
    until_s = 0.0 if deadline is None else parsed_time(deadline, time.time(), to_come=True)
    reply = _ask(
        DrainCall(
            site=name,
            nodes=nodes,
            reason=reason,
            migrate=migrate,
            deadline_s=until_s,
            revoked=revoked,
        )
    )
    runs = counted(reply.running, "workload")
    text = f"{site} is drained: {runs} running{_waiting(reply)}"
    if reply.not_requeued and until_s:
        text += f"; {reply.not_requeued} may not be requeued, and end there before the deadline"
    _show(reply, text, as_json=as_json)


@click.command()
@click.argument("site")
@_reason
@_json
def cordon(site: str, reason: str, as_json: bool) -> None:
    """Start nothing more at SITE, or at SITE:NODES; what runs there runs on.

    Only for operators: root, or the daemon's own user, on the daemon's host.

    Example: federator cordon alpine:n[1-4] --reason 'slow links'
    """
    name, nodes = _where(site)
    reply = _ask(DrainCall(site=name, nodes=nodes, reason=reason, cordon=True))
    runs = counted(reply.running, "workload")
    _show(reply, f"{site} is cordoned: {runs} running{_waiting(reply)}", as_json=as_json)


@click.command()
@click.argument("site")
@_json
def resume(site: str, as_json: bool) -> None:
    """End a drain or a cordon of SITE, or of SITE:NODES; or the quarantine of slow nodes.

    Nodes that were drained by name, and slow ones, are resumed by name. Who was notified to leave
    leaves all the same. Only for operators: root, or the daemon's own user, on the daemon's host.

    Example: federator resume alpine
    """
    name, nodes = _where(site)
    reply = _ask(ResumeCall(site=name, nodes=nodes))
    _show(reply, f"{site} takes new work again", as_json=as_json)


@click.command("write-off")
@click.argument("site")
@_reason
@_json
def write_off(site: str, reason: str, as_json: bool) -> None:
    """Give SITE up, which is gone: its workloads start again elsewhere, as new attempts.

    They go on from their checkpoints where another site of the region can read these, else from the
    beginning; those with --no-requeue have failed. If the site comes back, its old attempts are
    ended before it gets work. Refused while the site is in contact. Only for operators: root, or
    the daemon's own user, on the daemon's host.

    Example: federator write-off alpine --reason 'fire in the hall'
    """
    reply = _ask(WriteOffCall(site=site, reason=reason))
    there = reply.running + reply.withdrawn
    text = f"{site} is written off: {counted(there, 'workload')} can start again elsewhere"
    if reply.not_requeued:
        text = (
            f"{site} is written off: {counted(there - reply.not_requeued, 'workload')} can start "
            f"again elsewhere, {reply.not_requeued} may not be requeued and have failed"
        )
    _show(reply, text, as_json=as_json)
