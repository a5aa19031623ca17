"""The lines of a usage report, as they cross the wire; light, as every command loads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

BY: Final[Mapping[str, str]] = {
    "tenant": "tenant",
    "account": "tenant",
    "user": "user",
    "project": "project",
    "family": "family",
    "site": "site",
    "partition": "partition",
    "gpu-type": "gpu_type",
    "tier": "tier",
    "day": "day",
}
"""The words of ``--by``, and the columns that they mean."""
TIER: Final = "tier"
"""The column that no history has: the price list says it."""
HELD_NAMES: Final = (
    "start_up",
    "restore",
    "productive",
    "unknown",
    "save",
    "lost_preemption",
    "lost_failure",
    "lost_requeue",
    "failed",
)
"""The values of ``classes.HELD``."""
FREE_NAMES: Final = ("launching", "local", "drained", "down", "unreachable", "idle")
"""The values of ``classes.FREE``."""
FLAG_NAMES: Final = ("clock", "overlap", "missing", "job_id")
"""The values of ``classes.RecordFlag``."""
LOST_NAMES: Final = ("lost_preemption", "lost_failure", "lost_requeue")


class UsageRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of a report. GPU times are GPU-milliseconds."""

    key: tuple[str, ...] = ()
    sums: dict[str, int] = {}  # by ``days.MEASURES``
    free: dict[str, int] = {}  # by class, of what no attempt held; empty: nobody owns it
    supply_gpu_ms: int = 0
    beyond_gpu_ms: int = 0  # held beyond the supply: a record is wrong, or the supply not known
    cost: float | None = None  # None: nothing of it has a price
    idle_cost: float | None = None
    known_cost: float | None = None  # of GPUs, without the time that is ``unknown``
    priced_steps_gpu_ms: int | None = None  # productive, where GPUs have a price; None: nowhere
    lent_gpu_ms: int | None = None  # None: not asked for, or no quota of its own

    @property
    def held_gpu_ms(self) -> int:
        """All that attempts held."""
        return sum(self.sums.get(f"{name}_gpu_ms", 0) for name in HELD_NAMES)

    @property
    def lost_gpu_ms(self) -> int:
        """What had to be done again."""
        return sum(self.sums.get(f"{name}_gpu_ms", 0) for name in LOST_NAMES)

    @property
    def allocated_frac(self) -> float | None:
        """Held, of the supply."""
        return self.held_gpu_ms / self.supply_gpu_ms if self.supply_gpu_ms else None

    @property
    def compute_frac(self) -> float | None:
        """GPUs at work, of the held time that was watched."""
        watched = self.sums.get("watched_gpu_ms", 0)
        return self.sums.get("busy_gpu_ms", 0) / watched if watched else None

    @property
    def productive_frac(self) -> float | None:
        """Steps that were kept, of the held time whose class is known; None: of none of it."""
        steps = self.sums.get("productive_gpu_ms", 0)
        known = self.held_gpu_ms - self.sums.get("unknown_gpu_ms", 0)
        return steps / known if steps else None

    @property
    def effective_gpu_h(self) -> float | None:
        """What a productive GPU hour costs, of those that have a price; None: none has.

        Source:
            ``C_eff = C * T_total / T_productive`` of the fleet chapter, of time that was measured.
        """
        steps = self.priced_steps_gpu_ms
        return self.known_cost / (steps / 3.6e6) if steps and self.known_cost is not None else None


class UsageReport(msgspec.Struct, kw_only=True):
    """A report: its lines, greatest first, and the sum of all."""

    by: tuple[str, ...]
    start_s: float
    end_s: float
    at_s: float  # the history has all until then
    rows: tuple[UsageRow, ...]
    total: UsageRow
    currency: str = ""
    uncounted: int = 0  # attempts that are in no sum yet
    left_off: int = 0  # lines that one answer does not hold
    flagged: dict[str, dict[str, int]] = {}  # attempts by site and flag; only those that there are


def columns_of(by: Iterable[str]) -> tuple[str, ...]:
    """The columns that words of ``--by`` mean, each once.

    Raises:
        ValueError: a word is none of them.
    """
    found: dict[str, None] = {}
    for word in by:
        if word not in BY:
            raise ValueError(f"{word[:40]!r} is none of {', '.join(BY)}")
        found[BY[word]] = None
    return tuple(found)
