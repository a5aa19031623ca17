"""Which settings of the federation do its decisions depend on?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of the federation that decisions depend on.

    Attributes:
        launch_lease_s: within it a launched workload must have started.
        pass_interval_s: between two passes when nothing changes.
        bid_timeout_s: within it a site must answer.
        window: workloads asked about in one message to a site.
        preempt_gpus: that may be evicted in any ``preempt_window_s``, all sites together; 0:
            nobody is evicted.
        grace_s: that a victim has to save and to leave.
        cooldown_s: after an eviction, in which a workload is not evicted again.
        min_run_s: after a launch, in which a workload is not evicted.
    """

    launch_lease_s: float = 60.0
    pass_interval_s: float = 300.0
    bid_timeout_s: float = 5.0
    window: int = 500
    preempt_gpus: float = 0.0
    preempt_window_s: float = 300.0
    grace_s: float = 120.0
    cooldown_s: float = 1800.0
    min_run_s: float = 0.0
