"""Says how each quota fits its tenant, and how far all together may exceed the fleet.

By whole weeks: the days of a week depend on one another, weeks much less, so intervals are those
of a mean of weeks. It advises: nothing here changes a quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, inf, sqrt
from statistics import fmean, stdev
from typing import Final, NamedTuple

import msgspec

from federator.usage.diagnosis import THRESHOLDS
from federator.usage.quota_review import DailyUse, QueuedWorkload
from federator.usage.report import Quota

FEWEST_WEEKS: Final = 3
MOST_FACTOR: Final = THRESHOLDS.commit_high
_SPARE: Final = THRESHOLDS.spare
_WEEK: Final = 7
_DAY_S: Final = 86_400.0
_T95: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201)
"""Student's t by degrees of freedom, from 1; of intervals that hold in 19 of 20 cases."""


class QuotaFit(msgspec.Struct, frozen=True, kw_only=True):
    """How one quota fits; amounts are GPUs, intervals hold in 19 of 20 cases.

    ``verdict``: "more": the demand of a mean week is above the quota, by the lower end of its
    interval; "less": even the busiest day of a mean week, by the upper end, leaves a fifth of the
    quota or more; "fits"; "unknown": too few weeks.
    """

    tenant: str
    quota_gpus: float
    verdict: str
    held_gpus: float = 0.0
    demand_gpus: float = 0.0  # held, and waited for
    demand_low_gpus: float = 0.0
    demand_high_gpus: float = 0.0
    busiest_day_gpus: float = 0.0  # of a mean week
    busiest_high_gpus: float = 0.0
    would_do_gpus: float = 0.0  # a quota that would; 0: as it is


class OverCommitment(msgspec.Struct, frozen=True, kw_only=True):
    """How many times the fleet quotas may promise.

    With ``factor`` demand within quota would have exceeded the fleet for ``risk_frac`` of the time.
    """

    promised_gpus: float
    supply_gpus: float
    risk_frac: float
    exceeded_frac: float  # of the time, demand within today's quotas exceeded the fleet
    factor: float
    worst_week_factor: float
    advised_factor: float  # the worst week's, within bounds


class Demand(NamedTuple):
    """GPUs that somebody holds or waits for; Unix times, ``to_s`` 0: it goes on."""

    tenant: str
    gpus: int
    from_s: float
    to_s: float


def fits(use: DailyUse, quotas: Sequence[Quota], queue: Sequence[QueuedWorkload]) -> list[QuotaFit]:
    """How each quota fits, in the order of names; the days of no whole week do not count."""
    weeks = len(use.days) // _WEEK
    return [_fit(use, quota, queue, weeks) for quota in sorted(quotas)]


def _fit(use: DailyUse, quota: Quota, queue: Sequence[QueuedWorkload], weeks: int) -> QuotaFit:
    if weeks < FEWEST_WEEKS:
        return QuotaFit(tenant=quota.tenant, quota_gpus=quota.gpus, verdict="unknown")
    days = weeks * _WEEK
    held = use.of(quota.tenants)[-days:]
    mine = [each for each in queue if each.tenant in quota.tenants and each.gpus]
    wanted = [gpus + more for gpus, more in zip(held, _waiting(use, mine, days), strict=True)]
    by_week = [wanted[k : k + _WEEK] for k in range(0, days, _WEEK)]
    low, high = interval([fmean(week) for week in by_week])
    busiest = [max(week) for week in by_week]
    _, busiest_high = interval(busiest)
    verdict, would_do = "fits", 0.0
    if low > quota.gpus:
        verdict, would_do = "more", float(ceil(low))
    elif busiest_high * _SPARE < quota.gpus:
        verdict, would_do = "less", float(ceil(busiest_high * _SPARE))
    return QuotaFit(
        tenant=quota.tenant,
        quota_gpus=quota.gpus,
        verdict=verdict,
        held_gpus=fmean(held),
        demand_gpus=fmean(wanted),
        demand_low_gpus=max(0.0, low),
        demand_high_gpus=high,
        busiest_day_gpus=fmean(busiest),
        busiest_high_gpus=busiest_high,
        would_do_gpus=would_do,
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the mean of independent values in 19 of 20 cases (Student's)."""
    number = len(values)
    if number < 2:
        return -inf, inf
    t = _T95[min(number - 2, len(_T95) - 1)]
    half = t * stdev(values) / sqrt(number)
    return fmean(values) - half, fmean(values) + half


def _waiting(use: DailyUse, queue: Iterable[QueuedWorkload], days: int) -> list[float]:
    """The mean of the GPUs that workloads wait for, on each of the last days."""
    first_s = use.end_s - days * _DAY_S
    found = [0.0] * days
    for each in queue:
        from_s, to_s = max(each.eligible_at_s, first_s), min(each.left_at_s or inf, use.end_s)
        while from_s < to_s:
            day = int((from_s - first_s) // _DAY_S)
            until_s = min(to_s, first_s + (day + 1) * _DAY_S)
            found[day] += each.gpus * (until_s - from_s) / _DAY_S
            from_s = until_s
    return found


def over_commitment(
    use: DailyUse, quotas: Sequence[Quota], demands: Iterable[Demand], risk_frac: float
) -> OverCommitment | None:
    """How many times the fleet quotas may promise; None: too few weeks, or no demand.

    Each tenant is taken to use the same part of a larger quota as of today's. Demand within quota
    is what is held and waited for, moment by moment, at most each quota: so it is not bounded by
    the fleet as use is, and peaks within a day count.

    Args:
        use: by day; its supply counts.
        quotas: the highest ones.
        demands: of their tenants, in any order.
        risk_frac: of the time in which demand may exceed the fleet.
    """
    weeks, promised = len(use.days) // _WEEK, sum(quota.gpus for quota in quotas)
    if weeks < FEWEST_WEEKS or promised <= 0:
        return None
    by_week: list[list[tuple[float, float]]] = [[] for _ in range(weeks)]
    for back, load, lasts_s in _loads(use, quotas, demands):
        if back < weeks:
            by_week[back].append((load, lasts_s))
    everything = [each for week in by_week for each in week]
    top = quantile(everything, 1 - risk_frac)
    supply = fmean(use.supply[-weeks * _WEEK :])
    if top <= 0 or supply <= 0:
        return None
    worst = max(quantile(week, 1 - risk_frac) for week in by_week)
    now = promised / supply
    return OverCommitment(
        promised_gpus=promised,
        supply_gpus=supply,
        risk_frac=risk_frac,
        exceeded_frac=_above(everything, 1.0),
        factor=now / top,
        worst_week_factor=now / worst,
        advised_factor=min(MOST_FACTOR, max(1.0, now / worst)),
    )


def _loads(
    use: DailyUse, quotas: Sequence[Quota], demands: Iterable[Demand]
) -> Iterator[tuple[int, float, float]]:
    """Weeks back, demand within quota as a part of the supply, and how long it was so."""
    first_s = use.days[0] * _DAY_S
    place = {name: k for k, quota in enumerate(quotas) for name in quota.tenants}
    changes = [(first_s + k * _DAY_S, -1, 0) for k in range(len(use.days) + 1)]
    for each in demands:
        k = place.get(each.tenant)
        from_s, to_s = max(each.from_s, first_s), min(each.to_s or inf, use.end_s)
        if k is not None and from_s < to_s:
            changes += [(from_s, k, each.gpus), (to_s, k, -each.gpus)]
    changes.sort()
    wanted, within, at_s = [0.0] * len(quotas), 0.0, first_s
    for next_s, k, gpus in changes:
        day = min(int((at_s - first_s) // _DAY_S), len(use.days) - 1)
        if next_s > at_s and use.supply[day] > 0:
            yield (len(use.days) - 1 - day) // _WEEK, within / use.supply[day], next_s - at_s
        at_s = next_s
        if k >= 0:
            before = min(wanted[k], quotas[k].gpus)
            wanted[k] += gpus
            within += min(wanted[k], quotas[k].gpus) - before


def quantile(loads: Iterable[tuple[float, float]], part: float) -> float:
    """The value that a weighted series does not exceed for this part of its weight; 0 of none."""
    ordered = sorted(loads)
    left = part * sum(weight for _, weight in ordered)
    for value, weight in ordered:
        left -= weight
        if left <= 1e-9:
            return value
    return ordered[-1][0] if ordered else 0.0


def _above(loads: Sequence[tuple[float, float]], bound: float) -> float:
    total = sum(weight for _, weight in loads)
    return sum(weight for value, weight in loads if value > bound) / total if total else 0.0
