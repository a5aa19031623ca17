"""``federator faults``: runs histories of faults by seed, and reports lost or doubled work."""

from __future__ import annotations

import json
import os
import sys

import click

from federator.cli.progress import progress_bar
from federator.faults.report import FaultReport, run_histories


@click.command()
@click.option(
    "--histories",
    type=click.IntRange(1, 10_000_000),
    default=500,
    show_default=True,
    help="How many; with the seeds from --seed on.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**53),
    default=0,
    show_default=True,
    help="The same seed gives the same history, to the last byte.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=os.cpu_count() or 1,
    show_default="one for each CPU",
    help="Histories side by side.",
)
@click.option("--verbose", is_flag=True, help="Tell each history, with times.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def faults(histories: int, seed: int, processes: int, verbose: bool, as_json: bool) -> None:
    """Live through histories of faults, and check each against what was promised.

    A real daemon (or two) and real agents, in virtual time, over simulated Slurms. The exit
    status is 1 if any promise was broken. The kinds of fault: docs/reliability.md.

    Example: federator faults --histories 10000
    """
    if verbose and as_json:
        raise click.UsageError("--verbose tells people, --json programs; choose one")
    report = FaultReport()
    with progress_bar("histories", histories) as advance:
        for outcome in run_histories(range(seed, seed + histories), processes):
            report.add(outcome)
            advance(1)
            if outcome.broken:  # at once: a long run may be cut short
                print(f"seed {outcome.seed}: {'; '.join(outcome.broken)}", file=sys.stderr)
            if verbose:
                print(f"seed {outcome.seed}, digest {outcome.digest}")
                print("\n".join(outcome.story))
    if as_json:
        print(json.dumps(report.as_json()))
    else:
        print("\n".join(report.lines()))
    sys.exit(1 if report.broken else 0)
