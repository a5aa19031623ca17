"""federator sites: the state of every site, as fsinfo shows it."""

from __future__ import annotations

import click

from federator.cli.fsinfo import show


@click.command()
@click.option("--noheader", is_flag=True, help="No header line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def sites(noheader: bool, as_json: bool) -> None:
    """The state of every site, as fsinfo shows it.

    Example: federator sites --json
    """
    show(header=not noheader, as_json=as_json)
