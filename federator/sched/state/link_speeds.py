"""Speeds of copies between two storage domains, by the replicas that they have made.

They are known of replicas that are in the catalogue. So they are as durable as these, and the same
after a replay of the log as after a snapshot.
"""

from __future__ import annotations

from heapq import nlargest
from statistics import median_low
from typing import Final

from federator.model.dataset import DataReplica, DataSet

LATEST: Final = 5  # copies of one pair of domains that count
LEAST_S: Final = 10.0  # a copy that took less time measures nothing but its beginning
_Pair = tuple[str, str]  # the domain of the source, and that of the copy
_Label = tuple[str, str]  # name and version


class LinkSpeeds:
    """The speeds of finished copies; changed only by ``Catalogue``."""

    def __init__(self) -> None:
        self._measured: dict[_Pair, dict[_Label, tuple[float, int]]] = {}
        self._known: dict[_Pair, int] = {}  # answers; forgotten when a copy is added or goes

    def count(self, of: DataSet, replica: DataReplica, times: int) -> None:
        """Add a replica whose copy was measured (``times`` 1), or take it out (-1)."""
        pair = replica.copied_from, replica.domain
        measured = self._measured.setdefault(pair, {})
        if times > 0:
            measured[of.name, of.version] = replica.copied_at_s, replica.copied_kib_per_s
        else:
            measured.pop((of.name, of.version), None)
        self._known.pop(pair, None)

    def kib_per_s(self, source: str, domain: str) -> int:
        """The median speed of the latest ``LATEST`` copies of a pair; 0: none was measured."""
        pair = source, domain
        if pair not in self._known:
            latest = nlargest(LATEST, self._measured.get(pair, {}).values())
            self._known[pair] = median_low(speed for _, speed in latest) if latest else 0
        return self._known[pair]


def speed_kib_per_s(size_bytes: int, took_s: float) -> int:
    """The speed of a copy, at least 1; 0: it took too little time to tell."""
    return max(1, round(size_bytes / 1024 / took_s)) if took_s >= LEAST_S else 0
