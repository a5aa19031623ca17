"""``federator reload``: the daemon reads its federation.yaml again."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from federator.cli.client import call
from federator.cli.text import counted, printable, refused, unexpected
from federator.errors import ConfigError
from federator.wire.client_protocol import ErrorKind, ErrorReply, ReloadCall, ReloadReply


@click.command()
@click.option("--dry-run", is_flag=True, help="Change nothing: show what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def reload(dry_run: bool, as_json: bool) -> None:
    """Have the daemon go by its federation.yaml as that is now: all of it, or nothing.

    Quotas, tenants, sites, policy and rules change at once; running jobs and the queue stay. A file
    with an error changes nothing. Only for operators: root, or the daemon's own user, on the
    daemon's host.

    Example: federator reload --dry-run
    """
    show(ReloadCall(dry_run=dry_run), as_json=as_json)


def show(asked: ReloadCall, *, as_json: bool) -> None:
    """Ask the daemon, and print its answer."""
    reply = call(asked)
    if isinstance(reply, ErrorReply):
        if reply.kind is ErrorKind.REQUEST:  # one line for each mistake in the file
            raise ConfigError("\n".join(map(printable, reply.message.splitlines())))
        raise refused(reply)
    if not isinstance(reply, ReloadReply):
        raise unexpected(reply)
    if as_json:
        values = msgspec.to_builtins(reply)
        values.pop("type", None)
        print(msgspec.json.encode({"schema": 1, **values}).decode())
        return
    for line in _lines(reply):
        print(printable(line))


def _lines(reply: ReloadReply) -> Iterator[str]:
    for each in reply.changes:
        yield f"{each.key}: {each.before or '(absent)'} -> {each.after or '(absent)'}"
    for warning in reply.warnings:
        yield f"warning: {warning}"
    number = counted(len(reply.changes), "change")
    if not reply.changes:
        yield f"{reply.path}: nothing has changed"
    elif reply.dry_run:
        yield f"{reply.path}: {number}; 'federator reload' makes the daemon go by it"
    else:
        yield f"{reply.path}: {number}; the daemon goes by it"
