"""What do evictions destroy, and for whom? The preemption tax, in GPU-seconds.

Destroyed is what the victim's GPUs did after the last moment that was of use: when it was told to
leave, if it has saved since; else when its last known checkpoint was complete; else its start. So
saving and leaving count as well. What the restart costs (loading, warming up) is not seen here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from federator.model.site import Leave
from federator.model.workload import TenantName


def destroyed_gpu_s(
    gpus: int, started_at_s: float, ended_at_s: float, leave: Leave | None
) -> float:
    """GPU-seconds lost with one attempt that was made to leave.

    Args:
        gpus: that it held.
        started_at_s: Unix time.
        ended_at_s: Unix time, not before ``started_at_s``.
        leave: how it left; None: nothing is known of it.
    """
    useful_until_s = started_at_s
    if leave is not None:
        useful_until_s = max(started_at_s, min(leave.told_at_s, leave.saved_at_s))
    return gpus * max(0.0, ended_at_s - useful_until_s)


@dataclass(slots=True)
class PreemptionTax:
    """GPU-seconds destroyed since the log began: for whom that was done, and to whom."""

    by_preemptor: dict[TenantName, float] = field(default_factory=dict)
    by_victim: dict[TenantName, float] = field(default_factory=dict)
    victims: int = 0
    gpu_s: float = 0.0

    def add(self, preemptor: TenantName, victim: TenantName, gpu_s: float) -> None:
        """Take in what one eviction has destroyed."""
        self.by_preemptor[preemptor] = self.by_preemptor.get(preemptor, 0.0) + gpu_s
        self.by_victim[victim] = self.by_victim.get(victim, 0.0) + gpu_s
        self.victims += 1
        self.gpu_s += gpu_s
