"""Reads what a job's nodes must be built of: ``--tmp``, ``-B`` and the options that it sums up."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from federator.model.node_shape import NodeShape
from federator.slurm.options import quantities

_NAMES: Final = ("sockets-per-node", "cores-per-socket", "threads-per-core")
_LEADING: Final = re.compile("[0-9]+")
_MOST: Final = 2**16 - 2  # of a number of 16 bits; what is larger is left to sbatch


def least_shape(text: Callable[[str], str | None]) -> NodeShape:
    """What every node must have at least; 0 where nothing is asked for.

    Args:
        text: the value of an option; None: it is not given. ``passed_values`` has checked it.
    """
    given = (text("extra-node-info") or "").split(":")
    together = [_least(part) for part in (*given, "", "", "")[:3]]
    alone = [_least(text(name) or "") for name in _NAMES]
    sockets, cores, threads = (one or other for one, other in zip(alone, together, strict=True))
    tmp = text("tmp")
    return NodeShape(
        tmp_mib=0 if tmp is None else quantities.mebibytes(tmp.strip(), "tmp"),
        sockets=sockets,
        cores_per_socket=cores,
        threads_per_core=threads,
    )


def _least(value: str) -> int:
    """``4`` and ``4-8`` ask for 4 at least, ``*`` and nothing for any."""
    found = _LEADING.match(value.strip())
    number = int(found[0][:9]) if found else 0
    return number if number < _MOST else 0
