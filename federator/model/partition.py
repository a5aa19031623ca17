"""A partition of a site in numbers, as fsinfo shows it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, structs


class PartitionSummary(Struct, frozen=True, kw_only=True):
    """One line of fsinfo: a partition's nodes of one GPU type, by state."""

    partition: str
    gpu_type: str
    nodes_idle: int = 0
    nodes_mixed: int = 0
    nodes_allocated: int = 0
    nodes_drained: int = 0
    nodes_down: int = 0
    cpus: int = 0
    cpus_alloc: int = 0
    gpus: int = 0
    gpus_alloc: int = 0
    gpus_out: int = 0  # not allocated, on nodes that take no jobs; 0 of an older agent
    gpus_down: int = 0  # those of them on nodes that are down; 0 of an older agent
    gpus_stranded: float | None = None
    """Free ones that are expected to be of no use to what is usually asked for; None: not told."""


def room_of(summary: Iterable[PartitionSummary]) -> list[PartitionSummary]:
    """What a site has and gives away, whatever was asked of it lately."""
    return [structs.replace(each, gpus_stranded=None) for each in summary]
