"""The disk, sockets, cores and threads of a node, as far as jobs ask for them."""

from __future__ import annotations

from operator import ge
from typing import Final, NamedTuple


class NodeShape(NamedTuple):
    """Of a node, what it has; of a job, the least that each of its nodes must have."""

    tmp_mib: int = 0
    sockets: int = 0
    cores_per_socket: int = 0
    threads_per_core: int = 0

    def holds(self, least: NodeShape) -> bool:
        return all(map(ge, self, least))

    def lack(self, least: NodeShape) -> tuple[str, int, int] | None:
        """The first part of which there is too little: its name, what is asked, what is there."""
        for unit, wanted, there in zip(UNITS, least, self, strict=True):
            if wanted > there:
                return unit, wanted, there
        return None


UNITS: Final = ("MiB of TmpDisk", "sockets", "cores per socket", "threads per core")
"""What the parts of a shape are called when one is too small."""

ANY_SHAPE: Final = NodeShape()
"""That of a job which asks for none."""


def largest(shapes: list[NodeShape]) -> NodeShape:
    """The most of each part that any of them has."""
    return NodeShape(*map(max, zip(ANY_SHAPE, *shapes, strict=True)))
