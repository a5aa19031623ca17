"""federator shims: the federation's commands under Slurm's names, for programs that call these."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

import click

from federator.errors import ConfigError, InvalidRequest

SHIMS: Final = {
    "sbatch": "fsbatch",
    "scancel": "fscancel",
    "scontrol": "fscontrol",
    "seff": "fseff",
    "sacct": "fsacct",
    "sacctmgr": "federator",  # which looks at the name that it is called by
    "sinfo": "fsinfo",
    "sprio": "fsprio",
    "squeue": "fsqueue",
    "sshare": "fsshare",
    "sstat": "federator",
}
"""Slurm's names, and the commands that they lead to."""


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def shims(folder: Path) -> None:
    """Make links in DIR that are called as Slurm's commands are, and lead to the federation's.

    With DIR first on PATH a program that calls sbatch, squeue, sacct ... uses the federation,
    unchanged. srun and salloc stay the site's. Links that are right already stay; nothing else that
    is there is touched.

    Example: federator shims ~/fed-bin && PATH=~/fed-bin:$PATH snakemake --executor slurm
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, command in SHIMS.items():
            _link(folder / name, _found(command))
    except OSError as error:
        raise InvalidRequest(f"{folder}: {error.strerror or error}") from error
    print(
        f"{folder}: {' '.join(SHIMS)}; put it first on PATH: export PATH={folder.absolute()}:$PATH"
    )


def _found(command: str) -> Path:
    """Where the command is: beside this program, or on PATH.

    Raises:
        ConfigError: nowhere.
    """
    beside = Path(sys.argv[0]).absolute().parent / command
    is_there = beside.is_file() and os.access(beside, os.X_OK)
    found = beside if is_there else shutil.which(command)
    if found is None:
        raise ConfigError(f"{command} is not on PATH; it is part of this installation of federator")
    return Path(found).absolute()


def _link(link: Path, target: Path) -> None:
    """Raises: InvalidRequest: something else is there."""
    if (
        link.is_symlink()
        and link.name in SHIMS
        and Path(os.readlink(link)).name == SHIMS[link.name]
    ):
        link.unlink()  # of an installation elsewhere, say
    if link.exists() or link.is_symlink():
        raise InvalidRequest(f"{link} is there already and is not ours; move it away first")
    link.symlink_to(target)
