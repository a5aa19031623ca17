"""Finds quotas that do not fit their use, and use that is out of the ordinary, by whole days.

It advises: nothing here changes a quota. A finding needs as many days as it compares; with fewer
there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from statistics import fmean, median, stdev
from typing import Final, NamedTuple

from federator.usage.days import DAY_MS, HELD_AT, MEASURES
from federator.usage.diagnosis import OF_QUOTAS, THRESHOLDS, Diagnosis, Thresholds
from federator.usage.report import Quota, UsageFound

COLUMNS: Final = ("day", "tenant")
"""By which the sums are wanted."""
_DAY_S: Final = DAY_MS / 1000
_BUSY_AT: Final = MEASURES.index("busy_gpu_ms")
_WATCHED_AT: Final = MEASURES.index("watched_gpu_ms")
_Z95: Final = 1.645  # under which 19 of 20 days are
_Z_BOTH: Final = 1.96  # of an interval that holds in 19 of 20 cases


class QueuedWorkload(NamedTuple):
    """The wait of a workload for its first start; times are Unix times, 0: not yet."""

    tenant: str
    gpus: int
    eligible_at_s: float
    left_at_s: float = 0.0  # it started, or was cancelled

    def waited_s(self, from_s: float, to_s: float) -> float:
        """The part of its wait that lies in a time."""
        return max(0.0, min(self.left_at_s or to_s, to_s) - max(self.eligible_at_s, from_s))


class PoweredTime(NamedTuple):
    """GPUs of an attempt that has ended, and the mean power that they drew; Unix times."""

    tenant: str
    gpus: int
    from_s: float
    to_s: float
    power_frac: float  # of what they may draw


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyUse:
    """Mean GPUs by day; all lists are as long as ``days``, which lack none between.

    Attributes:
        days: whole ones, since 1970 (UTC).
        held: by attempts, by tenant.
        busy: of those that were watched, by tenant.
        watched: likewise.
        supply: that the sites had.
        powered: whose power is known, by tenant; see ``with_power``.
        power: likewise, each times the part of its power that it drew.
    """

    days: Sequence[int]
    held: Mapping[str, Sequence[float]]
    busy: Mapping[str, Sequence[float]]
    watched: Mapping[str, Sequence[float]]
    supply: Sequence[float]
    powered: Mapping[str, Sequence[float]] = field(default_factory=dict)
    power: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def of(self, tenants: Iterable[str]) -> list[float]:
        """GPUs that these held together, by day."""
        rows = [self.held[name] for name in tenants if name in self.held]
        return [sum(row[k] for row in rows) for k in range(len(self.days))]

    @property
    def end_s(self) -> float:
        """The end of the last day."""
        return (self.days[-1] + 1) * _DAY_S


def daily_use(found: UsageFound) -> DailyUse:
    """The whole days among sums by ``COLUMNS``, from the first of which there is anything."""
    day_at, tenant_at = (found.columns.index(name) for name in COLUMNS)
    known = {int(key[day_at]) for key in found.sums} | {cell.day for cell in found.supply}
    days = [d for d in _whole_days(found) if known and d >= min(known)]
    place = {day: k for k, day in enumerate(days)}
    tables: tuple[dict[str, list[float]], ...] = ({}, {}, {})
    for key, values in found.sums.items():
        k = place.get(int(key[day_at]))
        if k is None:
            continue
        amounts = (sum(values[at] for at in HELD_AT), values[_BUSY_AT], values[_WATCHED_AT])
        for table, amount in zip(tables, amounts, strict=True):
            row = table.setdefault(str(key[tenant_at]), [0.0] * len(days))
            row[k] += amount / DAY_MS
    supply = [0.0] * len(days)
    for cell, had in found.supply.items():
        if cell.day in place:
            supply[place[cell.day]] += had.gpu_ms / DAY_MS
    held, busy, watched = tables
    return DailyUse(days=days, held=held, busy=busy, watched=watched, supply=supply)


def with_power(use: DailyUse, times: Iterable[PoweredTime]) -> DailyUse:
    """The same days with the power that was drawn; what lies outside of them is left out."""
    powered: dict[str, list[float]] = {}
    power: dict[str, list[float]] = {}
    days = len(use.days)
    for each in times:
        first_s = use.days[0] * _DAY_S if days else 0.0
        from_s, to_s = max(each.from_s, first_s), min(each.to_s, first_s + days * _DAY_S)
        frac = min(1.0, max(0.0, each.power_frac))
        while from_s < to_s:
            k = int((from_s - first_s) // _DAY_S)
            until_s = min(to_s, first_s + (k + 1) * _DAY_S)
            gpus = each.gpus * (until_s - from_s) / _DAY_S
            for table, amount in ((powered, gpus), (power, gpus * frac)):
                table.setdefault(each.tenant, [0.0] * days)[k] += amount
            from_s = until_s
    return replace(use, powered=powered, power=power)


def _whole_days(found: UsageFound) -> range:
    return range(ceil(found.start_s / _DAY_S), int(found.end_s // _DAY_S))


def review(
    use: DailyUse,
    quotas: Sequence[Quota],
    queue: Sequence[QueuedWorkload],
    bounds: Thresholds = THRESHOLDS,
) -> list[Diagnosis]:
    """All findings of the days, in the order of ``OF_QUOTAS``.

    Args:
        use: by day.
        quotas: that are configured now.
        queue: workloads that waited in those days, or wait.
        bounds: of the findings.
    """
    if not use.days:
        return []
    found: list[Diagnosis | None] = [
        over_commitment(use, quotas, queue, bounds),
        fall(use, bounds),
    ]
    for quota in quotas:
        found += [unused(use, quota, bounds), too_small(use, quota, queue, bounds)]
    for tenant in sorted({*use.held, *(each.tenant for each in queue)}):
        found += [
            hoarding(use, tenant, queue, bounds),
            self_hoarding(use, tenant, queue, bounds),
            surge(use, tenant, bounds),
            backlog(use, tenant, queue, bounds),
            busy_fall(use, tenant, bounds),
            power_fall(use, tenant, bounds),
        ]
    made = [each for each in found if each is not None]
    return sorted(made, key=lambda each: (OF_QUOTAS.index(each.kind), -each.gpu_h, each.tenant))


def unused(use: DailyUse, quota: Quota, bounds: Thresholds) -> Diagnosis | None:
    """A quota of which hardly anything was used for days: it could be lent for good."""
    of = use.of(quota.tenants)
    last = of[-bounds.unused_days :]
    if len(last) < bounds.unused_days or quota.gpus <= 0:
        return None
    if max(last) >= bounds.unused_frac * quota.gpus:
        return None
    days = 0
    for amount in reversed(of):
        if amount >= bounds.unused_frac * quota.gpus:
            break
        days += 1
    evidence = {
        "quota_gpus": quota.gpus,
        "used_gpus": fmean(last),
        "most_day_gpus": max(of),
        "days_below": float(days),
        "known_days": float(len(of)),
        "would_do_gpus": float(min(quota.gpus, ceil(max(of) * bounds.spare))),
    }
    wasted_h = sum(quota.gpus - amount for amount in last) * 24
    return _finding("unused-quota", quota.tenant, wasted_h, evidence)


def too_small(
    use: DailyUse, quota: Quota, queue: Iterable[QueuedWorkload], bounds: Thresholds
) -> Diagnosis | None:
    """A quota that is used up while its tenant's work waits: demand exceeds it, on average."""
    of = use.of(quota.tenants)[-bounds.norm_days :]
    if len(of) < bounds.norm_days or fmean(of) < bounds.full_frac * quota.gpus:
        return None
    mine = [each for each in queue if each.tenant in quota.tenants and each.gpus]
    waiting = _waiting(use, mine, len(of))
    long = _long_waits(use, mine, len(of), bounds)
    low, high = interval([a + b for a, b in zip(of, waiting, strict=True)])
    if long < bounds.long_waits or low <= quota.gpus:
        return None
    evidence = {
        "quota_gpus": quota.gpus,
        "used_gpus": fmean(of),
        "waiting_gpus": fmean(waiting),
        "long_waits": float(long),
        "demand_low_gpus": low,
        "demand_high_gpus": high,
    }
    return _finding("small-quota", quota.tenant, sum(waiting) * 24, evidence)


def hoarding(
    use: DailyUse, tenant: str, queue: Iterable[QueuedWorkload], bounds: Thresholds
) -> Diagnosis | None:
    """GPUs that a tenant holds and hardly uses while others wait for some."""
    evidence, n = _held_idle(use, tenant, bounds), bounds.norm_days
    if evidence is None:
        return None
    others = [each for each in queue if each.tenant != tenant and each.gpus]
    long = _long_waits(use, others, n, bounds)
    if long < bounds.long_waits:
        return None
    waits = {
        "others_long_waits": float(long),
        "others_wait_gpus": fmean(_waiting(use, others, n)),
    }
    return _finding("hoarding", tenant, _idle_gpu_h(evidence, n), evidence | waits)


def self_hoarding(
    use: DailyUse, tenant: str, queue: Iterable[QueuedWorkload], bounds: Thresholds
) -> Diagnosis | None:
    """GPUs that some jobs of a tenant hold and hardly use while others of its jobs wait."""
    evidence, n = _held_idle(use, tenant, bounds), bounds.norm_days
    if evidence is None:
        return None
    own = [each for each in queue if each.tenant == tenant and each.gpus]
    long = _long_waits(use, own, n, bounds)
    if long < bounds.long_waits:
        return None
    waits = {"own_long_waits": float(long), "own_wait_gpus": fmean(_waiting(use, own, n))}
    return _finding("self-hoarding", tenant, _idle_gpu_h(evidence, n), evidence | waits)


def _held_idle(use: DailyUse, tenant: str, bounds: Thresholds) -> dict[str, float] | None:
    """The figures of a tenant that hardly uses what it holds; None: it does, or nobody knows."""
    n = bounds.norm_days
    if len(use.days) < n or tenant not in use.held:
        return None
    held, busy, watched = (sum(t.get(tenant, ())[-n:]) for t in (use.held, use.busy, use.watched))
    if held < n * bounds.least_gpus or watched < bounds.watched_frac * held:
        return None
    if busy >= bounds.unused_frac * watched:
        return None
    return {
        "held_gpus": held / n,
        "busy_frac": busy / watched,
        "watched_frac": watched / held,
    }


def _idle_gpu_h(evidence: dict[str, float], days: int) -> float:
    return (1 - evidence["busy_frac"]) * evidence["held_gpus"] * days * 24


def over_commitment(
    use: DailyUse, quotas: Sequence[Quota], queue: Iterable[QueuedWorkload], bounds: Thresholds
) -> Diagnosis | None:
    """How much more could be promised than there is, by what of all quotas is used at once.

    The factor is all quotas through the use that 19 of 20 days stay below, taken as normal; the
    interval is that of this bound. What is advised is its lower end, and no more in all than the
    most through the fleet. A fleet that is full, or where work waits, is not under-used: use is
    then what there is, and says nothing of demand.
    """
    promised = sum(quota.gpus for quota in quotas)
    daily = [
        sum(min(quota.gpus, amount) for quota, amount in zip(quotas, row, strict=True))
        for row in zip(*(use.of(quota.tenants) for quota in quotas), strict=True)
    ]
    if len(daily) < bounds.commit_days or promised <= 0:
        return None
    spread = stdev(daily)
    top = fmean(daily) + _Z95 * spread
    error = _Z_BOTH * spread * sqrt(1 / len(daily) + _Z95**2 / (2 * (len(daily) - 1)))
    supply = fmean(use.supply)
    advised = min(bounds.commit_high * supply / promised, promised / (top + error or 1.0))
    if top <= 0 or advised < bounds.commit_low or top + error >= bounds.full_frac * supply:
        return None
    waited = _long_waits(use, (each for each in queue if each.gpus), len(daily), bounds)
    if waited >= bounds.long_waits:
        return None
    evidence = {
        "promised_gpus": promised,
        "used_gpus": fmean(daily),
        "top_gpus": top,
        "factor": promised / top,
        "factor_low": promised / (top + error),
        "factor_high": promised / max(top - error, 1e-9) if top > error else promised / top,
        "advised_factor": min(bounds.commit_high, advised),
        "supply_gpus": supply,
        "known_days": float(len(daily)),
    }
    return _finding("over-commit", "", 0.0, evidence)


def surge(use: DailyUse, tenant: str, bounds: Thresholds) -> Diagnosis | None:
    """A day on which a tenant held several times what it is used to."""
    of = use.of([tenant])
    if len(of) <= bounds.norm_days:
        return None
    norm = median(of[-bounds.norm_days - 1 : -1])
    if norm < bounds.least_gpus or of[-1] <= bounds.surge_times * norm:
        return None
    evidence = {"used_gpus": of[-1], "norm_gpus": norm, "times": of[-1] / norm}
    return _finding("surge", tenant, (of[-1] - norm) * 24, evidence)


def backlog(
    use: DailyUse, tenant: str, queue: Iterable[QueuedWorkload], bounds: Thresholds
) -> Diagnosis | None:
    """A queue that grows faster than it drains, day after day."""
    mine = [each for each in queue if each.tenant == tenant]
    came_all = left_all = 0
    for back in range(min(bounds.backlog_days, len(use.days))):
        to_s = use.end_s - back * _DAY_S
        came = sum(to_s - _DAY_S <= each.eligible_at_s < to_s for each in mine)
        left = sum(to_s - _DAY_S <= each.left_at_s < to_s for each in mine)
        if came < bounds.backlog_jobs or came <= bounds.backlog_times * left:
            return None
        came_all, left_all = came_all + came, left_all + left
    wait = [e for e in mine if e.eligible_at_s < use.end_s and not 0 < e.left_at_s < use.end_s]
    if len(use.days) < bounds.backlog_days or len(wait) < bounds.backlog_jobs:
        return None
    days = float(bounds.backlog_days)
    evidence = {"came": float(came_all), "left": float(left_all), "days": days}
    return _finding("backlog", tenant, 0.0, evidence | {"waiting": float(len(wait))})


def fall(use: DailyUse, bounds: Thresholds) -> Diagnosis | None:
    """A day on which much less of the fleet was held than is usual."""
    of = [a / s if s else None for a, s in zip(use.of(use.held), use.supply, strict=True)]
    before = [part for part in of[-bounds.norm_days - 1 : -1] if part is not None]
    if len(before) < bounds.norm_days or of[-1] is None:
        return None
    norm = median(before)
    if norm < bounds.unused_frac or of[-1] >= bounds.fall_frac * norm:
        return None
    gpu_h = (norm - of[-1]) * use.supply[-1] * 24
    return _finding("fall", "", gpu_h, {"held_frac": of[-1], "norm_frac": norm})


def busy_fall(use: DailyUse, tenant: str, bounds: Thresholds) -> Diagnosis | None:
    """A day on which a tenant's GPUs did much less than is usual."""
    fell = _fallen(use, tenant, (use.busy, use.watched), bounds)
    if fell is None:
        return None
    evidence = {"busy_frac": fell.last, "norm_frac": fell.norm, "watched_gpus": fell.gpus}
    return _finding("busy-fall", tenant, fell.gpu_h, evidence)


def power_fall(use: DailyUse, tenant: str, bounds: Thresholds) -> Diagnosis | None:
    """A day on which a tenant's GPUs drew much less than is usual, however busy they were.

    A rank that waits in a collective is busy and draws little; so does a GPU that is throttled.
    """
    fell = _fallen(use, tenant, (use.power, use.powered), bounds)
    if fell is None:
        return None
    evidence = {"power_frac": fell.last, "norm_frac": fell.norm, "watched_gpus": fell.gpus}
    watched = use.watched.get(tenant)
    if watched and watched[-1] > 0:
        evidence["busy_frac"] = use.busy[tenant][-1] / watched[-1]
    return _finding("power-fall", tenant, fell.gpu_h, evidence)


class _Fall(NamedTuple):
    """A part that has fallen: on the last day, on most before, and of how many GPUs."""

    last: float
    norm: float
    gpus: float

    @property
    def gpu_h(self) -> float:
        """The GPU-hours of the day that it fell short by."""
        return (1 - self.last / self.norm) * self.gpus * 24


def _fallen(
    use: DailyUse,
    tenant: str,
    tables: tuple[Mapping[str, Sequence[float]], Mapping[str, Sequence[float]]],
    bounds: Thresholds,
) -> _Fall | None:
    """The fall of a part of known GPUs; None: there is none, or too few days are known well."""
    held, part, known = (table.get(tenant, ()) for table in (use.held, *tables))
    if len(held) <= bounds.norm_days or not known:
        return None
    fracs = [
        some / gpus if gpus >= max(bounds.least_gpus, bounds.watched_frac * all_) else None
        for all_, some, gpus in zip(held, part, known, strict=True)
    ]
    before = [frac for frac in fracs[-bounds.norm_days - 1 : -1] if frac is not None]
    last = fracs[-1]
    if last is None or len(before) < bounds.fall_known_days:
        return None
    norm = median(before)
    if norm < bounds.unused_frac or last >= bounds.fall_frac * norm:
        return None
    return _Fall(last, norm, known[-1])


def interval(values: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the mean in 19 of 20 cases, by the values' spread."""
    half = _Z_BOTH * stdev(values) / sqrt(len(values)) if len(values) > 1 else float("inf")
    return fmean(values) - half, fmean(values) + half


def _waiting(use: DailyUse, queue: Sequence[QueuedWorkload], days: int) -> list[float]:
    """The mean of the GPUs that workloads wait for, on each of the last days."""
    ends = [use.end_s - back * _DAY_S for back in reversed(range(days))]
    return [
        sum(each.gpus * each.waited_s(to_s - _DAY_S, to_s) for each in queue) / _DAY_S
        for to_s in ends
    ]


def _long_waits(
    use: DailyUse, queue: Iterable[QueuedWorkload], days: int, bounds: Thresholds
) -> int:
    """How many waited for long, in the last days."""
    from_s = use.end_s - days * _DAY_S
    return sum(each.waited_s(from_s, use.end_s) > bounds.long_wait_s for each in queue)


def _finding(kind: str, tenant: str, gpu_h: float, evidence: dict[str, float]) -> Diagnosis:
    rounded = {name: round(value, 4) for name, value in evidence.items()}
    return Diagnosis(kind=kind, tenant=tenant, gpu_h=round(gpu_h, 3), evidence=rounded)
