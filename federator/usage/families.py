"""Attempts of a family, and findings about them: the parts that all detectors of jobs use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from federator.usage.diagnosis import Diagnosis, JudgedAttempt, Thresholds


def steady(ended: Iterable[JudgedAttempt], bounds: Thresholds) -> list[JudgedAttempt]:
    """Those that completed, and were long enough to reach their peak."""
    return [e for e in ended if e.state == "COMPLETED" and e.ran_s >= bounds.steady_s]


def gpu_hours(attempts: Iterable[JudgedAttempt]) -> float:
    """What they held."""
    return sum(each.gpus * each.ran_s for each in attempts) / 3600


def finding(
    kind: str,
    of: Sequence[JudgedAttempt],
    bounds: Thresholds,
    gpu_h: float,
    evidence: dict[str, float],
) -> Diagnosis:
    """A finding about attempts of one family, by their ends; one or more."""
    tenant, user, family = of[-1].owner
    latest = dict.fromkeys(each.id for each in reversed(of))
    return Diagnosis(
        kind=kind,
        tenant=tenant,
        user=user,
        family=family,
        jobs=tuple(latest)[: bounds.shown_jobs],
        gpu_h=round(gpu_h, 3),
        evidence={name: round(value, 4) for name, value in evidence.items()},
    )
