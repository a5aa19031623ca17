"""Makes up labelled families of jobs: what each detector should say of them is known.

``SICK`` are families with one illness each; ``HEALTHY`` look like them, and are not. Sizes,
lengths, noise and gaps in what was measured vary; some of the sick are so mild that nobody can
tell.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from federator.usage.diagnosis import OF_JOBS, JudgedAttempt
from federator.usage.job_doctor import examine
from tests.fakes import gpu_series

T0_S: Final = 1_764_000_000.0
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0

Make = Callable[[random.Random], list[dict[str, Any]]]
"""Attempts of a family, as the fields that differ from a plain one's."""


class Score(NamedTuple):
    """How well a kind is found."""

    sick: int
    found: int  # of those
    false: int  # findings about families that have it not

    @property
    def precision(self) -> float:
        """Of the findings, those that are right."""
        return self.found / max(1, self.found + self.false)

    @property
    def recall(self) -> float:
        """Of the sick, those that are found."""
        return self.found / max(1, self.sick)


def _some(rng: random.Random, low: int = 3, high: int = 30) -> range:
    return range(rng.randint(low, high))


def _idle(rng: random.Random) -> list[dict[str, Any]]:
    """Hung, or forgotten: its GPUs do next to nothing, now and then a little."""
    return [{"gpu_busy_frac": min(1.0, rng.expovariate(60))} for _ in _some(rng, 1)]


def _input_bound(rng: random.Random) -> list[dict[str, Any]]:
    """Waits for its input most of the time, and works."""
    mean = rng.uniform(0.07, 0.5)
    return [{"gpu_busy_frac": max(0.0, rng.gauss(mean, 0.02))} for _ in _some(rng)]


def _now_and_then_idle(rng: random.Random) -> list[dict[str, Any]]:
    """One in five hangs: unfortunate, not the family's habit."""
    return [
        {"gpu_busy_frac": rng.uniform(0.3, 0.95) if k % 5 else rng.uniform(0, 0.04)}
        for k in range(1, rng.randint(10, 30))
    ]


def _unwatched(rng: random.Random) -> list[dict[str, Any]]:
    """Nothing of it was measured."""
    none = dict.fromkeys(("gpu_busy_frac", "cpu_s", "used_mem_mib", "save_s"))
    return [dict(none) for _ in _some(rng)]


def _short_and_idle(rng: random.Random) -> list[dict[str, Any]]:
    """Over before anything was on the GPU."""
    return [{"hours": rng.uniform(0.01, 0.15), "gpu_busy_frac": 0.0} for _ in _some(rng)]


def _failing(rng: random.Random) -> list[dict[str, Any]]:
    rate = rng.uniform(0.7, 1.0)
    states = ("FAILED", "FAILED", "OUT_OF_MEMORY")
    return [
        {"state": rng.choice(states) if rng.random() < rate else "COMPLETED"} for _ in _some(rng, 5)
    ]


def _flaky(rng: random.Random) -> list[dict[str, Any]]:
    """Fails now and then, as research does."""
    rate = rng.uniform(0.05, 0.35)
    return [{"state": "FAILED" if rng.random() < rate else "COMPLETED"} for _ in _some(rng, 5)]


def _repaired(rng: random.Random) -> list[dict[str, Any]]:
    """Failed until somebody found out why."""
    bad, good = rng.randint(5, 20), rng.randint(3, 8)
    return [*({"state": "FAILED"} for _ in range(bad)), *({} for _ in range(good))]


def _on_bad_nodes(rng: random.Random) -> list[dict[str, Any]]:
    """Its nodes fail and its user cancels: it does not; it saves often enough."""
    states = ("NODE_FAIL", "CANCELLED", "COMPLETED")
    return [_saving(rng, rng.choice(states), rng.uniform(0.5, 1.0)) for _ in _some(rng, 6)]


def _timing_out(rng: random.Random) -> list[dict[str, Any]]:
    limit = rng.uniform(1, 24)
    rate = rng.uniform(0.85, 1.0)
    return [
        {"state": "TIMEOUT", "hours": limit} if rng.random() < rate else {"hours": limit * 0.9}
        for _ in _some(rng)
    ]


def _in_slices(rng: random.Random) -> list[dict[str, Any]]:
    """Uses its limit up by design: it saves, and goes on."""
    return [_saving(rng, "TIMEOUT", 0.5) for _ in _some(rng)]


def _tight(rng: random.Random) -> list[dict[str, Any]]:
    """Its limit ends one in three."""
    return [{"state": "TIMEOUT" if rng.random() < 0.33 else "COMPLETED"} for _ in _some(rng, 6)]


def _saving(rng: random.Random, state: str, times: float) -> dict[str, Any]:
    """An attempt that saves every ``times`` the best interval, by a failure every ten hours."""
    save_s, hours = rng.uniform(20, 60), rng.uniform(8, 12)
    interval_s = times * (2 * save_s * 10 * HOUR_S) ** 0.5
    since_s = rng.uniform(0, min(interval_s, hours * HOUR_S))
    saves = max(1, int(hours * HOUR_S / interval_s))
    return {"state": state, "hours": hours, "since_save_s": since_s, "save_s": saves * save_s}


def _seldom_saving(rng: random.Random) -> list[dict[str, Any]]:
    times = rng.uniform(3, 20)
    return [_saving(rng, "NODE_FAIL", times) for _ in _some(rng)]


def _never_saving(rng: random.Random) -> list[dict[str, Any]]:
    return [{"state": "NODE_FAIL", "hours": rng.uniform(4, 12)} for _ in _some(rng)]


def _saving_well(rng: random.Random) -> list[dict[str, Any]]:
    return [_saving(rng, "NODE_FAIL", rng.uniform(0.5, 2)) for _ in _some(rng)]


def _asking_memory(rng: random.Random) -> list[dict[str, Any]]:
    most = rng.uniform(0.02, 0.45)
    return [{"nodes": 1, "memory_frac": most * rng.uniform(0.85, 1.0)} for _ in _some(rng)]


def _on_one_of_its_nodes(rng: random.Random) -> list[dict[str, Any]]:
    """Of several nodes one needs all its memory and CPUs; what is known is the sum over nodes."""
    nodes = rng.choice((2, 4, 8))
    part = {"nodes": nodes, "memory_frac": 1.1 / nodes, "cpu_frac": 1.1 / nodes}
    return [dict(part) for _ in _some(rng)]


def _one_large_input(rng: random.Random) -> list[dict[str, Any]]:
    """Needs its memory for one input in many."""
    large = rng.randrange(10)
    return [
        {
            "memory_frac": 0.8 if k % 10 == large else 0.1,
            "cpu_frac": 0.7 if k % 10 == large else 0.1,
        }
        for k in range(rng.randint(10, 30))
    ]


def _asking_cpus(rng: random.Random) -> list[dict[str, Any]]:
    most = rng.uniform(0.02, 0.45)
    return [{"nodes": 1, "cpu_frac": most * rng.uniform(0.85, 1.0)} for _ in _some(rng)]


def _zombie(rng: random.Random) -> list[dict[str, Any]]:
    return [{"runs_beyond_s": rng.uniform(600, 20_000)}]


def _at_its_end(rng: random.Random) -> list[dict[str, Any]]:
    """Runs, or is being ended by Slurm just now."""
    return [{"runs_beyond_s": rng.uniform(-20_000, 300)}]


SICK: Final[Mapping[str, tuple[Make, ...]]] = {
    "zombie": (_zombie,),
    "idle": (_idle,),
    "failing": (_failing,),
    "timeout": (_timing_out,),
    "checkpoint": (_seldom_saving, _never_saving),
    "memory": (_asking_memory,),
    "cpus": (_asking_cpus,),
    **gpu_series.SICK,
}
HEALTHY: Final[tuple[Make, ...]] = (
    _input_bound,
    _now_and_then_idle,
    _unwatched,
    _short_and_idle,
    _flaky,
    _repaired,
    _on_bad_nodes,
    _in_slices,
    _tight,
    _saving_well,
    _one_large_input,
    _on_one_of_its_nodes,
    _at_its_end,
    *gpu_series.HEALTHY,
)


def family(name: str, make: Make, rng: random.Random) -> list[JudgedAttempt]:
    """The attempts of one family, an hour or some after each other."""
    gpus, nodes, cpus = rng.choice((1, 4, 8, 16)), rng.choice((1, 2)), rng.choice((8, 16, 64))
    mem_mib, at_s = rng.choice((64_000.0, 256_000.0)), T0_S
    found = []
    for k, fields in enumerate(make(rng)):
        more = dict(fields)
        ran_s = more.pop("hours", rng.uniform(1, 8)) * HOUR_S
        at_s += HOUR_S + ran_s
        plain: dict[str, Any] = {
            "id": k + 1,
            "tenant": "vision",
            "user": "ada",
            "family": name,
            "nodes": nodes,
            "gpus": gpus,
            "cpus": cpus,
            "mem_mib": mem_mib,
            "started_at_s": at_s - ran_s,
            "ended_at_s": at_s,
            "state": "COMPLETED",
            "gpu_busy_frac": rng.uniform(0.3, 0.98),
            "cpu_s": more.pop("cpu_frac", rng.uniform(0.5, 1.0)) * ran_s * cpus,
            "used_mem_mib": more.pop("memory_frac", rng.uniform(0.5, 1.0)) * mem_mib,
        }
        if "since_save_s" in more:
            more["saved_at_s"] = at_s - more.pop("since_save_s")
        if "runs_beyond_s" in more:
            limit_s = 2 * HOUR_S
            start_s = T0_S + DAY_S - limit_s - more.pop("runs_beyond_s")
            more |= {"started_at_s": start_s, "time_limit_s": limit_s, "ended_at_s": 0.0}
            more |= {"state": "RUNNING", "gpu_busy_frac": None}
        found.append(JudgedAttempt(**(plain | more)))
    return found


def scores(seed: int, families: int = 100) -> dict[str, Score]:
    """How well each kind is found, of so many families of each illness and of each healthy sort."""
    rng = random.Random(seed)
    labelled = [
        (kind, f"{kind}-{make.__name__}-{k}", make)
        for kind, makes in SICK.items()
        for make in makes
        for k in range(families)
    ]
    labelled += [("", f"{m.__name__}-{k}", m) for m in HEALTHY for k in range(families)]
    records = [each for _, name, make in labelled for each in family(name, make, rng)]
    made = {(each.kind, each.family) for each in examine(records, T0_S + DAY_S)}
    truth = {(kind, name) for kind, name, _ in labelled if kind}
    return {
        kind: Score(
            sick=sum(each[0] == kind for each in truth),
            found=sum(each[0] == kind for each in truth & made),
            false=sum(each[0] == kind for each in made - truth),
        )
        for kind in OF_JOBS
    }
