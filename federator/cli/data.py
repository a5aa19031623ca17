"""``federator data``: where data sets are, and where they should be."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from federator.cli.data_questions import QUESTIONS
from federator.cli.data_report import report
from federator.cli.data_scan import scan
from federator.cli.data_sets import CHANGES
from federator.cli.data_verify import verify
from federator.cli.text import printable
from federator.errors import InvalidRequest

if TYPE_CHECKING:
    from federator.planner.tetris_plan import DataPlan
    from federator.planner.warehouse import Warehouse


KICKS = 2000


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def data() -> None:
    """The catalogue of data sets, and plans of where they should be.

    Example: federator data list
    """


for _command in (*CHANGES, *QUESTIONS, scan, verify, report):
    data.add_command(_command)


@data.command()
@click.option(
    "--warehouse",
    type=click.Path(path_type=Path),
    default=None,
    help="Plan offline, from regions, tables and jobs as JSON (docs/formats.md).",
)
@click.option(
    "--quota-gib", type=click.FloatRange(0, inf), default=inf, help="To move today; by default all."
)
@click.option(
    "--paper", is_flag=True, help="Passes A and B of MAST alone, without moves of several tables."
)
@click.option(
    "--kicks",
    type=click.IntRange(0, 10**7),
    default=KICKS,
    show_default=True,
    help="Trials beyond hill climbing; each takes about a millisecond.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Of the trials; the same seed gives the same plan.",
)
@click.option("--no-bound", is_flag=True, help="No certificate; it needs federator[planner].")
@click.option(
    "--most",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Moves and copies to print, of each.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
def plan(  # noqa: PLR0913, PLR0917 - one for each option
    warehouse: Path | None,
    quota_gib: float,
    paper: bool,
    kicks: int,
    seed: int,
    no_bound: bool,
    most: int,
    as_json: bool,
) -> None:
    """Show where data sets should be, each move with its reason.

    Without a file: the plan that the daemon has of the catalogue, for operators. With --warehouse
    the homes of its tables and further copies are planned, offline: nothing is moved, and the same
    file and options give the same plan. The other options but --most and --json need it.

    Example: federator data plan
    """
    if warehouse is None:
        if quota_gib < inf or paper or no_bound or kicks != KICKS or seed:
            raise InvalidRequest("these options need --warehouse")
        from federator.cli.data_live_plan import show_plan  # noqa: PLC0415

        show_plan(most, as_json=as_json)
        return
    from federator.cli.warehouse_file import read_warehouse  # noqa: PLC0415  # numpy
    from federator.planner.tetris_plan import PlanOptions, plan_data  # noqa: PLC0415

    given, weights = read_warehouse(warehouse)
    options = PlanOptions(
        quota_gib=quota_gib, paper=paper, kicks=kicks, seed=seed, certified=not no_bound
    )
    found = plan_data(given, weights, options)
    if as_json:
        print(msgspec.json.encode(_document(found, given)).decode())
        return
    for line in _lines(found, given, most):
        print(printable(line))


def _lines(found: DataPlan, given: Warehouse, most: int) -> list[str]:
    from federator.planner.tetris_words import (  # noqa: PLC0415
        certificate_text,
        move_text,
        replica_text,
        size_text,
    )

    moves, copies = found.climb.moves, found.replicas.replicas
    gib = sum(move.gib for move in moves)
    lines = [f"{len(moves)} moves, {size_text(gib)}; {found.climb.waiting} wait for quota"]
    lines += [move_text(move, given) for move in moves[:most]]
    lines += [f"{len(copies)} copies, {size_text(found.replicas.gib)}"]
    lines += [replica_text(copy, given) for copy in copies[:most]]
    nowhere = len(found.replicas.nowhere)
    lines += [f"{nowhere} training jobs can run nowhere"] if nowhere else []
    return lines + ([certificate_text(found.certificate)] if found.certificate else [])


def _document(found: DataPlan, given: Warehouse) -> dict[str, Any]:
    from federator.planner.tetris_words import move_text, replica_text  # noqa: PLC0415

    tables, regions = given.tables.names, given.regions.names
    moves = [
        {
            "tables": [tables[table] for table in move.tables],
            "from": [regions[region] for region in move.origins],
            "to": regions[move.to],
            "gib": move.gib,
            "gain": move.gain.total,
            "why": move_text(move, given),
        }
        for move in found.climb.moves
    ]
    copies = [
        {
            "table": tables[copy.table],
            "region": regions[copy.region],
            "partitions": copy.partitions,
            "gib": copy.gib,
            "reason": copy.reason.name.lower(),
            "why": replica_text(copy, given),
        }
        for copy in found.replicas.replicas
    ]
    return {
        "schema": 1,
        "cost_before": found.climb.before.total,
        "cost_after": found.climb.after.total,
        "waiting": found.climb.waiting,
        "moves": moves,
        "copies": copies,
        "nowhere": [given.jobs.names[job] for job in found.replicas.nowhere],
        "certificate": _certificate(found, regions),
    }


def _certificate(found: DataPlan, regions: tuple[str, ...]) -> dict[str, Any] | None:
    proof = found.certificate
    if proof is None:
        return None
    return {
        "bound": proof.bound,
        "of_best_frac": proof.of_best_frac,
        "above_frac": proof.above_frac if proof.above_frac < inf else None,
        "move_price": proof.move_price,
        "storage_price": dict(zip(regions, proof.storage_price, strict=True)),
    }
