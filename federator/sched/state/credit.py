"""Credit, which orders workloads of one priority: age and fair share, less nice and other terms.

W = pending workloads, T = tenants. Every number is also to be had for one workload alone, equal to
the last bit: a pass ranks a few, a report ranks all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditWeights:
    """Tunables of MAST Expr 10-11, of ``--nice`` and of who may not be evicted; all >= 0.

    With the defaults an hour of waiting is worth 1, a tenant that used nothing is 24 hours ahead
    of one that used everything, ``--nice=100`` costs one hour, and not to be evicted two.
    """

    per_hour_waited: float = 1.0
    age_cap_h: float = 168.0
    fair_share: float = 24.0
    per_nice: float = 0.01
    non_preemptible: float = 2.0

    def __post_init__(self) -> None:
        weights = (
            self.per_hour_waited,
            self.age_cap_h,
            self.fair_share,
            self.per_nice,
            self.non_preemptible,
        )
        if not all(0 <= w < np.inf for w in weights):  # NaN fails too
            raise ValueError(f"credit weights must be non-negative numbers, got {self}")

    def age_term(self, age_s: float) -> float:
        """As ``age_terms``, for one workload."""
        return self.per_hour_waited * min(age_s / 3600.0, self.age_cap_h)

    def nice_term(self, nice: int) -> float:
        """The credit that self-demotion takes off; >= 0."""
        return self.per_nice * nice

    def non_preemptible_term(self, preemptible: bool) -> float:
        """The credit that it costs not to be evicted for another; >= 0."""
        return 0.0 if preemptible else self.non_preemptible


def age_terms(age_s: F64, weights: CreditWeights) -> F64:
    """The part of the credit that grows while a workload waits.

    ``per_hour_waited * min(age, age_cap)``

    Args:
        age_s: (W,) seconds since submission, >= 0.
        weights: see ``CreditWeights``.

    Returns:
        (W,) in ``[0, per_hour_waited * age_cap_h]``.

    Source:
        MAST (OSDI'24) sec. 4.2, Expr 10. Weight and cap are per hour and in hours here.
    """
    return weights.per_hour_waited * np.minimum(age_s / 3600.0, weights.age_cap_h)


def usage_shares(used_gpus: F64) -> F64:
    """Each tenant's part of all use.

    Args:
        used_gpus: (T,) mean weighted GPUs in use over the accounting window, >= 0.

    Returns:
        (T,) in [0, 1], adding up to 1; all 0 while nobody has used anything.

    Raises:
        ValueError: a value is negative, infinite or no number.
    """
    if not ((used_gpus >= 0) & (used_gpus < np.inf)).all():  # NaN fails too
        raise ValueError("usage must consist of finite non-negative numbers")
    total = used_gpus.sum()
    return used_gpus / total if total > 0 else np.zeros_like(used_gpus)


def fair_share_terms(used_gpus: F64, weights: CreditWeights) -> F64:
    """The part of the credit that a tenant's workloads share: the less it used, the more.

    ``fair_share * (1 - window_avg(tenant.used) / window_avg(all_tenants.used))``

    Args:
        used_gpus: (T,) as for ``usage_shares``.
        weights: see ``CreditWeights``.

    Returns:
        (T,) in ``[0, fair_share]``.

    Source:
        MAST (OSDI'24) sec. 4.2, Expr 11. The paper does not say whether ``all_tenants.used`` is
        the sum or the mean over tenants; it is the **sum** here, so that the term stays within
        ``[0, fair_share]`` whatever the number of tenants. While nobody has used anything every
        share is 0. What a child used is not counted again for its parent. Only GPUs count, unless
        CPUs and memory have weights: see ``model.resources.Resources.weighted_gpus``.
    """
    return weights.fair_share * (1.0 - usage_shares(used_gpus))
