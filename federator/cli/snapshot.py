"""``federator snapshot``: shows what a site bids on right now."""

from __future__ import annotations

import click
import msgspec

from federator.cli.client import call
from federator.cli.text import counted, printable, refused, unexpected
from federator.model.site import Node, Snapshot
from federator.wire.agent_protocol import unpacked
from federator.wire.client_protocol import ErrorReply, SnapshotCall, SnapshotReply


@click.command()
@click.argument("site")
@click.option("--json", "as_json", is_flag=True, help="Print snapshot.json (docs/formats.md).")
def snapshot(site: str, as_json: bool) -> None:
    """The snapshot that SITE bids on now: nodes, switches, what runs and until when.

    With --json it is what 'federator bid --snapshot' reads. Only for operators: root, or the
    daemon's own user, on the daemon's host.

    Example: federator snapshot alpine --json > alpine.json
    """
    reply = call(SnapshotCall(site=site))
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, SnapshotReply):
        raise unexpected(reply)
    taken = unpacked(reply.snapshot)
    if as_json:
        print(msgspec.json.encode(taken).decode())
        return
    for line in _lines(taken):
        print(printable(line))


def _lines(taken: Snapshot) -> list[str]:
    usable = [node for node in taken.nodes if node.state.takes_jobs]
    racks = {node.switch for node in taken.nodes if node.switch}
    under = f" under {counted(len(racks), 'leaf switch', 'es')}" if racks else ""
    lines = [
        f"{taken.site}: {counted(len(taken.nodes), 'node')}{under}; {len(usable)} can take jobs",
        f"running jobs: {len(taken.running)} of the federation, {len(taken.local)} other",
    ]
    lines += [_of_type(kind, usable) for kind in sorted({n.gpu_type for n in usable if n.gpus})]
    cpus = sum(node.cpus for node in usable)
    return [*lines, f"CPUs: {cpus - sum(n.cpus_alloc for n in usable)} of {cpus} free"]


def _of_type(kind: str, nodes: list[Node]) -> str:
    mine = [node for node in nodes if node.gpus and node.gpu_type == kind]
    gpus = sum(node.gpus for node in mine)
    free = gpus - sum(node.gpus_alloc for node in mine)
    whole = sum(not node.gpus_alloc for node in mine)
    return f"{kind or 'untyped'} GPUs: {free} of {gpus} free; {whole} of {len(mine)} nodes whole"
