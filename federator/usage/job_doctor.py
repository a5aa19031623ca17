"""Finds jobs that waste what they hold, by records of their attempts.

Each detector takes records and gives findings. It is silent where it lacks evidence: an attempt
that nobody measured is neither good nor bad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil, isfinite, sqrt
from statistics import fmean
from typing import Final

from federator.usage.diagnosis import OF_JOBS, THRESHOLDS, Diagnosis, JudgedAttempt, Thresholds
from federator.usage.families import finding, gpu_hours, steady
from federator.usage.step_doctor import communication, small_gpu, starved, stragglers

_OWN_FAILURES: Final = frozenset({"FAILED", "OUT_OF_MEMORY"})
_VERDICTS: Final = _OWN_FAILURES | {"COMPLETED", "TIMEOUT"}
_INTERRUPTED: Final = frozenset({"NODE_FAIL", "PREEMPTED"})
_Z: Final = 1.2816  # of a lower bound that holds in nine of ten cases

Detector = Callable[[Sequence[JudgedAttempt], Thresholds], Diagnosis | None]
"""Takes the ended attempts of one family, by their ends."""


def examine(
    records: Iterable[JudgedAttempt], now_s: float, bounds: Thresholds = THRESHOLDS
) -> list[Diagnosis]:
    """All findings, those that concern most GPU-hours first within a kind.

    Args:
        records: attempts that have ended, and those that run, in any order; each once.
        now_s: up to when they are known.
        bounds: of the findings.
    """
    families: dict[tuple[str, str, str], list[JudgedAttempt]] = {}
    found: list[Diagnosis] = []
    for record in sorted(records, key=lambda each: (each.ended_at_s, each.id, each.attempt)):
        families.setdefault(record.owner, []).append(record)
    for members in families.values():
        # One that failed at once began and ended in the same second, by its site.
        ended = [each for each in members if each.started_at_s > 0 and each.ended_at_s > 0]
        running = [each for each in members if not each.ended_at_s]
        for detector in DETECTORS:
            made = detector(ended, bounds)
            if made is not None:
                found.append(made)
        found += zombies(running, now_s, bounds)
    return sorted(found, key=_order)


def _order(made: Diagnosis) -> tuple[int, float, str, str, str]:
    return OF_JOBS.index(made.kind), -made.gpu_h, made.tenant, made.user, made.family


def zombies(
    running: Iterable[JudgedAttempt], now_s: float, bounds: Thresholds
) -> Iterator[Diagnosis]:
    """Attempts that run on beyond their time limit."""
    for each in running:
        end_s = each.started_at_s + each.time_limit_s
        if each.state != "RUNNING" or not each.started_at_s or not isfinite(end_s):
            continue
        beyond_s = now_s - end_s
        if beyond_s > bounds.beyond_end_s:
            evidence = {"beyond_end_s": beyond_s, "time_limit_s": each.time_limit_s}
            yield finding("zombie", [each], bounds, each.gpus * beyond_s / 3600, evidence)


def idle(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """GPUs that did nothing, for most of the time that was watched."""
    watched = [
        each
        for each in ended
        if each.gpus and each.gpu_busy_frac is not None and each.ran_s >= bounds.idle_s
    ]
    idlers = [each for each in watched if (each.gpu_busy_frac or 0.0) < bounds.idle_frac]
    idle_h, watched_h = gpu_hours(idlers), gpu_hours(watched)
    if not idlers or idle_h < bounds.idle_gpu_h or idle_h < bounds.idle_part_frac * watched_h:
        return None
    evidence = {
        "idle_attempts": float(len(idlers)),
        "watched_attempts": float(len(watched)),
        "watched_gpu_h": watched_h,
        "busy_frac": sum((e.gpu_busy_frac or 0.0) * e.gpus * e.ran_s for e in idlers)
        / (3600 * idle_h),
    }
    return finding("idle", idlers, bounds, idle_h, evidence)


def over_memory(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """Much more memory than any of the family has used on its one node.

    Of several nodes only the sum is known, and one of them may use most of it.
    """
    seen = [
        each
        for each in steady(ended, bounds)
        if each.used_mem_mib is not None and each.mem_mib > 0 and each.nodes == 1
    ]
    if len(seen) < bounds.few_jobs:
        return None
    most = max(each.used_mem_mib or 0.0 for each in seen)
    given = seen[-1].mem_mib
    needed = most * bounds.spare
    if needed >= bounds.little_frac * given or given - needed < bounds.least_mem_mib:
        return None
    evidence = {
        "attempts": float(len(seen)),
        "most_node_mib": most,
        "given_node_mib": given,
        "would_do_node_mib": float(ceil(needed / 1024) * 1024),
    }
    return finding("memory", seen, bounds, gpu_hours(seen), evidence)


def over_cpus(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """Many more CPUs than any of the family has used on its one node; see ``over_memory``."""
    seen = [
        each
        for each in steady(ended, bounds)
        if each.cpu_s is not None and each.cpus > 0 and each.nodes == 1
    ]
    if len(seen) < bounds.few_jobs:
        return None
    most = max((each.cpu_s or 0.0) / each.ran_s for each in seen)
    given = float(seen[-1].cpus)
    needed = max(1, ceil(most * bounds.spare))
    if needed >= bounds.little_frac * given or given - needed < bounds.least_cpus:
        return None
    evidence = {
        "attempts": float(len(seen)),
        "most_node_cpus": most,
        "given_node_cpus": given,
        "would_do_node_cpus": float(needed),
    }
    return finding("cpus", seen, bounds, gpu_hours(seen), evidence)


def failing(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """A family that still fails by itself: always of late, or more often than not."""
    seen = _judged(ended)
    failed = [each for each in seen if each.state in _OWN_FAILURES]
    in_a_row = _in_a_row(seen, _OWN_FAILURES)
    still = any(each.state in _OWN_FAILURES for each in seen[-bounds.few_jobs :])
    often = len(seen) >= bounds.failed_of and lower_rate(len(failed), len(seen)) > (
        bounds.failed_frac
    )
    if in_a_row < bounds.failed_in_a_row and not (often and still):
        return None
    evidence = {
        "failed": float(len(failed)),
        "ended": float(len(seen)),
        "in_a_row": float(in_a_row),
        "out_of_memory": float(sum(each.state == "OUT_OF_MEMORY" for each in failed)),
    }
    return finding("failing", failed, bounds, gpu_hours(failed), evidence)


def timed_out(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """A family that its time limit ends, and that is not known to go on from a checkpoint."""
    seen = _judged(ended)
    over = [each for each in seen if each.state == "TIMEOUT"]
    rare = len(over) < bounds.timed_out_frac * len(seen)
    if _in_a_row(seen, {"TIMEOUT"}) < bounds.timed_out_in_a_row or rare:
        return None
    if any(each.saved_at_s or each.save_s for each in over):
        return None
    evidence = {
        "timed_out": float(len(over)),
        "ended": float(len(seen)),
        "longest_s": max(each.ran_s for each in over),
    }
    return finding("timeout", over, bounds, gpu_hours(over), evidence)


def checkpoints(ended: Sequence[JudgedAttempt], bounds: Thresholds) -> Diagnosis | None:
    """Interruptions that cost much more than the best interval between saves lets one expect.

    *Source*: Young 1974, Daly 2006: the interval sqrt(2 C M), for saves of length C and a mean
    time M between interruptions; half of it is lost at each. How many saves an attempt made is not
    known: C is taken as the time of all its saves, which is the most that one can have taken. So
    the interval is too long rather than too short, and the finding holds all the more.
    """
    struck = [each for each in ended if each.state in _INTERRUPTED]
    # A site's clock may be ahead of the one that the end is by.
    lost = [max(0.0, e.ended_at_s - max(e.started_at_s, e.saved_at_s)) for e in struck]
    gpu_h = sum(each.gpus * s for each, s in zip(struck, lost, strict=True)) / 3600
    if len(struck) < bounds.interruptions or gpu_h < bounds.lost_gpu_h:
        return None
    between_s = sum(each.ran_s for each in ended) / len(struck)
    evidence = {
        "interruptions": float(len(struck)),
        "between_s": between_s,
        "lost_each_s": fmean(lost),
    }
    saving = [each.save_s for each in ended if each.save_s]
    if saving:
        save_s = fmean(saving)
        best_s = sqrt(2 * save_s * between_s)
        if fmean(lost) <= bounds.lost_times * (best_s / 2 + save_s):
            return None
        evidence |= {"save_most_s": save_s, "best_interval_s": best_s}
    elif any(each.saved_at_s for each in ended):
        return None  # it saves, at a cost that nobody has measured
    return finding("checkpoint", struck, bounds, gpu_h, evidence)


DETECTORS: Final[tuple[Detector, ...]] = (
    idle,
    starved,
    communication,
    stragglers,
    failing,
    timed_out,
    checkpoints,
    over_memory,
    over_cpus,
    small_gpu,
)


def lower_rate(count: int, of: int) -> float:
    """The lower bound of a rate by its sample, Wilson's at 90 %."""
    if not of:
        return 0.0
    rate, z2 = count / of, _Z * _Z
    half = _Z * sqrt(rate * (1 - rate) / of + z2 / (4 * of * of))
    return (rate + z2 / (2 * of) - half) / (1 + z2 / of)


def _judged(ended: Iterable[JudgedAttempt]) -> list[JudgedAttempt]:
    """The attempts whose ends tell of the family itself, not of evictions, nodes or users."""
    return [each for each in ended if each.state in _VERDICTS]


def _in_a_row(seen: Sequence[JudgedAttempt], states: frozenset[str] | set[str]) -> int:
    """How many of the latest ended so, without any other between."""
    return next((k for k, e in enumerate(reversed(seen)) if e.state not in states), len(seen))
