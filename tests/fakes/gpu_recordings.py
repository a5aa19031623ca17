"""Trainings on a real H100 as the nodes' watch and ``Checkpointer`` would have told of them.

``tests/data/gpu_series`` holds twenty seconds of each. Here one runs on for hours: the watch looks
at a moment drawn anew each minute, by its own code, and the marks go through ``StepPhases``.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from fednode import summary
from fednode.watching import Reading

from federator.checkpoint.phases import StepPhases
from federator.testbed.layout import REPOSITORY
from federator.usage.diagnosis import JudgedAttempt
from tests.fakes.gpu_series import GAP_S, LOOKS, as_told

FOLDER: Final = REPOSITORY / "tests" / "data" / "gpu_series"
HOURS: Final = 2
EVERY_S: Final = 0.5  # between two samples
_STARTS_S: Final = 9.0  # of one that makes no step


@cache
def training(label: str) -> dict[str, Any]:
    """What one tells of itself."""
    found: dict[str, Any] = json.loads((FOLDER / "steps.json").read_text())["workloads"][label]
    return found


@cache
def samples(label: str) -> tuple[Reading, ...]:
    """What nvidia-smi said of one from its first step to its last."""
    seen = training(label)
    ranks = seen.get("ranks") or [seen["steps"]]
    steps = [step for rank in ranks for step in rank]
    from_s, to_s = seen["began_s"] + _STARTS_S, seen["began_s"] + seen["length_s"]
    if steps:
        from_s, to_s = steps[0][0] + 1.0, steps[-1][0]  # nvidia-smi's mean is of up to a second
    with (FOLDER / "samples.csv").open(newline="") as file:
        return tuple(
            Reading(
                memory_mib=float(row["memory.used"]),
                busy_frac=float(row["utilization.gpu"]) / 100,
                total_mib=float(row["memory.total"]),
                power_frac=float(row["power.draw"]) / float(row["power.limit"]),
            )
            for row in csv.DictReader(file)
            if row["workload"] == label and from_s <= float(row["at_s"]) <= to_s
        )


def looks_at(label: str, seed: int, turns: int = 60 * HOURS) -> Iterator[list[Reading]]:
    """What the watch sees of one GPU in so many of its turns."""
    rng, seen, gap = random.Random(seed), samples(label), int(GAP_S / EVERY_S)
    for _ in range(turns):
        at = rng.randrange(len(seen))
        yield [seen[(at + k * gap) % len(seen)] for k in range(LOOKS)]


def watched(label: str, seed: int, turns: int = 60 * HOURS) -> dict[str, Any]:
    """Fields of a judged attempt, by the watch alone."""
    tally: dict[str, Any] = {}
    for looks in looks_at(label, seed, turns):
        busy = [look.busy_frac or 0.0 for look in looks]
        most = max(looks, key=lambda look: look.busy_frac or 0.0)
        tally = summary.added(tally, [most], busy)
    return as_told(tally)


def told(label: str) -> dict[str, Any]:
    """Fields of a judged attempt, by its marks and its saves alone."""
    seen = training(label)
    if seen.get("ranks"):
        return _of_ranks(seen["ranks"])
    saves = [mark for mark in seen["marks"] if mark[2] == "save"]
    phases = StepPhases()
    for step, (began_s, took_s, waited_s) in enumerate(seen["steps"]):
        saved_s = sum(for_s for at_s, for_s, _ in saves if at_s < began_s)
        if waited_s:
            phases.loaded(began_s + waited_s, saved_s)
        phases.finished(step, began_s + took_s, saved_s)
    took_s, load_s, _ = phases.means()
    spent_s = sum(for_s for _, for_s, _ in saves) / len(samples(label)) / EVERY_S * HOURS * 3600
    return {"ranks": 1.0, "step_s": took_s, "load_s": load_s, "save_s": spent_s}


def _of_ranks(ranks: list[list[tuple[float, float, float]]]) -> dict[str, Any]:
    means = []
    for steps in ranks:
        phases = StepPhases()
        for step, (began_s, own_s, rest_s) in enumerate(steps):
            phases.computed(began_s + own_s, 0.0)
            phases.finished(step, began_s + own_s + rest_s, 0.0)
        means.append(phases.means())
    parts_s = [mean.own_s for mean in means]
    return {
        "ranks": float(len(ranks)),
        "step_s": max(mean.took_s for mean in means),
        "own_least_s": min(parts_s),
        "own_most_s": max(parts_s),
        "slow_rank": float(parts_s.index(max(parts_s))),
    }


def attempts(label: str, *, marks: bool, times: int = 3) -> list[JudgedAttempt]:
    """So many attempts of a family that is like that; ``marks``: it tells of its steps, too."""
    more = told(label) if marks else {}
    return [
        JudgedAttempt(
            id=k + 1,
            family=label,
            gpus=8,
            started_at_s=1e9 + k * 1e5,
            ended_at_s=1e9 + k * 1e5 + HOURS * 3600,
            state="COMPLETED",
            **watched(label, seed=k),
            **more,
        )
        for k in range(times)
    ]
