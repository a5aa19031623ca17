"""Finds jobs whose GPUs wait: for input, for other ranks, for one slow rank; and too large GPUs.

By how the nodes' watch saw them swing, and by what trainings tell of their steps. See
``job_doctor``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from statistics import fmean

from federator.usage.diagnosis import Diagnosis, JudgedAttempt, Thresholds
from federator.usage.families import finding, gpu_hours, steady

Waits = Callable[[JudgedAttempt, Thresholds], float | None]
"""The part of its time that an attempt waits; 0: it is not ill, None: nobody can tell."""


def starved(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """GPUs that wait for input, by the job's own words or by a saw-tooth.

    One that tells of short waits is looked at all the same: a step that loads much now and then is
    left out of its means, as an evaluation is.
    """
    ill, watched, gpu_h = _mostly(ended, _input_wait, bounds)
    if not ill:
        return None
    evidence = {"attempts": float(len(ill)), "watched_attempts": float(len(watched))}
    marked = [each for each in ill if each.load_s]
    if marked:
        evidence["step_s"] = fmean(each.step_s or 0.0 for each in marked)
        evidence["load_s"] = fmean(each.load_s or 0.0 for each in marked)
    seen = [each for each in ill if each.gpu_spread_frac is not None]
    if seen:
        evidence["spread_frac"] = fmean(each.gpu_spread_frac or 0.0 for each in seen)
        evidence["low_frac"] = fmean(each.gpu_low_frac or 0.0 for each in seen)
        evidence["high_frac"] = fmean(each.gpu_high_frac or 0.0 for each in seen)
        evidence["falls"] = fmean(each.gpu_falls or 0.0 for each in seen)
    return finding("starved", ill, bounds, gpu_h, evidence)


def communication(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """Steps that take much longer than the part of even the slowest rank."""
    ill, watched, gpu_h = _mostly(ended, _exchange_wait, bounds)
    return _of_ranks("communication", ill, watched, gpu_h, bounds) if ill else None


def stragglers(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """A rank whose own part takes much longer than another's: all wait for it."""
    ill, watched, gpu_h = _mostly(ended, _skew_wait, bounds)
    return _of_ranks("straggler", ill, watched, gpu_h, bounds) if ill else None


def small_gpu(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """GPUs with much more memory than any of the family has used, and that it keeps cool.

    Not those that swing: they wait for something, as they would on another type.
    """
    seen = [
        each
        for each in steady(ended, bounds)
        if each.gpus and each.gpu_mem_mib is not None and each.gpu_total_mib
    ]
    if len(seen) < bounds.few_jobs or not all(_is_light(each, bounds) for each in seen):
        return None
    most = max(each.gpu_mem_mib or 0.0 for each in seen)
    given = min(each.gpu_total_mib or 0.0 for each in seen)
    needed = most * bounds.spare
    swings = fmean(each.gpu_spread_frac or 0.0 for each in seen) >= bounds.little_spread_frac
    if swings or needed >= bounds.little_frac * given or gpu_hours(seen) < bounds.wasted_gpu_h:
        return None
    evidence = {
        "attempts": float(len(seen)),
        "most_gpu_mib": most,
        "given_gpu_mib": given,
        "would_do_gpu_mib": float(ceil(needed / 1024) * 1024),
    }
    busy = [each.gpu_busy_frac for each in seen if each.gpu_busy_frac is not None]
    power = [each.gpu_power_frac for each in seen if each.gpu_power_frac is not None]
    if busy:
        evidence["busy_frac"] = fmean(busy)
    if power:
        evidence["power_frac"] = fmean(power)
    return finding("gpu-size", seen, bounds, gpu_hours(seen), evidence)


def _is_light(each: JudgedAttempt, bounds: Thresholds) -> bool:
    """Whether it works its GPUs, and little: a small model may need a fast one."""
    if each.gpu_busy_frac is not None and each.gpu_busy_frac < bounds.idle_frac:
        return False
    if each.gpu_power_frac is not None:
        return each.gpu_power_frac < bounds.little_power_frac
    return each.gpu_busy_frac is not None and each.gpu_busy_frac < bounds.little_busy_frac


def _mostly(
    ended: Sequence[JudgedAttempt], waits: Waits, bounds: Thresholds
) -> tuple[list[JudgedAttempt], list[JudgedAttempt], float]:
    """The ill of a family, those that can be judged, and the GPU-hours of the ill that waited.

    None is ill unless they hold half of the time that can be judged, and waste enough.
    """
    judged = [
        (each, part)
        for each in ended
        if each.gpus and each.ran_s >= bounds.steady_s
        if (part := waits(each, bounds)) is not None
    ]
    ill = [each for each, part in judged if part]
    all_of_them = [each for each, _ in judged]
    wasted_h = sum(each.gpus * each.ran_s * part for each, part in judged) / 3600
    rare = gpu_hours(ill) < bounds.idle_part_frac * gpu_hours(all_of_them)
    if wasted_h < bounds.wasted_gpu_h or rare:
        return [], all_of_them, 0.0
    return ill, all_of_them, wasted_h


def _input_wait(each: JudgedAttempt, bounds: Thresholds) -> float | None:
    part = min(1.0, each.load_s / each.step_s) if each.load_s and each.step_s else 0.0
    if part >= bounds.load_frac and not _works_on(each, bounds):
        return part
    looks, spread, falls = each.gpu_looks, each.gpu_spread_frac, each.gpu_falls
    if looks is None or spread is None or falls is None or looks < bounds.least_looks:
        return 0.0 if each.load_s else None
    low = (each.gpu_low_frac or 0.0) - (each.save_s or 0.0) / each.ran_s
    is_one = (each.gpu_longest_low_frac or 0.0) > bounds.one_low_frac * (each.gpu_low_frac or 0.0)
    is_tooth = falls >= bounds.falls_frac * looks and not is_one
    works = (each.gpu_high_frac or 0.0) >= bounds.high_frac
    is_ill = spread > bounds.spread_frac and low >= bounds.low_frac and is_tooth and works
    return low if is_ill else 0.0


def _works_on(each: JudgedAttempt, bounds: Thresholds) -> bool:
    """Whether its GPUs are seen at work while it waits for input: with a step queued before.

    ``gpu_busy_frac`` alone does not tell: it is of the busiest look of each minute.
    """
    busy, low = each.gpu_busy_frac, each.gpu_low_frac or 0.0
    return busy is not None and busy > 1.0 - bounds.load_frac and low < bounds.load_frac


def _exchange_wait(each: JudgedAttempt, bounds: Thresholds) -> float | None:
    if not _has_ranks(each):
        return None
    step_s, own_s = each.step_s or 0.0, each.own_most_s or 0.0
    return 1.0 - own_s / step_s if step_s > bounds.step_times * own_s else 0.0


def _skew_wait(each: JudgedAttempt, bounds: Thresholds) -> float | None:
    if not _has_ranks(each):
        return None
    least_s, most_s, step_s = each.own_least_s or 0.0, each.own_most_s or 0.0, each.step_s or 0.0
    return min(1.0, (most_s - least_s) / step_s) if most_s > bounds.skew_times * least_s else 0.0


def _has_ranks(each: JudgedAttempt) -> bool:
    """Every one of several ranks has told of its own part."""
    return (each.ranks or 0) > 1 and bool(each.step_s and each.own_least_s and each.own_most_s)


def _of_ranks(
    kind: str,
    ill: Sequence[JudgedAttempt],
    watched: Sequence[JudgedAttempt],
    gpu_h: float,
    bounds: Thresholds,
) -> Diagnosis:
    latest = ill[-1]
    evidence = {
        "attempts": float(len(ill)),
        "watched_attempts": float(len(watched)),
        "ranks": latest.ranks or 0.0,
        "step_s": fmean(each.step_s or 0.0 for each in ill),
        "own_least_s": fmean(each.own_least_s or 0.0 for each in ill),
        "own_most_s": fmean(each.own_most_s or 0.0 for each in ill),
        "slow_rank": latest.slow_rank or 0.0,
        "same_rank": float(sum(each.slow_rank == latest.slow_rank for each in ill)),
    }
    return finding(kind, ill, bounds, gpu_h, evidence)
