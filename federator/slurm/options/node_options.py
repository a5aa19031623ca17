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
MOST_LETTERS: Final = 255  # of a name
_BRACKETS: Final = re.compile(r"\[[^\[\]]*\]")
MOST_TRIES: Final = 16  # ways to satisfy a constraint, times what each counts
MOST_OF_CONSTRAINT: Final = 256  # bytes: each node is held against all of it
_NAME: Final = re.compile(r"[A-Za-z0-9_.\[\],-]+", re.ASCII)
_SITE: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_INVALID: Final = "Batch job submission failed: Invalid node name specified"
_TOO_FEW: Final = "Batch job submission failed: Requested node configuration is not available"


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
    _refuse_too_many_ways(text)
    asked, excluded = node_names(nodelist or ""), node_names(exclude or "")
    if not set(asked).isdisjoint(excluded):
        raise InvalidRequest(_INVALID)
    return NodeWish(
        nodelist=asked,
        exclude=excluded,
        features=names or (),
        constraint=text,
    )


def _refuse_too_many_ways(constraint: str) -> None:
    """Bounds of what is submitted: every site works it out for each of its nodes."""
    if len(constraint) > MOST_OF_CONSTRAINT:
        raise InvalidRequest(f"--constraint is longer than {MOST_OF_CONSTRAINT} bytes")
    ways = ways_of(constraint)
    if len(ways) * max(1, *(len(way.counted) for way in ways)) > MOST_TRIES:
        raise InvalidRequest(
            f"--constraint can be satisfied in more than {MOST_TRIES} ways; ask for fewer"
        )


def nodes_with(wish: NodeWish, nodes: int | None, *, said: bool) -> int | None:
    """The number of nodes that a wish leaves; ``said``: it was asked for by --nodes.

    Raises:
        InvalidRequest: more nodes are wished for than were asked for.
    """
    least = wish.least_nodes
    if nodes is None or nodes >= least:
        return nodes
    if said and len(wish.nodelist) > nodes:
        raise InvalidRequest(f"invalid number of nodes (-N {least}-{nodes})")  # 22.05; later cut it
    if said:
        raise InvalidRequest(_TOO_FEW)
    return least


def node_names(text: str) -> tuple[str, ...]:
    """The names in a list of nodes, sorted, each once; with their site where it is given.

    Raises:
        InvalidRequest: it is no such list, or too long.
    """
    found: set[str] = set()
    for part in _parts(text) if text else ():
        site, colon, hosts = part.strip().rpartition(":")
        if colon and not _SITE.fullmatch(site):
            raise InvalidRequest(_INVALID)
        prefix = f"{site}:" if colon else ""
        found.update(f"{prefix}{name}" for name in _expanded(hosts, MOST_NAMES - len(found)))
    return tuple(sorted(found))


def _parts(text: str) -> list[str]:
    """What stands between commas that are in no brackets."""
    found, start, depth = [], 0, 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth = max(0, depth - 1)
        elif letter == "," and not depth:
            found.append(text[start:at])
            start = at + 1
    found.append(text[start:])
    return found


def _expanded(hosts: str, most: int) -> tuple[str, ...]:
    """The names of one part, of which there may be at most so many."""
    if not _NAME.fullmatch(hosts) or len(_BRACKETS.sub("", hosts)) > MOST_LETTERS:
        raise InvalidRequest(_INVALID)
    if "[" not in hosts and "]" not in hosts:
        _check_number(1, most)
        return (hosts,)
    from federator.slurm.parse_base import expand_hosts, host_count  # noqa: PLC0415 - 30 ms, seldom

    try:
        _check_number(host_count(hosts), most)  # before anything expands it
        return expand_hosts.__wrapped__(hosts)  # without its memory, which is for what sites say
    except ValueError as error:
        raise InvalidRequest(_INVALID) from error


def _check_number(names: int, most: int) -> None:
    if names > most:
        raise InvalidRequest(f"a list of nodes names more than {MOST_NAMES}; name fewer")
