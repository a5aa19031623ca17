"""Says how the sites' own jobs went, how they would have gone, and how far to trust that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, isinf
from statistics import median
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct

from federator.model.workload import SiteName, TenantName
from federator.sim.importers.local_history import Period, Unseen
from federator.sim.local_replay import LocalFate, LocalReplay
from federator.sim.report.bootstrap import Interval, mean_interval, ratio_interval
from federator.sim.report.divergence import Divergences
from federator.sim.report.divergence_counts import (
    DivergenceCount,
    DivergenceReport,
    divergence_report,
)
from federator.sim.report.gpu_time import DAY_S, GpuTime, Use, gpu_time
from federator.sim.report.promotion import Rule, RuleFigures, promotion_rules

SIZES: Final = ((1, "1"), (7, "2-7"), (8, "8"), (64, "9-64"))
LARGER: Final = ">64"
ALL_SIZES: Final = (*(name for _, name in SIZES), LARGER)
WORSE_S: Final = 60.0  # that the mean wait of an account may grow
WORSE_FRAC: Final = 0.1  # likewise, of what it was
ASSUMED: Final = (
    "a job runs as long under the federation as it did, at whatever site",
    "a job takes only the type of GPU on which it ran, unless --any-gpu; partitions, features, "
    "CPUs and memory do not hold it back",
    "what was submitted, and when, would have been the same",
    "nobody is evicted, and starting takes no time",
    "times are by each site's own clock",
    "sites had the nodes that they have now, all of them up",
    "jobs that ran when the record begins came when they started; those that run at its end hold "
    "their GPUs to it",
    "a job that ended between two looks did so at the second",
    "jobs that never started by the end of the record are left out of both sides, but stand in the "
    "queue of a site that is replayed by itself until they left it, or hold their GPUs there till "
    "then",
)


class Waits(Struct, frozen=True):
    """Of some jobs, in seconds; ``p95_s``: the least that 95 % do not exceed."""

    mean_s: float
    median_s: float
    p95_s: float


class WaitComparison(Struct, frozen=True):
    """Jobs of a size, of an account, or all. ``change_s``: of the mean wait; null: too few days.

    ``never_started``: the federation would not have started them at all; they count nowhere else.
    """

    name: str
    jobs: int
    never_started: int
    real: Waits | None
    federated: Waits | None
    change_s: Interval | None
    worse: bool


class UseChange(Struct, frozen=True):
    """A part of all GPU time, as it was and as it would have been."""

    real_frac: float
    federated_frac: float
    real: Interval | None
    federated: Interval | None


class SiteReport(Struct, frozen=True):
    """One site. ``alone``: waits in a replay of it by itself.

    ``response_error_frac``: of the mean time from submission to end in that replay, against what
    happened; ``response_error``: its interval, above 0 where the replay is longer; None: too few
    days. ``start_error_s``: half of the jobs started no further from when they did.
    """

    site: str
    mode: str
    gpus: int
    jobs: int
    real: Waits | None
    alone: Waits | None
    response_error_frac: float | None
    response_error: Interval | None
    start_error_s: float | None
    unseen: Unseen
    left_out: dict[str, int]
    rules: list[Rule]


class TenantReport(Struct, frozen=True):
    """A tenant whose jobs were seen, and how it stands by the rules, at all sites together."""

    tenant: str
    mode: str
    jobs: int
    rules: list[Rule]


class LocalReport(Struct, frozen=True):
    """What ``federator shadow report --json`` prints."""

    schema: int
    begin_s: float
    end_s: float
    policy: str
    seed: int
    in_all: WaitComparison
    sizes: list[WaitComparison]
    accounts: list[WaitComparison]
    allocation: UseChange
    stranded: UseChange
    sites: list[SiteReport]
    assumptions: list[str]
    divergences: DivergenceReport
    tenants: list[TenantReport]


class Modes(NamedTuple):
    """Of each site, and of each tenant of federation.yaml; other tenants have no rules.

    ``leave``: of each site the rule on its last leave drill, which the replay knows nothing of.
    """

    sites: Mapping[SiteName, str]
    tenants: Mapping[TenantName, str]
    leave: Mapping[SiteName, Rule] = MappingProxyType({})


class _Watched(NamedTuple):
    """How a site was watched, and how it is configured; ``leave``: as of ``Modes``."""

    unseen: Unseen
    mode: str
    leave: Rule | None
    period: Period
    divergences: DivergenceCount
    seed: int


def local_report(
    replayed: LocalReplay,
    period: Period,
    unseen: Mapping[SiteName, Unseen],
    modes: Modes,
    policy: str,
    seed: int,
) -> LocalReport:
    """Make the report; the jobs of the record's beginning are load, and are not measured.

    Args:
        replayed: the jobs, as they went and would have gone.
        period: that was looked at.
        unseen: of each site, what the record does not tell.
        modes: of sites and tenants.
        policy: its name.
        seed: of the draws of days.
    """
    measured = [fate for fate in replayed.fates if fate.measured]
    accounts = _grouped(measured, lambda fate: fate.tenant)
    of_accounts = [_compared(name, accounts[name], seed) for name in sorted(accounts)]
    worse = [each.name for each in of_accounts if each.worse]
    sizes = _grouped(measured, lambda fate: size_of(fate.past.gpus))
    real, after = _gpu_times(replayed, period)
    divergences, leave = _divergences(replayed, measured), modes.leave
    watched = {
        site: _Watched(unseen[site], modes.sites[site], leave.get(site), period, count, seed)
        for site, count in zip(replayed.gpus, divergences.sites, strict=True)
    }
    return LocalReport(
        schema=1,
        begin_s=period.begin_s,
        end_s=period.end_s,
        policy=policy,
        seed=seed,
        in_all=_compared("ALL", measured, seed),
        sizes=[_compared(name, sizes[name], seed) for name in ALL_SIZES if name in sizes],
        accounts=of_accounts,
        allocation=_use_change(real, after, lambda use: use.held_gpu_s, seed),
        stranded=_use_change(real, after, lambda use: use.stranded_gpu_s, seed),
        sites=[_site(site, measured, replayed, of, worse) for site, of in watched.items()],
        assumptions=list(ASSUMED),
        divergences=divergences,
        tenants=[
            _tenant(mode, count, _figures(count, accounts[count.name], period, unseen, worse, seed))
            for count in divergences.accounts
            if (mode := modes.tenants.get(TenantName(count.name))) is not None
        ],
    )


def _gpu_times(replayed: LocalReplay, period: Period) -> tuple[GpuTime, GpuTime]:
    """As it was, and as it would have been."""
    gpus = sum(replayed.gpus.values())
    real = gpu_time(*_real_uses(replayed.fates), gpus, period.begin_s, period.end_s)
    after = gpu_time(*_federated_uses(replayed.fates, period), gpus, period.begin_s, period.end_s)
    return real, after


def _divergences(replayed: LocalReplay, measured: Sequence[LocalFate]) -> DivergenceReport:
    seen = Divergences.of(replayed)
    return divergence_report([(fate, seen.reason(fate)) for fate in measured], replayed.gpus)


def _tenant(mode: str, count: DivergenceCount, figures: RuleFigures) -> TenantReport:
    return TenantReport(
        tenant=count.name, mode=mode, jobs=count.jobs, rules=promotion_rules(figures)
    )


def _figures(
    count: DivergenceCount,
    own: Sequence[LocalFate],
    period: Period,
    unseen: Mapping[SiteName, Unseen],
    worse: Sequence[str],
    seed: int,
) -> RuleFigures:
    """Of a tenant; how well its sites were seen is as at the worst of those where it has jobs."""
    lasted_s = period.end_s - period.begin_s
    replayed = [fate for fate in own if fate.alone_start_s is not None]
    there = [unseen[site] for site in dict.fromkeys(fate.past.site for fate in own)]
    unwatched_s = max((each.unwatched_s for each in there), default=0.0)
    return RuleFigures(
        watched_s=lasted_s - unwatched_s,
        unwatched_frac=unwatched_s / lasted_s,
        left_out_frac=max((each.left_out_frac for each in there), default=0.0),
        jobs=count.jobs,
        response_error_frac=_response_error_frac(replayed),
        response_error=_response_error(replayed, seed),
        divergences=count,
        worse=tuple(name for name in worse if name == count.name),
        never_frac=_never_frac(own),
    )


def size_of(gpus: int) -> str:
    """The class of a job of so many GPUs."""
    return next((name for most, name in SIZES if gpus <= most), LARGER)


def _grouped(
    fates: Iterable[LocalFate], key: Callable[[LocalFate], str]
) -> dict[str, list[LocalFate]]:
    found: dict[str, list[LocalFate]] = {}
    for fate in fates:
        found.setdefault(key(fate), []).append(fate)
    return found


def _waits(values: Sequence[float]) -> Waits | None:
    """Of those that are finite."""
    known = sorted(value for value in values if not isinf(value))
    if not known:
        return None
    p95_s = known[ceil(0.95 * len(known)) - 1]
    return Waits(sum(known) / len(known), float(median(known)), p95_s)


def _compared(name: str, fates: Sequence[LocalFate], seed: int) -> WaitComparison:
    started = [fate for fate in fates if fate.federated_start_s is not None]
    changes = [fate.federated_wait_s - fate.wait_s for fate in started]
    days = [int(fate.past.came_s // DAY_S) for fate in started]
    real = _waits([fate.wait_s for fate in started])
    federated = _waits([fate.federated_wait_s for fate in started])
    change_s = mean_interval(changes, days, seed)
    never = len(fates) - len(started)
    return WaitComparison(
        name=name,
        jobs=len(started),
        never_started=never,
        real=real,
        federated=federated,
        change_s=change_s,
        worse=bool(never) or _is_worse(real, federated, change_s),
    )


def _is_worse(real: Waits | None, federated: Waits | None, change_s: Interval | None) -> bool:
    """Whether the mean wait grows by more than may be, and not by the choice of days alone."""
    if real is None or federated is None:
        return False
    grows_s = federated.mean_s - real.mean_s
    if grows_s <= max(WORSE_S, WORSE_FRAC * real.mean_s):
        return False
    return change_s is None or change_s.low > 0


def _real_uses(fates: Sequence[LocalFate]) -> tuple[list[Use], list[Use]]:
    held = [Use(gpus, start, end) for f in fates for start, end, gpus in f.past.held]
    return held, [Use(f.past.gpus, f.past.came_s, f.past.start_s) for f in fates if f.wait_s > 0]


def _federated_uses(fates: Sequence[LocalFate], period: Period) -> tuple[list[Use], list[Use]]:
    held = [Use(f.past.gpus, s.start_s, s.end_s) for f in fates for s in f.federated_stays]
    waits = [
        Use(
            f.past.gpus,
            f.past.came_s,
            period.end_s if f.federated_start_s is None else f.federated_start_s,
        )
        for f in fates
        if f.federated_wait_s > 0 and f.past.came_s < period.end_s
    ]
    return held, waits


def _use_change(
    real: GpuTime, after: GpuTime, part: Callable[[GpuTime], dict[int, float]], seed: int
) -> UseChange:
    def frac(use: GpuTime) -> float:
        whole = sum(use.all_gpu_s.values())
        return sum(part(use).values()) / whole if whole else 0.0

    return UseChange(
        real_frac=frac(real),
        federated_frac=frac(after),
        real=ratio_interval(part(real), real.all_gpu_s, seed),
        federated=ratio_interval(part(after), after.all_gpu_s, seed),
    )


def _site(
    name: SiteName,
    measured: Sequence[LocalFate],
    replayed: LocalReplay,
    watched: _Watched,
    worse: Sequence[str],
) -> SiteReport:
    unseen, lasted_s = watched.unseen, watched.period.end_s - watched.period.begin_s
    there = [fate for fate in measured if fate.past.site == name]
    own = [fate for fate in there if fate.alone_start_s is not None]
    left = [job for job in replayed.left_out if job.pool.partition("/")[0] == name]
    error, within = _response_error_frac(own), _response_error(own, watched.seed)
    here = {fate.tenant for fate in there}
    figures = RuleFigures(
        watched_s=lasted_s - unseen.unwatched_s,
        unwatched_frac=unseen.unwatched_s / lasted_s,
        left_out_frac=unseen.left_out_frac,
        jobs=len(own),
        response_error_frac=error,
        response_error=within,
        divergences=watched.divergences,
        worse=tuple(name for name in worse if name in here),
        never_frac=_never_frac(there),
    )
    return SiteReport(
        site=name,
        mode=watched.mode,
        gpus=replayed.gpus[name],
        jobs=len(own),
        real=_waits([fate.wait_s for fate in own]),
        alone=_waits([fate.alone_wait_s for fate in own]),
        response_error_frac=error,
        response_error=within,
        start_error_s=_start_error_s(own),
        unseen=unseen,
        left_out=dict(Counter(job.reason.value for job in left)),
        rules=promotion_rules(figures) + ([watched.leave] if watched.leave else []),
    )


def _never_frac(fates: Sequence[LocalFate]) -> float:
    """The part that never starts in the replay of its site by itself."""
    return sum(fate.alone_start_s is None for fate in fates) / len(fates) if fates else 0.0


def _response_error_frac(fates: Sequence[LocalFate]) -> float | None:
    real_s = sum(fate.wait_s + fate.past.duration_s for fate in fates)
    alone_s = sum(fate.alone_wait_s + fate.past.duration_s for fate in fates)
    return abs(alone_s - real_s) / real_s if real_s else None


def _response_error(fates: Sequence[LocalFate], seed: int) -> Interval | None:
    """Of the signed error, by the days on which jobs came."""
    off_s: dict[int, float] = {}
    real_s: dict[int, float] = {}
    for fate in fates:
        day = int(fate.past.came_s // DAY_S)
        off_s[day] = off_s.get(day, 0.0) + fate.alone_wait_s - fate.wait_s
        real_s[day] = real_s.get(day, 0.0) + fate.wait_s + fate.past.duration_s
    return ratio_interval(off_s, real_s, seed)


def _start_error_s(fates: Sequence[LocalFate]) -> float | None:
    errors = [abs(fate.alone_wait_s - fate.wait_s) for fate in fates]
    return float(median(errors)) if errors else None
