"""Writes many node names as Slurm does: ``g[01-08,12]``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ClusterShell.NodeSet import NodeSet, NodeSetException

_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_FEW: Final = 3  # that are written one by one


def node_list(names: Sequence[str]) -> str:
    """Fold names in their own order; a name that Slurm could not have stays as it is."""
    if len(names) > _FEW and all(map(_PLAIN.fullmatch, names)):
        try:
            return str(NodeSet.fromlist(list(names)))
        except NodeSetException:  # e.g. digits without end
            pass
    return ",".join(names)
