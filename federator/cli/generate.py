"""``federator generate``: makes up a trace of jobs by a seed, where there is none to replay."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from federator.cli.out_file import out_file, spare_inputs
from federator.cli.text import printable
from federator.errors import InvalidRequest
from federator.sim.generate.sia import SIA_VARIANTS, sia_workload
from federator.sim.importers.trace_write import write_pools, write_trace


@click.group()
def generate() -> None:
    """Make up a trace that federator simulate replays.

    Example: federator generate sia --variant more-wide --trace jobs.csv --pools pools.csv
    """


@generate.command()
@click.option(
    "--variant",
    default="base",
    show_default=True,
    metavar="NAME",
    help="One of " + ", ".join(SIA_VARIANTS) + ".",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="The same seed gives the same files, byte by byte.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    required=True,
    metavar="T.csv",
    help="Write the jobs here.",
)
@click.option(
    "--pools",
    type=click.Path(path_type=Path),
    required=True,
    metavar="P.csv",
    help="Write the GPUs here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sia(variant: str, seed: int, trace: Path, pools: Path, as_json: bool) -> None:
    """The synthetic workload of SIA (appendices A.1 and C): bursts of jobs in queues of 8 GPUs.

    Example: federator generate sia --seed 1 --trace jobs.csv --pools pools.csv
    """
    workload = sia_workload(variant)
    spare_inputs("--pools", pools, trace)  # not by a link either
    for option, path in (("--trace", trace), ("--pools", pools)):
        if path.suffix == ".gz":
            raise InvalidRequest(f"{option}: {path}: plain CSV is written; name a .csv file")
    if trace.resolve() == pools.resolve():
        raise InvalidRequest(f"--pools: {pools}: is --trace, too; name another file")
    jobs = workload.generate(seed)
    with out_file(trace, "--trace") as trace_out, out_file(pools, "--pools") as pools_out:
        assert trace_out is not None
        assert pools_out is not None
        write_trace(jobs, trace_out)
        write_pools(jobs, pools_out)
    made = {
        "schema": 1,
        "variant": variant,
        "seed": seed,
        "trace": str(trace),
        "pools_file": str(pools),
        "jobs": len(jobs),
        "pools": len(jobs.pools),
        "gpus": jobs.capacity,
    }
    if as_json:
        click.echo(msgspec.json.encode(made))
        return
    files = printable(str(trace)), printable(str(pools))
    click.echo(
        f"{files[0]}: {len(jobs)} jobs; {files[1]}: {len(jobs.pools)} pools, {jobs.capacity} GPUs"
    )
