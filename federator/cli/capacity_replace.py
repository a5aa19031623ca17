"""``federator capacity replace``: a plan when a partition's node has been down for long enough."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from federator.cli.capacity_plan import Question, plan_lines, question, write_scripts
from federator.cli.json_file import read_json
from federator.cli.out_file import out_file
from federator.cli.text import counted, printable
from federator.errors import InvalidRequest
from federator.model.site import Node, NodeState

if TYPE_CHECKING:
    from federator.planner.capacity.assign import Assignment
    from federator.planner.capacity.fleet import CapacityNode

SEEN: Final = "down.json"
"""In the folder of the scripts: what earlier runs found."""
_FILE: Final = click.Path(path_type=Path)
_LIMIT_S: Final = 10.0
_MOST: Final = 100  # moves in a mail
_BY_SCRIPT: Final = "capacity plan: "  # so begins why a script drains a node


class NodesDown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes of planned partitions, as ``SITE:NODE``, that runs found to take no jobs.

    Also spares that the last plan moves there.
    """

    since_s: dict[str, float] = {}  # Unix time of the first of the runs in a row that did
    proposed: tuple[str, ...] = ()  # those for which the last plan was made
    refused: tuple[str, ...] = ()  # those for which there was none, as was told
    spares: tuple[str, ...] = ()  # that the last plan moves into partitions

    def after(self, down: Collection[str], now_s: float) -> NodesDown:
        """What is known when a run has found these."""
        since_s = {name: min(now_s, self.since_s.get(name, now_s)) for name in sorted(down)}
        proposed, refused = (
            tuple(name for name in names if name in since_s)
            for names in (self.proposed, self.refused)
        )
        return msgspec.structs.replace(self, since_s=since_s, proposed=proposed, refused=refused)

    def confirmed(self, now_s: float, after_h: float) -> tuple[str, ...]:
        """Those that have been down for so long."""
        return tuple(name for name, at_s in self.since_s.items() if now_s - at_s >= after_h * 3600)


@click.command()
@click.option("--wants", type=_FILE, required=True, help="Sizes and rules (docs/formats.md).")
@click.option("--config", type=_FILE, required=True, help="federation.yaml: asks the daemon.")
@click.option("--site", "sites", multiple=True, help="Only this site's nodes; may be repeated.")
@click.option("--out", type=_FILE, metavar="DIR", required=True, help="Where scripts are written.")
@click.option(
    "--after-h",
    type=click.FloatRange(0, 8760),
    default=4.0,
    help="Hours without a run that found it well, until a node counts as lost.",
)
@click.option("--mail", metavar="ADDRESS", help="Mail the plan, too.")
def replace(
    *,
    wants: Path,
    config: Path,
    sites: Sequence[str],
    out: Path,
    after_h: float,
    mail: str | None,
) -> None:
    """Plan anew once a node of a partition has taken no jobs for some hours; run it every hour.

    The plan is that of 'federator capacity plan'. Nothing is changed: it writes scripts to read.
    Each loss is mailed once, and its plan once there is one. Needs federator[planner].

    Example: federator capacity replace --config federation.yaml --wants wants.yaml --out plan
    """
    asked = question(wants, config, (), sites)
    now_s = time.time()
    seen = _read(out / SEEN)
    seen = seen.after(_down(asked, seen.spares), now_s)
    confirmed = seen.confirmed(now_s, after_h)
    _write(out, seen)
    print(printable(_state(seen, confirmed, now_s)))
    if set(confirmed) <= set(seen.proposed):
        return
    try:
        found = _plan(asked, confirmed)
    except InvalidRequest as error:  # no spare is left: that is to be known, too
        if not set(confirmed) <= set(seen.refused):
            _mail(config, mail, confirmed, [str(error)])
            _write(out, msgspec.structs.replace(seen, refused=confirmed))
        raise
    write_scripts(out, found, asked)
    _drop_others(out, found, asked)
    lines = plan_lines(found, _MOST, out)
    for line in lines:
        print(printable(line))
    _mail(config, mail, confirmed, lines)
    spares = tuple(_name(move.node) for move in found.moves if move.new and not move.old)
    _write(out, msgspec.structs.replace(seen, proposed=confirmed, refused=(), spares=spares))


def _name(node: CapacityNode) -> str:
    return f"{node.site}:{node.name}"


def _seen_nodes(asked: Question) -> Iterator[tuple[str, Node]]:
    for snapshot in asked.snapshots:
        for node in snapshot.nodes:
            yield f"{snapshot.site}:{node.name}", node


def _is_moving(node: Node) -> bool:
    """Whether a script drains it, to move it."""
    by_script = node.drain_reason.startswith(_BY_SCRIPT)
    return by_script and node.state is NodeState.DRAINED and not node.reserved


def _down(asked: Question, spares: Collection[str]) -> set[str]:
    """The nodes of planned partitions, and of these spares, that take no jobs.

    A reserved one is not lost, nor one that a script empties.
    """
    watched = {_name(node) for node in asked.nodes if node.partition} | {*spares}
    return {
        name
        for name, node in _seen_nodes(asked)
        if name in watched and not (node.state.takes_jobs or node.reserved or _is_moving(node))
    }


def _plan(asked: Question, lost: Collection[str]) -> Assignment:
    """A plan that replaces what is lost, and nothing else.

    A node of a partition that is suspect, or reserved, counts there as if it took jobs, but is not
    given away: a plan that would do so is made anew, with no such node of that partition counting.
    One that a script empties may be planned again.

    Raises:
        InvalidRequest: no plan meets every want.
    """
    moving = {name for name, node in _seen_nodes(asked) if _is_moving(node)}
    nodes = [changed(n, usable=True) if _name(n) in moving else n for n in asked.nodes]
    away = {
        _name(n): n.partition
        for n in nodes
        if n.partition and not n.usable and _name(n) not in lost
    }
    while True:
        found = asked.plan(
            [changed(n, usable=True, busy=True) if _name(n) in away else n for n in nodes],
            _LIMIT_S,
        )
        givers = {move.old for move in found.moves if _name(move.node) in away}
        if not givers:
            return found
        away = {name: partition for name, partition in away.items() if partition not in givers}


def _drop_others(out: Path, found: Assignment, asked: Question) -> None:
    """Remove scripts of an earlier plan, of sites where this one moves nothing."""
    for site in {*asked.members} - {move.node.site for move in found.moves}:
        path = out / f"{site}.sh"
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise InvalidRequest(f"--out: {path}: cannot be removed: {error.strerror}") from error


def _state(seen: NodesDown, confirmed: Collection[str], now_s: float) -> str:
    if not seen.since_s:
        return "every node of the partitions takes jobs"
    nodes = ", ".join(
        f"{name} for {(now_s - at_s) / 3600:.1f} h" for name, at_s in seen.since_s.items()
    )
    lost = f"{counted(len(confirmed), 'node')} of them lost" if confirmed else "none of them lost"
    return f"without jobs: {nodes}; {lost} so far"


def _mail(
    config: Path, address: str | None, confirmed: Collection[str], lines: Sequence[str]
) -> None:
    if address is None:
        return
    from federator.cli.mailed import mail_text  # noqa: PLC0415  # pydantic

    subject = f"{counted(len(confirmed), 'node')} of partitions without jobs"
    text = [f"Nodes that take no jobs: {', '.join(confirmed)}", "", *lines]
    mail_text(config, address, subject, "".join(f"{printable(line)}\n" for line in text))


def _read(path: Path) -> NodesDown:
    """What earlier runs left; nothing at first.

    Raises:
        InvalidRequest: it is there and cannot be read.
    """
    if not path.exists():
        return NodesDown()
    return read_json(path, NodesDown, {"": NodesDown})


def _write(out: Path, seen: NodesDown) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"--out: {out}: cannot be made: {error.strerror}") from error
    with out_file(out / SEEN, "--out", binary=True) as file:
        assert file is not None
        file.write(msgspec.json.encode(seen) + b"\n")
