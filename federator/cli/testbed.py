"""``federator testbed``: three dockerised Slurm clusters on this machine."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import click
from rich.console import Console
from rich.table import Table

from federator.errors import ConfigError, FederatorError
from federator.testbed import cluster, inside, layout
from federator.testbed import software as shared_software
from federator.testbed.cluster import SiteStatus
from federator.testbed.layout import StateDir

_SITES = "\n".join(
    f"{site.name:<7} Slurm {site.slurm}  region {site.region}  "
    f"{layout.GPU_NODES.count * layout.GPU_NODES.gpus} {site.gpu_type.upper()}"
    for site in layout.SITES
)
_HELP = """Run three Slurm clusters of three generations in containers.

\b
{sites}

The GPUs are make-believe; Slurm is real. State is kept in .testbed of the repository, or in
$FEDERATOR_TESTBED_DIR.

\b
Example:
  federator testbed up
  federator testbed exec --user vision1 alpine -- sbatch --wrap=hostname
"""


@click.group(
    help=_HELP.replace("{sites}", _SITES), context_settings={"help_option_names": ["-h", "--help"]}
)
def testbed() -> None:
    """The group of these commands; its help is above."""


@testbed.command()
@click.option("--site", "names", multiple=True, metavar="NAME", help="Only this site; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def up(names: tuple[str, ...], as_json: bool) -> None:
    """Bring the sites up and wait until their nodes are ready.

    The first time this builds images, which takes minutes; when all is up it takes a second or
    two. A site that is as it should be is left alone, with its jobs.

    \b
    Example:
      federator testbed up --site alpine --site cedar
    """
    started = time.monotonic()
    progress = _progress(started)
    with _one_message():
        state = StateDir.default()
        sites = [layout.site(name) for name in dict.fromkeys(names)] or list(layout.SITES)
        found = cluster.up(state, sites, progress)
        _report(state, found, as_json, elapsed_s=time.monotonic() - started)


@testbed.command()
def software() -> None:
    """Install the software that the sites share: PyTorch, for trainings (about 1 GB).

    Takes minutes the first time. Sites see it as /shared/REGION/software/pytorch/bin/python.

    \b
    Example:
      federator testbed software
    """
    with _one_message():
        for tree in shared_software.ensure(StateDir.default(), _progress(time.monotonic())):
            click.echo(tree)


@testbed.command("debs")
@click.option("--suite", "suites", multiple=True, help="Only this Debian release; repeatable.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("dist"),
    show_default=True,
    help="Where they go, a folder for each release.",
)
def debs_(suites: tuple[str, ...], output: Path) -> None:
    """Build the Debian packages, in a container of each release; docs/packaging.md.

    \b
    Example:
      federator testbed debs --suite trixie --output dist
    """
    progress = _progress(time.monotonic())
    known = {site.suite: site for site in layout.SITES}
    if unknown := set(suites) - set(known):
        raise ConfigError(f"no packages for {', '.join(sorted(unknown))}; only {', '.join(known)}")
    with _one_message():
        debs = _release_tools()
        for site in (known[suite] for suite in suites or known):
            made = debs.make(site, StateDir.default(), progress)
            for path in debs.copy_to(output, site, made):
                click.echo(path)


@testbed.command()
@click.option("--state", "with_state", is_flag=True, help="Remove keys and shared folders, too.")
@click.option("--images", "with_images", is_flag=True, help="Remove the images, too.")
def down(with_state: bool, with_images: bool) -> None:
    """Remove the containers, their network and the daemon's store; its log stays.

    \b
    Example:
      federator testbed down
      federator testbed down --state --images
    """
    with _one_message():
        cluster.down(StateDir.default(), with_state=with_state, with_images=with_images)


@testbed.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def status(as_json: bool) -> None:
    """Show each site; the exit status is 1 unless all are ready.

    \b
    Example:
      federator testbed status --json
    """
    with _one_message():
        state = StateDir.default()
        found = cluster.status(state)
        _report(state, found, as_json)
    sys.exit(0 if all(one.ready for one in found) else 1)


@testbed.command("exec", context_settings={"ignore_unknown_options": True})
@click.option("--user", metavar="NAME", help="Run as this user, in their home; else as root.")
@click.option("--tty", is_flag=True, help="Give the command a terminal.")
@click.argument("site")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(user: str | None, tty: bool, site: str, command: tuple[str, ...]) -> None:
    """Run COMMAND at SITE; its exit status is this command's, and stdin is passed on.

    \b
    Example:
      federator testbed exec alpine -- sinfo
      federator testbed exec --user nlp1 cedar -- sbatch < job.sh
    """
    with _one_message():
        argv = inside.exec_argv(layout.site(site), command, user=user, stdin=True, tty=tty)
        try:
            os.execvp(argv[0], argv)  # noqa: S606 - the command's fate is to be ours
        except FileNotFoundError:
            raise ConfigError("docker is not installed: apt-get install docker.io") from None


def _release_tools() -> ModuleType:
    """What makes packages is part of a checkout, and of no installation."""
    folder = layout.REPOSITORY / "packaging" / "build"
    if not folder.is_dir():
        raise ConfigError("packages are made from a checkout of the project; this is none")
    sys.path.insert(0, str(folder))
    return importlib.import_module("fedbuild.debs")


def _progress(started_s: float) -> Callable[[str, str], None]:
    console = Console(stderr=True, highlight=False)

    def progress(site: str, doing: str) -> None:
        console.print(f"[{time.monotonic() - started_s:6.1f} s] {site}: {doing}", markup=False)

    return progress


@contextmanager
def _one_message() -> Iterator[None]:
    """Turn our errors into one message and an exit status of sysexits.h."""
    try:
        yield
    except ConfigError as error:
        click.echo(f"federator testbed: {error}", err=True)
        sys.exit(os.EX_CONFIG)
    except FederatorError as error:
        click.echo(f"federator testbed: {error}", err=True)
        sys.exit(os.EX_UNAVAILABLE)


def _report(
    state: StateDir, found: list[SiteStatus], as_json: bool, elapsed_s: float | None = None
) -> None:
    if as_json:
        document: dict[str, object] = {
            "state_dir": str(state.root),
            "federation": str(state.federation),
            "sites": [{**dataclasses.asdict(one), "ready": one.ready} for one in found],
        }
        if elapsed_s is not None:
            document["elapsed_s"] = round(elapsed_s, 2)
        click.echo(json.dumps(document, indent=2))
        return
    _print_table(found)
    click.echo(f"configuration: {state.federation}")
    if elapsed_s is not None:
        click.echo(f"up in {elapsed_s:.1f} s")


def _print_table(found: list[SiteStatus]) -> None:
    table = Table(box=None, pad_edge=False)
    columns: dict[str, Callable[[SiteStatus], str]] = {
        "SITE": lambda one: one.site,
        "SLURM": lambda one: one.slurm,
        "REGION": lambda one: one.region,
        "CONTAINER": lambda one: one.container,
        "SSH": lambda one: "-" if one.port is None else f"127.0.0.1:{one.port}",
        "NODES": lambda one: ", ".join(f"{n} {s}" for s, n in sorted(one.nodes.items())) or "-",
    }
    for heading in columns:
        table.add_column(heading, no_wrap=True)
    for one in found:
        table.add_row(*(cell(one) for cell in columns.values()))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    testbed()
