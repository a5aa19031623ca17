"""``federator generate``: what shall be replayed if there is no trace? Jobs made up by a seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import click

from federator.errors import InvalidRequest
from federator.sim.generate.sia import SIA_VARIANTS, sia_workload
from federator.sim.trace import Trace
from federator.sim.trace_write import write_pools, write_trace


@click.group()
def generate() -> None:
    """Make up a trace that federator simulate replays.

    Example: federator generate sia --variant more-wide --trace jobs.csv --pools pools.csv
    """


@generate.command()
@click.option("--variant", default="base", show_default=True, metavar="NAME",
              help="One of " + ", ".join(SIA_VARIANTS) + ".")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True,
              help="The same seed gives the same files, byte by byte.")  # fmt: skip
@click.option("--trace", type=click.Path(path_type=Path), required=True, metavar="T.csv",
              help="Write the jobs here.")  # fmt: skip
@click.option("--pools", type=click.Path(path_type=Path), required=True, metavar="P.csv",
              help="Write the GPUs here.")  # fmt: skip
def sia(variant: str, seed: int, trace: Path, pools: Path) -> None:
    """The synthetic workload of SIA (appendices A.1 and C): bursts of jobs in queues of 8 GPUs.

    Example: federator generate sia --seed 1 --trace jobs.csv --pools pools.csv
    """
    workload = sia_workload(variant)
    same = trace.exists() and pools.exists() and trace.samefile(pools)  # by a hard link, too
    if same or trace.resolve() == pools.resolve():
        raise InvalidRequest(f"--pools: {pools}: is --trace, too; name another file")
    jobs = workload.generate(seed)
    _write("--pools", pools, write_pools, jobs)
    _write("--trace", trace, write_trace, jobs)
    click.echo(f"{trace}: {len(jobs)} jobs; {pools}: {len(jobs.pools)} pools, {jobs.capacity} GPUs")


def _write(option: str, path: Path, write: Callable[[Trace, TextIO], None], jobs: Trace) -> None:
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            write(jobs, file)
    except OSError as error:
        raise InvalidRequest(f"{option}: {path}: cannot be written: {error.strerror}") from error
