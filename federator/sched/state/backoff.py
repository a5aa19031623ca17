"""Computes for how long a site that failed a workload is not asked for it again."""

from __future__ import annotations

from typing import Final

from federator.model.reason import ReasonCode

RETRY_AFTER_S: Final = 5.0
RETRY_AFTER_MAX_S: Final = 600.0
PREEMPTING_SITE_S: Final = 60.0  # whose own work took the nodes
REFUSING_SITE_S: Final = 3600.0  # which refused it for good; its admin may mend that
PLANS_TRIED: Final = 5
"""Plans refused in a row with nothing else between them, after which no plan is to blame: nodes may
have changed between sweep and launch, or a file may just have been written at another site, once or
twice, not through more than a minute of pauses."""
OF_THE_PLAN: Final = frozenset({ReasonCode.PLAN_REFUSED, ReasonCode.FILES})


def is_for_good(code: ReasonCode, plans_refused: int) -> bool:
    """Whether a site would refuse the workload again, as things are there.

    Args:
        code: of its last setback there.
        plans_refused: there, in a row.
    """
    of_plan = code in OF_THE_PLAN and plans_refused >= PLANS_TRIED
    return of_plan or code is ReasonCode.SBATCH_REFUSED


def pause_s(code: ReasonCode, failures: int, plans_refused: int = 0) -> float:
    """The pause after the last of so many failures in a row: twice as long each time."""
    if is_for_good(code, plans_refused):
        return REFUSING_SITE_S
    first_s = PREEMPTING_SITE_S if code is ReasonCode.PREEMPTED else RETRY_AFTER_S
    return min(RETRY_AFTER_MAX_S, first_s * 2.0 ** (failures - 1))
