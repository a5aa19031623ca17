"""What does the federation know of a site? Volatile, told by its agent."""

from __future__ import annotations

from dataclasses import dataclass

from federator.model.site import PartitionSummary
from federator.sched.room import Room


@dataclass(slots=True)
class SiteView:
    """One site as it last was."""

    partitions: tuple[str, ...]
    up: bool = False
    ready: bool = False  # up, and its first complete report is in
    since_s: float = 0.0  # of being up or down
    slurm_version: str = ""
    empty: Room | None = None  # all it could ever give; None until it has told
    gpus: int = 0  # of ``empty``
    summary: tuple[PartitionSummary, ...] = ()
