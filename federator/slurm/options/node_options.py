"""Reads ``--nodelist``, ``--exclude`` and ``--constraint``: which nodes a job may have, or must.

``SITE:NODES`` names nodes of one site, ``NODES`` those of every site that has them; ranges as
Slurm writes them (``alpine:g[1-3],c1``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from federator.errors import InvalidRequest
from federator.model.constraint import plain_names, ways_of

MOST_NAMES: Final = 4_096  # in one list: it travels with every question to every site
_SEPARATOR: Final = re.compile(r",(?![^\[\]]*\])")
_NAME: Final = re.compile(r"[A-Za-z0-9_.\[\],-]+", re.ASCII)
_SITE: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_INVALID: Final = "Batch job submission failed: Invalid node name specified"
_TOO_MANY: Final = "Batch job submission failed: Node count specification invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWish:
    """Which nodes, as fields of a ``Job``; see there."""

    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    constraint: str = ""

    @property
    def least_nodes(self) -> int:
        """On fewer nodes it cannot be satisfied."""
        counted = max(way.counted_nodes for way in ways_of(self.constraint))
        return max(counted, len({name.rpartition(":")[2] for name in self.nodelist}))


def node_wish(nodelist: str | None, exclude: str | None, constraint: str | None) -> NodeWish:
    """Read the three options; None or "": not given.

    Raises:
        InvalidRequest: in sbatch's words.
    """
    names = None if not constraint else plain_names(constraint)
    text = "" if not constraint or names is not None else constraint
    ways_of(text)
    return NodeWish(
        nodelist=node_names(nodelist or ""),
        exclude=node_names(exclude or ""),
        features=names or (),
        constraint=text,
    )


def nodes_with(wish: NodeWish, nodes: int | None, *, said: bool) -> int | None:
    """The number of nodes that a wish leaves; ``said``: it was asked for by --nodes.

    Raises:
        InvalidRequest: more nodes are wished for than were asked for.
    """
    least = wish.least_nodes
    if nodes is None or nodes >= least:
        return nodes
    if said:
        raise InvalidRequest(_TOO_MANY)
    return least


def node_names(text: str) -> tuple[str, ...]:
    """The names in a list of nodes, sorted, each once; with their site where it is given.

    Raises:
        InvalidRequest: it is no such list, or too long.
    """
    found: set[str] = set()
    for part in _SEPARATOR.split(text) if text else ():
        site, colon, hosts = part.strip().rpartition(":")
        if colon and not _SITE.fullmatch(site):
            raise InvalidRequest(_INVALID)
        prefix = f"{site}:" if colon else ""
        found.update(f"{prefix}{name}" for name in _expanded(hosts))
        if len(found) > MOST_NAMES:
            raise InvalidRequest(f"a list of nodes names more than {MOST_NAMES}; name fewer")
    return tuple(sorted(found))


def _expanded(hosts: str) -> tuple[str, ...]:
    if not _NAME.fullmatch(hosts):
        raise InvalidRequest(_INVALID)
    if "[" not in hosts and "]" not in hosts:
        return (hosts,)
    from federator.slurm.parse_base import expand_hosts  # noqa: PLC0415 - 30 ms, seldom needed

    try:
        return expand_hosts(hosts)
    except ValueError as error:
        raise InvalidRequest(_INVALID) from error
