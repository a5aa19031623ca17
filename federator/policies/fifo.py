"""First come, first served inside each priority level: the example to copy for a new policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from federator.model.workload import Workload


@dataclass(frozen=True, slots=True)
class Fifo:
    """Order by (priority, submission time, id); priority 1 goes first."""

    def order(self, pending: Iterable[Workload], now_s: float) -> list[Workload]:  # noqa: ARG002
        return sorted(pending, key=lambda w: (w.priority, w.submitted_at_s, w.id))
