"""Counts how a job's GPUs swing between idle and busy, look by look: a saw-tooth in six numbers.

A look is the mean over the job's GPUs on this node: all of them wait for the same input. The tally
has a fixed size, however long the job.
"""

from typing import Any, Dict, Mapping, Optional, Sequence

from fednode.watching import Reading

LOW_FRAC = 0.3  # busy for less of a moment: such a look is low
HIGH_FRAC = 0.7  # busy for as much or more: it is high


def mean_busy(readings: "Sequence[Optional[Reading]]") -> "Optional[float]":
    """Return the mean over a job's GPUs at one look; None unless all are known."""
    known = [r.busy_frac for r in readings if r is not None and r.busy_frac is not None]
    return sum(known) / len(known) if known and len(known) == len(readings) else None


def counted(
    tally: "Optional[Mapping[str, Any]]", looks: "Sequence[Optional[float]]"
) -> "Dict[str, Any]":
    """Return the tally with these looks, in their order; what is not known adds nothing."""
    after = dict(tally or {"n": 0, "sum": 0.0, "squares": 0.0, "low": 0, "high": 0})
    for busy in looks:
        if busy is None:
            continue
        after["n"] += 1
        after["sum"] += busy
        after["squares"] += busy * busy
        if busy >= HIGH_FRAC:
            after["high"] += 1
            after["was_high"] = True
        if busy < LOW_FRAC:
            after["low"] += 1
            after["falls"] = after.get("falls", 0) + bool(after.get("was_high"))
            after["was_high"] = False
        after["run"] = after.get("run", 0) + 1 if busy < LOW_FRAC else 0
        after["longest"] = max(after.get("longest", 0), after["run"])
    return after


def as_record(tally: "Mapping[str, Any]") -> "Dict[str, Any]":
    """Return the tally in the words of the log; {}: no look was counted."""
    n = tally.get("n", 0)
    if not n:
        return {}
    mean = tally["sum"] / n
    return {
        "swing_looks": n,
        "gpu_busy_spread_frac": round(max(0.0, tally["squares"] / n - mean * mean) ** 0.5, 4),
        "gpu_low_frac": round(tally["low"] / n, 4),
        "gpu_high_frac": round(tally["high"] / n, 4),
        "gpu_falls": tally.get("falls", 0),
        "gpu_low_longest_frac": round(tally.get("longest", 0) / n, 4),
    }
