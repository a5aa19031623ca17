"""Nodes and wants: the input of machine assignment, and groups of equal nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Final

from federator.errors import InvalidRequest

ROUNDING: Final = 1e-9  # of sums of fractions


class FailureDomain(Enum):
    """What fails as one."""

    RACK = "rack"
    POWER = "power"
    STORAGE = "storage"
    SITE = "site"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityNode:
    """A node, and where it stands.

    Attributes:
        site: whose Slurm knows it by its ``name``.
        rack: as ``power`` and ``storage`` the name of what fails as one, at whatever sites; the
            name of a switch comes with its site's. "" is not known: all those of a site count as
            one, since they could be.
        partition: in which it is, of those that are planned; "": in none.
        usable: takes jobs, and may be given away. Others stay where they are, and count nothing.
        busy: jobs run there now, so that others are taken first.
    """

    site: str
    name: str
    gpu_type: str = ""
    gpus: int = 0
    rack: str = ""
    power: str = ""
    storage: str = ""
    partition: str = ""
    usable: bool = True
    busy: bool = False

    def domain(self, kind: FailureDomain) -> str:
        """The name of its rack, or the like; one that is not known has its site's."""
        if kind is FailureDomain.SITE:
            return self.site
        return str(getattr(self, kind.value)) or f"{self.site}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """How large a partition is to be, and of what.

    Attributes:
        size: in GPUs, or in nodes with ``in_nodes``.
        sites: it may have nodes of; empty: of all.
        gpu_types: it may have, each with its worth from 0 to 1; empty: all, worth 1.
        buffer_frac: of its size beyond it, for nodes that fail one by one.
        survives: kinds of domains: the loss of any one leaves its size and the buffer.
        spread: the most of its size and buffer that one domain of a kind may hold.
        near: storage domains where its data are; empty: anywhere.
    """

    name: str
    size: int
    in_nodes: bool = False
    sites: tuple[str, ...] = ()
    gpu_types: Mapping[str, float] = field(default_factory=dict)
    buffer_frac: float = 0.0
    survives: tuple[FailureDomain, ...] = ()
    spread: Mapping[FailureDomain, float] = field(default_factory=dict)
    near: tuple[str, ...] = ()

    @property
    def need(self) -> int:
        """Its size and the buffer; in its unit."""
        return ceil(self.size * (1 + self.buffer_frac) - ROUNDING)

    @property
    def unit(self) -> str:
        return "nodes" if self.in_nodes else "GPUs"

    def amount(self, node: CapacityNode) -> int:
        """What a node counts for it; 0 if it may not have it."""
        here = not self.sites or node.site in self.sites
        right = node.gpus > 0 and (not self.gpu_types or node.gpu_type in self.gpu_types)
        if not (node.usable and here and right):
            return 0
        return 1 if self.in_nodes else node.gpus

    def most_in(self, kind: FailureDomain) -> float:
        """The most that one domain may hold; in its unit."""
        return self.spread[kind] * self.need + ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a plan pays for a node.

    Attributes:
        drain: it leaves a partition, so it must be emptied.
        join: it enters one.
        preference: it is of a type worth nothing; less for those that are worth more.
        far: it is in none of the storage domains that are near.
    """

    drain: float = 1.0
    join: float = 0.1
    preference: float = 1.0
    far: float = 1.0

    def of(self, want: Want, node: CapacityNode) -> float:
        """Of having the node, whether or not it was there before."""
        worth = want.gpu_types.get(node.gpu_type, 1.0) if want.gpu_types else 1.0
        far = bool(want.near) and node.storage not in want.near
        return self.preference * (1 - worth) + self.far * far


@dataclass(frozen=True, slots=True)
class EqualNodes:
    """Nodes alike for every want; ``here`` counts those in each want's partition, by its row."""

    nodes: list[CapacityNode]
    here: dict[int, int]

    @property
    def first(self) -> CapacityNode:
        return self.nodes[0]


def groups_of(nodes: Sequence[CapacityNode], wants: Sequence[Want]) -> list[EqualNodes]:
    """The usable nodes with GPUs, those alike together; in the order of the first of each.

    Raises:
        InvalidRequest: a node, or a want, is there twice.
    """
    rows = {want.name: row for row, want in enumerate(wants)}
    if len(rows) < len(wants):
        raise InvalidRequest("a partition is wanted twice")
    if len({(node.site, node.name) for node in nodes}) < len(nodes):
        raise InvalidRequest("a node is there twice")
    found: dict[tuple[object, ...], EqualNodes] = {}
    for node in nodes:
        if node.usable and node.gpus:
            places = (node.domain(kind) for kind in FailureDomain)
            group = found.setdefault((node.gpu_type, node.gpus, *places), EqualNodes([], {}))
            group.nodes.append(node)
            row = rows.get(node.partition)
            if row is not None:
                group.here[row] = group.here.get(row, 0) + 1
    return list(found.values())
