"""Makes all that a release consists of, with checksums and a signature.

``packaging/release.sh`` runs it; docs/packaging.md, "Releases", has the contents and how they are
verified.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from fedbuild import debs, rpms, sbom, wheel
from fedbuild.advisories import known_of
from federator import __version__
from federator.errors import ConfigError, FederatorError
from federator.testbed import layout
from federator.testbed.commands import run
from federator.testbed.images import Progress
from federator.testbed.layout import REPOSITORY, StateDir

SUMS: Final = "SHA256SUMS"
SIGNATURE: Final = f"{SUMS}.asc"
COMPONENTS: Final = f"federator-{__version__}.cdx.json"


def make(folder: Path, suites: Sequence[str], state: StateDir, progress: Progress) -> list[Path]:
    """Write a release to ``folder``, checksums last; returns the paths of all files.

    Args:
        folder: is made, or is empty.
        suites: the releases of Debian for which there are packages.
        state: where builds keep what they fetched.
        progress: is told of each step.

    Raises:
        ConfigError: the folder has something in it, or what a build needs is not on this machine.
        FederatorError: a step failed; the message ends with its output.
    """
    known = {site.suite: site for site in layout.SITES}
    if unknown := set(suites) - set(known):
        raise ConfigError(f"no packages for {', '.join(sorted(unknown))}; only {', '.join(known)}")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty: a release is made from nothing")
    progress("release", "building wheel and source distribution")
    wheel.check(wheel.build(folder))
    wheel.build_source(folder)
    (folder / COMPONENTS).write_text(sbom.text(), encoding="utf-8")
    rpms.make(folder, state, progress)
    for site in (known[suite] for suite in suites):
        debs.copy_to(folder, site, debs.make(site, state, progress))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    (folder / SUMS).write_text(sums(folder, files), encoding="utf-8")
    return [*files, folder / SUMS]


def sums(folder: Path, files: Sequence[Path]) -> str:
    """Return the SHA-256 of each of ``files``, as sha256sum prints and checks it in ``folder``."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        for path in files
    )


def sign(folder: Path, key: str) -> Path:
    """Sign the checksums in ``folder`` with the GnuPG key called ``key``, and check the signature.

    Raises:
        ConfigError: gpg is not installed.
        FederatorError: gpg failed, for one because it has no such key; the message says why.
    """
    signed, signature = folder / SUMS, folder / SIGNATURE
    signature.unlink(missing_ok=True)
    argv = ["gpg", "--batch", "--local-user", key, "--armor", "--detach-sign"]
    run([*argv, "--output", str(signature), str(signed)], "signature")
    run(["gpg", "--batch", "--verify", str(signature), str(signed)], "signature")
    return signature


def uncommitted() -> list[str]:
    """Return the files of the working tree that differ from its commit, as git names them.

    Raises:
        ConfigError: this is no working tree of git, or git is not installed.
    """
    git = shutil.which("git") or "git"
    try:
        done = subprocess.run(
            [git, "status", "--porcelain"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(f"a release is made from a working tree of git: {error}") from error
    return done.stdout.splitlines()


def check_advisories(dump: Path) -> None:
    """Refuse pins with known weaknesses.

    Raises:
        ConfigError: it is no dump.
        FederatorError: it has advisories on some; one line for each.
    """
    found, _ = known_of(dump)
    if found:
        raise FederatorError(
            "\n".join(["pinned libraries have known weaknesses:", *map(str, found)])
        )


@click.command()
@click.option("--key", metavar="KEY", help="Sign with this key of gpg: its fingerprint, or e-mail.")
@click.option("--unsigned", is_flag=True, help="Do not sign; to try it.")
@click.option("--dirty", is_flag=True, help="From files that are not committed, too; to try it.")
@click.option("--suite", "suites", multiple=True, help="Only this Debian release; repeatable.")
@click.option("--no-debs", is_flag=True, help="Without Debian packages; to try it.")
@click.option(
    "--advisories",
    type=click.Path(exists=True, path_type=Path),
    help="Refuse where this dump knows a weakness of a pinned library; docs/packaging.md.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("dist") / __version__,
    show_default=True,
    help="Where it goes; made, or empty.",
)
def main(  # noqa: PLR0913  # its options
    *,
    key: str | None,
    unsigned: bool,
    dirty: bool,
    suites: tuple[str, ...],
    no_debs: bool,
    advisories: Path | None,
    output: Path,
) -> None:
    """Make a release: wheel, source distribution, packages, list of components, checksums.

    \b
    Example:
      packaging/release.sh --key releases@example.org
    """
    began_s = time.monotonic()

    def progress(what: str, doing: str) -> None:
        click.echo(f"[{time.monotonic() - began_s:6.1f} s] {what}: {doing}", err=True)

    try:
        if (key is None) is not unsigned:
            raise click.UsageError("either --key KEY or --unsigned")
        if not dirty and (changed := uncommitted()):
            raise ConfigError(f"not committed: {', '.join(changed)}")
        if advisories is not None:
            check_advisories(advisories)
        chosen = () if no_debs else suites or [site.suite for site in layout.SITES]
        made = make(output, chosen, StateDir.default(), progress)
        if key is not None:
            made.append(sign(output, key))
        for path in made:
            click.echo(path)
    except FederatorError as error:
        click.echo(f"release: {error}", err=True)
        sys.exit(os.EX_CONFIG if isinstance(error, ConfigError) else os.EX_UNAVAILABLE)


if __name__ == "__main__":
    main()
