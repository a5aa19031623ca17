"""The standing of one workload in a ranking."""

from __future__ import annotations

from typing import NamedTuple

from federator.model.workload import WorkloadId


class Ranked(NamedTuple):
    """One workload's standing: the tuple <priority, credit> of MAST, with the terms of the credit.

    ``credit == age_term + fair_share_term - nice_term - non_preemptible_term``
    """

    id: WorkloadId
    priority: int  # 1 goes first
    within_quota: bool
    credit: float = 0.0
    age_term: float = 0.0
    fair_share_term: float = 0.0
    nice_term: float = 0.0
    non_preemptible_term: float = 0.0
