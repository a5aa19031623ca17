"""Readers of a site: how its agent asks its Slurm what is there."""

from __future__ import annotations

from enum import Enum


class SiteReader(Enum):
    """What answers the questions of a sweep; see docs/pyslurm.md."""

    AUTO = "auto"  # pyslurm where the site has it, else the commands; that is no trouble
    CLI = "cli"  # squeue and scontrol
    PYSLURM = "pyslurm"  # as auto, and a site without it is warned
