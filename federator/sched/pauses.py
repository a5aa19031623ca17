"""Computes for how long a site that failed a workload is not asked for it again."""

from __future__ import annotations

from typing import Final

from federator.model.reason import ReasonCode

RETRY_AFTER_S: Final = 5.0
RETRY_AFTER_MAX_S: Final = 600.0
PREEMPTING_SITE_S: Final = 60.0  # whose own work took the nodes
REFUSING_SITE_S: Final = 3600.0  # whose sbatch refused it for good; its admin may mend that


def pause_s(code: ReasonCode, failures: int) -> float:
    """The pause after the last of so many failures in a row: twice as long each time."""
    if code is ReasonCode.SBATCH_REFUSED:
        return REFUSING_SITE_S
    first_s = PREEMPTING_SITE_S if code is ReasonCode.PREEMPTED else RETRY_AFTER_S
    return min(RETRY_AFTER_MAX_S, first_s * 2.0 ** (failures - 1))
