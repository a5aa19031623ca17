"""``federator capacity replace``: a plan when a partition's node has been down for long enough."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from federator.cli.capacity_plan import Question, plan_lines, question, write_scripts
from federator.cli.json_file import read_json
from federator.cli.out_file import out_file
from federator.cli.text import counted, printable
from federator.errors import InvalidRequest

SEEN: Final = "down.json"
"""In the folder of the scripts: what earlier runs found."""
_FILE: Final = click.Path(path_type=Path)
_LIMIT_S: Final = 10.0
_MOST: Final = 100  # moves in a mail


class NodesDown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes of planned partitions, as ``SITE:NODE``, that runs found to take no jobs."""

    since_s: dict[str, float] = {}  # Unix time of the first of the runs in a row that did
    proposed: tuple[str, ...] = ()  # those for which the last plan was made

    def after(self, down: Collection[str], now_s: float) -> NodesDown:
        """What is known when a run has found these."""
        since_s = {name: min(now_s, self.since_s.get(name, now_s)) for name in sorted(down)}
        return NodesDown(since_s, tuple(name for name in self.proposed if name in since_s))

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
    Each loss is told once. Needs federator[planner].

    Example: federator capacity replace --config federation.yaml --wants wants.yaml --out plan
    """
    asked = question(wants, config, (), sites)
    now_s = time.time()
    seen = _read(out / SEEN).after(_down(asked), now_s)
    confirmed = seen.confirmed(now_s, after_h)
    _write(out, seen)
    print(printable(_state(seen, confirmed, now_s)))
    if set(confirmed) <= set(seen.proposed):
        return
    try:
        found = asked.plan(_LIMIT_S)
    except InvalidRequest as error:  # no spare is left: that is to be known, too
        _mail(config, mail, confirmed, [str(error)])
        _write(out, msgspec.structs.replace(seen, proposed=confirmed))
        raise
    write_scripts(out, found, asked)
    lines = plan_lines(found, _MOST, out)
    for line in lines:
        print(printable(line))
    _mail(config, mail, confirmed, lines)
    _write(out, msgspec.structs.replace(seen, proposed=confirmed))


def _down(asked: Question) -> set[str]:
    """The nodes of planned partitions that take no jobs; a reserved one is not lost."""
    planned = {(node.site, node.name) for node in asked.nodes if node.partition}
    return {
        f"{snapshot.site}:{node.name}"
        for snapshot in asked.snapshots
        for node in snapshot.nodes
        if not node.state.takes_jobs and not node.reserved and (snapshot.site, node.name) in planned
    }


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
