"""What does the federation know of a site? Volatile, told by its agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from federator.model.partition import PartitionSummary
from federator.model.site import Capacity
from federator.sched.room import Room

MOST_GPUS: Final = 1024  # of a node that is believed


def gpus_of(capacity: Capacity) -> int:
    """How many GPUs a site says that it has; one that exaggerates must not sway the others."""
    return sum(min(max(0, node.gpus), MOST_GPUS) for node in capacity.nodes)


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
