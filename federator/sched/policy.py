"""How does a policy plug in? It orders pending workloads; it owns no state and does no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from federator.model.workload import Workload


class Policy(Protocol):
    def order(self, pending: Iterable[Workload], now_s: float) -> list[Workload]:
        """Return all of ``pending``, first to try first; total and repeatable."""
        ...
