"""The nodes and partitions of a site, as fsinfo's formats show them."""

from __future__ import annotations

from math import inf
from typing import Final

import msgspec

from federator.model.node_shape import NodeShape


class NodeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node of the partitions that are the federation's."""

    name: str
    state: str  # a NodeState's value
    partitions: tuple[str, ...] = ()
    cpus: int = 0
    cpus_alloc: int = 0
    mem_mib: int = 0
    mem_mib_alloc: int = 0
    gpu_type: str = ""
    gpus: int = 0
    gpus_alloc: int = 0
    features: tuple[str, ...] = ()
    gres: dict[str, int] = {}  # beside GPUs
    gres_alloc: dict[str, int] = {}
    reason: str = ""  # while it takes no jobs: the site's words why
    reason_by: str = ""  # who gave it, and when; of an agent that knows it
    reason_at_s: float = 0.0
    reserved: bool = False  # as ``Node`` has them; then ``state`` is drained
    maintenance: bool = False
    switch: str = ""  # leaf switch = rack; "" where the site has no topology, or of an older agent
    shape: NodeShape | None = None  # None: not told, as of an older agent
    weight: int | None = None  # Slurm's Weight; None: the same


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition and its limits."""

    name: str
    up: bool = True
    is_default: bool = False
    max_time_s: float = inf
    default_time_s: float | None = None  # None: ``max_time_s``
    min_nodes: int = 1
    max_nodes: int | None = None  # None: any number
    priority_tier: int = 1
    preempt_mode: str = "OFF"
    root_only: bool | None = None  # None: not told, as of an older agent
    over_subscribe: str = ""  # NO, EXCLUSIVE, YES:4, FORCE:4; "": the same
    groups: str | None = None  # those whose users it takes; "": all; None: not told


class SiteNodes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A site's own word on its nodes, in its order."""

    at_s: float
    nodes: tuple[NodeRow, ...] = ()
    partitions: tuple[PartitionRow, ...] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(SiteNodes)


def packed_nodes(nodes: SiteNodes) -> bytes:
    """As a part of a message: the daemon passes it on as it is."""
    return _encoder.encode(nodes)


def unpacked_nodes(raw: bytes) -> SiteNodes:
    """Undo ``packed_nodes``.

    Raises:
        ValueError: it is none.
    """
    try:
        return _decoder.decode(raw)
    except RecursionError as error:
        raise ValueError(str(error)) from error
