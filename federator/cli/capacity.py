"""``federator capacity``: how large partitions should be, and which nodes should be theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from federator.cli.capacity_advise import advise
from federator.cli.capacity_plan import plan_lines, question, write_scripts
from federator.cli.capacity_replace import replace
from federator.cli.text import printable

if TYPE_CHECKING:
    from federator.planner.capacity.assign import Assignment
    from federator.planner.capacity.proof import PartitionHolding

_FILE: Final = click.Path(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def capacity() -> None:
    """Which nodes each partition should have, with buffers for racks that fail; and how many GPUs.

    Example: federator capacity plan --config federation.yaml --wants wants.yaml
    """


capacity.add_command(advise)
capacity.add_command(replace)


@capacity.command()
@click.option("--wants", type=_FILE, required=True, help="Sizes and rules (docs/formats.md).")
@click.option("--config", type=_FILE, help="federation.yaml: asks the daemon for its sites.")
@click.option(
    "--snapshot",
    "snapshots",
    type=_FILE,
    multiple=True,
    help="Offline: a site's snapshot.json; may be repeated.",
)
@click.option("--site", "sites", multiple=True, help="Only this site's nodes; may be repeated.")
@click.option("--out", type=_FILE, metavar="DIR", help="Write a script for each site: SITE.sh.")
@click.option(
    "--limit",
    type=click.FloatRange(0.1, 3600),
    default=10.0,
    help="Seconds of each search, up to five.",
)
@click.option("--most", type=click.IntRange(0), default=20, help="Moves to print.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
def plan(  # noqa: PLR0913 - one for each option
    *,
    wants: Path,
    config: Path | None,
    snapshots: Sequence[Path],
    sites: Sequence[str],
    out: Path | None,
    limit: float,
    most: int,
    as_json: bool,
) -> None:
    """Plan which nodes each partition has: few moves, and each keeps its size if a rack fails.

    Nothing is changed: --out writes scripts to read, which print what they would do until they are
    called with --apply. Needs federator[planner].

    Example: federator capacity plan --config federation.yaml --wants wants.yaml --out plan
    """
    asked = question(wants, config, snapshots, sites)
    found = asked.plan(asked.nodes, limit)
    if out is not None:
        write_scripts(out, found, asked)
    if as_json:
        print(msgspec.json.encode(_document(found)).decode())
        return
    for line in plan_lines(found, most, out):
        print(printable(line))


def _document(found: Assignment) -> dict[str, Any]:
    above = found.above_frac
    return {
        "schema": 1,
        "cost": found.cost,
        "bound": found.bound,
        "above_frac": None if above == float("inf") else above,
        "partitions": [
            {
                "name": after.want.name,
                "unit": after.want.unit,
                "size": after.want.size,
                "need": after.want.need,
                "before": _holding(before),
                "after": _holding(after),
            }
            for before, after in zip(found.before, found.after, strict=True)
        ],
        "moves": [
            {
                "site": move.node.site,
                "node": move.node.name,
                "old": move.old,
                "new": move.new,
                "busy": move.node.busy,
                "why": move.why,
            }
            for move in found.moves
        ],
    }


def _holding(holding: PartitionHolding) -> dict[str, Any]:
    return {
        "nodes": holding.nodes,
        "amount": holding.amount,
        "left": holding.left,
        "worst": holding.worst,
        "crowded": holding.crowded,
    }
