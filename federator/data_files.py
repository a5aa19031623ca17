"""Finds the files for sites that are no Python modules of this package.

In a checkout they are the project's own folders; in an installed package they are its data, put
there by setup.py when the wheel was built. Nothing else may know of either place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from federator.errors import ConfigError

# The name a tree is asked for by, and its folder in a checkout.
TREES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "job_submit": "job_submit",  # Lua for slurmctld and for sbatch
        "slurm_plugins": "slurm_plugins",  # C, compiled against the site's Slurm
        "prolog_epilog": "prolog_epilog",  # the hooks of compute nodes
        "systemd": "packaging/systemd",  # units
        "prometheus": "packaging/prometheus",  # rules and alerts
        "grafana": "packaging/grafana",  # dashboards
        "docs": "docs",  # sources of the man pages
    }
)
DATA: Final = "_share"  # of this package, when it is installed


def tree(name: str) -> Path:
    """Return the folder of the tree called ``name``, one of ``TREES``.

    Raises:
        ConfigError: this installation lacks it.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / DATA / name, package.parent / TREES[name]):
        if folder.is_dir():
            return folder
    raise ConfigError(f"{name} is not part of this installation of federator; install it anew")
