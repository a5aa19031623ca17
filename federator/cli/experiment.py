"""``federator experiment``: compares policies; writes a report and its data."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import click
import msgspec

from federator.cli.out_file import out_file
from federator.cli.run_options import RunOptions, run_options
from federator.cli.text import printable
from federator.errors import InvalidRequest
from federator.sim.experiments.base import DataTable, ExperimentResult, parameters_of
from federator.sim.experiments.registry import EXPERIMENTS, experiment_entry
from federator.sim.importers.trace_csv import read_pools
from federator.sim.importers.trace_file import read_any_trace
from federator.sim.report.page import cell_text, report_page, write_table
from federator.sim.runs.base import results
from federator.sim.trace import Trace

PAGE: Final = "report.html"


@click.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="For report.html and a CSV of each table; by default experiment-NAME, and "
    "nothing is written with --json.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="The same seed gives the same files, byte by byte.",
)
@click.option("--trace", type=click.Path(path_type=Path), help="Jobs to use: T.csv[.gz].")
@click.option("--pools", type=click.Path(path_type=Path), help="Their GPUs: P.csv.")
@click.option("--quick", is_flag=True, help="A look at it: few draws, in seconds.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PARAMETER=VALUE",
    help="May be repeated; values of a list are separated by commas.",
)
@run_options
@click.option("--json", "as_json", is_flag=True, help="Print the tables as JSON.")
def experiment(  # noqa: PLR0913, PLR0917 - one for each option
    name: str,
    out: Path | None,
    seed: int,
    trace: Path | None,
    pools: Path | None,
    quick: bool,
    settings: tuple[str, ...],
    jobs: int,
    dask: str | None,
    resume: Path | None,
    as_json: bool,
) -> None:
    """Run an experiment and write its report; 'list' lists the names.

    What each does, and what came of it: docs/simulator.md, docs/results.md.

    Example: federator experiment sharing --trace jobs.csv.gz --pools pools.csv --out sharing
    """
    if name == "list":
        _list(as_json)
        return
    chosen = experiment_entry(name).make(_named(settings), quick=quick, trace=_read(trace, pools))
    folder = out if out is not None or as_json else Path(f"experiment-{name}")
    if folder is not None:
        _prepare(folder, [path for path in (trace, pools) if path is not None])
    options = RunOptions(command="experiment", jobs=jobs, dask=dask, resume=resume)
    result = chosen.result(results(list(options.outcomes(chosen.runs(seed), name))))
    if folder is not None:
        _write(folder, result, name, seed)
    if as_json:
        click.echo(msgspec.json.encode(_document(result, name, seed)))
        return
    click.echo("\n".join(_lines(result.tables[0])))
    click.echo(f"\nreport: {folder}/{PAGE}")


def _list(as_json: bool) -> None:
    if as_json:
        found = [
            {"name": name, "about": entry.about, "parameters": parameters_of(entry.class_())}
            for name, entry in EXPERIMENTS.items()
        ]
        click.echo(msgspec.json.encode({"schema": 1, "experiments": found}))
        return
    for name, entry in EXPERIMENTS.items():
        click.echo(f"{name:<18} {entry.about}")


def _named(settings: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in settings]
    for text, (_, equals, _) in zip(settings, pairs, strict=True):
        if not equals:
            raise InvalidRequest(f"--set: expected PARAMETER=VALUE, found {printable(text[:60])!r}")
    return {name.strip(): value for name, _, value in pairs}


def _read(trace: Path | None, pools: Path | None) -> Trace | None:
    if trace is None and pools is None:
        return None
    if trace is None or pools is None:
        missing = "--trace" if trace is None else "--pools"
        raise InvalidRequest(f"missing option '{missing}'; --trace and --pools go together")
    found = read_any_trace(trace, read_pools(pools))
    if found.left_out:
        count = len(found.left_out)
        click.echo(
            f"federator experiment: {count} jobs of {trace} are left out; "
            "federator simulate names them",
            err=True,
        )
    if not len(found):
        raise InvalidRequest(f"{trace}: expected at least one job that can be replayed")
    return found


def _prepare(folder: Path, inputs: Sequence[Path]) -> None:
    """Find out before the work what would stop the report after it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidRequest(
            "a report needs matplotlib, which is not installed here; install federator[report], "
            "or use --json without --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(folder, error) from error
    for path in inputs:
        if path.resolve().parent == folder.resolve():
            raise InvalidRequest(f"--out: {folder} holds the input {path}; name another folder")


def _unwritable(folder: Path, error: OSError) -> InvalidRequest:
    return InvalidRequest(f"--out: {folder}: cannot be written: {error.strerror}")


def _write(folder: Path, result: ExperimentResult, name: str, seed: int) -> None:
    for table in result.tables:
        with out_file(folder / f"{table.name}.csv", "--out") as file:
            if file is not None:
                write_table(table, file)
    with out_file(folder / PAGE, "--out") as file:
        if file is not None:
            file.write(report_page(result, name, seed))


def _document(result: ExperimentResult, name: str, seed: int) -> dict[str, object]:
    tables = [
        {"name": t.name, "title": t.title, "columns": t.columns, "rows": t.rows}
        for t in result.tables
    ]
    return {
        "schema": 1,
        "experiment": name,
        "seed": seed,
        "parameters": result.parameters,
        "notes": result.notes,
        "tables": tables,
    }


def _lines(table: DataTable) -> Iterator[str]:
    """A table as text, its columns aligned."""
    texts = [list(table.columns), *([printable(cell_text(c)) for c in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    yield table.title
    for line in texts:
        yield " ".join(
            f"{text:<{width}}" if k == 0 else f"{text:>{width}}"
            for k, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
