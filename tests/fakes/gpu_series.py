"""Makes up how busy the GPUs of labelled jobs are, and what their trainings tell of their steps.

The looks at a made-up GPU are those that the nodes' watch takes, and go through its own counting
and the agent's reading. ``SICK`` and ``HEALTHY`` are as in ``doctor_series``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import sin
from typing import Any, Final

from fednode import summary
from fednode.watching import Reading

EVERY_S: Final = 60.0  # as the watch is run
LOOKS: Final = 3
GAP_S: Final = 2.0
WINDOW_S: Final = 1.0  # nvidia-smi's use of a GPU is a mean of so long
NAMES: Final = {
    "gpu_busy_frac": "gpu_busy_mean_frac",
    "gpu_mem_mib": "memory_most_mib",
    "gpu_total_mib": "memory_total_mib",
    "gpu_power_frac": "gpu_power_mean_frac",
    "gpu_looks": "swing_looks",
    "gpu_spread_frac": "gpu_busy_spread_frac",
    "gpu_low_frac": "gpu_low_frac",
    "gpu_high_frac": "gpu_high_frac",
    "gpu_falls": "gpu_falls",
    "gpu_longest_low_frac": "gpu_low_longest_frac",
}
"""Fields of a judged attempt, by the words of the nodes."""

Busy = Callable[[float], float]
"""How busy a GPU is on average from a time, in seconds since the job's start, for ``WINDOW_S``."""


def watched(busy: Busy, ran_s: float) -> dict[str, Any]:
    """What the doctor is told of a GPU that was busy like that, for so long."""
    runs = [
        [busy(minute * EVERY_S + k * GAP_S) for k in range(LOOKS)]
        for minute in range(1, int(ran_s / EVERY_S))
    ]
    most = [Reading(None, max(looks)) for looks in runs]
    return as_told(summary.added({}, most, [look for looks in runs for look in looks]))


def as_told(tally: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a judged attempt, by a node's tally; {}: it has none."""
    record = summary.as_record(tally) if tally else {}
    return {field: record[name] for field, name in NAMES.items() if name in record}


def _noisy(rng: random.Random, mean: float, spread: float = 0.04) -> float:
    return min(1.0, max(0.0, rng.gauss(mean, spread)))


def _toothed(rng: random.Random, period_s: float, wait_frac: float, high: float) -> Busy:
    """At work for a part of each period, which varies by a tenth; else it waits."""
    from_s = rng.uniform(0, period_s)

    def busy(at_s: float) -> float:
        drifted_s = at_s + 0.3 * period_s * sin(at_s / 977)  # no period keeps step with the watch
        place_s = (drifted_s + from_s) % period_s
        wait_s = period_s * wait_frac * rng.uniform(0.9, 1.1)
        waits_s = max(0.0, min(wait_s, place_s + WINDOW_S) - place_s)
        return _noisy(rng, high) * (1 - waits_s / WINDOW_S)

    return busy


def _paused(
    rng: random.Random, every_s: float, pause_s: float, high: float, low: float = 0.02
) -> Busy:
    """At work but for a pause now and then."""
    from_s = rng.uniform(0, every_s)

    def busy(at_s: float) -> float:
        return _noisy(rng, low if (at_s + from_s) % every_s < pause_s else high)

    return busy


def _attempts(rng: random.Random, form: Callable[[], tuple[Busy, dict[str, Any]]]) -> list[Any]:
    found = []
    for _ in range(rng.randint(2, 5)):
        hours = rng.uniform(0.8, 2)
        busy, more = form()
        told = watched(busy, hours * 3600) | {"hours": hours}
        told |= {name: value(hours) if callable(value) else value for name, value in more.items()}
        found.append(told)
    return found


# ---- those that swing ----


def _sawtooth(rng: random.Random) -> list[dict[str, Any]]:
    """Its loader is too slow: GPUs wait for a batch or a shard, again and again."""
    period_s, wait = rng.uniform(6, 90), rng.uniform(0.3, 0.8)
    return _attempts(rng, lambda: (_toothed(rng, period_s, wait, 0.93), {}))


def _told_to_wait(rng: random.Random) -> list[dict[str, Any]]:
    """It waits in each step, too shortly to be seen, and says so."""
    wait, step_s = rng.uniform(0.25, 0.8), rng.uniform(0.1, 2)
    more = {"step_s": step_s, "load_s": wait * step_s}
    return _attempts(rng, lambda: (lambda _: _noisy(rng, 1 - wait), more))


def _steady(rng: random.Random) -> list[dict[str, Any]]:
    mean = rng.uniform(0.5, 0.99)
    return _attempts(rng, lambda: (lambda _: _noisy(rng, mean, 0.08), {}))


def _saves(rng: random.Random) -> list[dict[str, Any]]:
    """Saves often and long, and says for how long."""
    every_s = rng.uniform(300, 1800)
    save_s = rng.uniform(0.05, 0.35) * every_s
    spent = {"save_s": lambda hours: hours * 3600 * save_s / every_s}
    return _attempts(rng, lambda: (_paused(rng, every_s, save_s, 0.93), spent))


def _saves_untold(rng: random.Random) -> list[dict[str, Any]]:
    """Saves as people do, in its own way: a minute in ten or more."""
    every_s = rng.uniform(600, 3600)
    pause_s = rng.uniform(5, min(120.0, 0.15 * every_s))
    return _attempts(rng, lambda: (_paused(rng, every_s, pause_s, 0.93), {}))


def _evaluates(rng: random.Random) -> list[dict[str, Any]]:
    """Evaluates now and then, which works the GPU less."""
    every_s, low = rng.uniform(300, 2400), rng.uniform(0.1, 0.6)
    pause_s = rng.uniform(0.03, 0.2) * every_s
    return _attempts(rng, lambda: (_paused(rng, every_s, pause_s, 0.93, low), {}))


def _begins_slowly(rng: random.Random) -> list[dict[str, Any]]:
    """Reads its data, or compiles, for a good part of its time, once."""
    begin_s = rng.uniform(300, 2400)
    return _attempts(rng, lambda: (lambda at_s: _noisy(rng, 0.95 * (at_s > begin_s)), {}))


def _notebook(rng: random.Random) -> list[dict[str, Any]]:
    """Works when its user does, for many minutes at a time."""
    every_s = rng.uniform(2400, 7200)
    return _attempts(rng, lambda: (_paused(rng, every_s, 0.5 * every_s, 0.9), {}))


def _waits_a_little(rng: random.Random) -> list[dict[str, Any]]:
    """A saw-tooth with narrow gaps."""
    period_s, wait = rng.uniform(6, 90), rng.uniform(0.02, 0.12)
    return _attempts(rng, lambda: (_toothed(rng, period_s, wait, 0.95), {}))


# ---- those of several ranks ----


def _ranks(rng: random.Random, times: float, skews: Sequence[float]) -> Iterator[dict[str, Any]]:
    ranks, own_s = rng.choice((2, 8, 64)), rng.uniform(0.05, 2)
    for skew in skews:
        least_s = own_s * rng.uniform(0.98, 1.02)
        yield {
            "ranks": float(ranks),
            "own_least_s": least_s,
            "own_most_s": least_s * skew,
            "step_s": least_s * skew * times * rng.uniform(0.98, 1.02),
            "load_s": 0.02 * least_s,
            "slow_rank": float(rng.randrange(ranks)),
        }


def _exchanging(rng: random.Random) -> list[dict[str, Any]]:
    skews = [1 + abs(rng.gauss(0, 0.03)) for _ in range(rng.randint(2, 12))]
    return list(_ranks(rng, rng.uniform(1.5, 4), skews))


def _with_a_slow_rank(rng: random.Random) -> list[dict[str, Any]]:
    skew = rng.uniform(1.2, 2.5)
    return list(_ranks(rng, 1.1, [skew + abs(rng.gauss(0, 0.03)) for _ in range(3)]))


def _sound_gang(rng: random.Random) -> list[dict[str, Any]]:
    skews = [1 + abs(rng.gauss(0, 0.04)) for _ in range(rng.randint(2, 12))]
    return list(_ranks(rng, rng.uniform(1.02, 1.4), skews))


def _once_slow(rng: random.Random) -> list[dict[str, Any]]:
    """One attempt of many met a bad node."""
    skews = [1 + abs(rng.gauss(0, 0.04)) for _ in range(rng.randint(6, 12))]
    skews[rng.randrange(len(skews))] = 1.6
    return list(_ranks(rng, 1.1, skews))


def _alone(rng: random.Random) -> list[dict[str, Any]]:
    """One rank, whose step holds much beside what it marks."""
    return [more | {"ranks": 1.0} for more in _ranks(rng, 2.5, [1.0] * rng.randint(2, 8))]


# ---- those on large GPUs ----


def _sized(rng: random.Random, mem: float, power: float) -> dict[str, Any]:
    return {
        "gpu_total_mib": 81_559.0,
        "gpu_mem_mib": 81_559.0 * mem * rng.uniform(0.9, 1.0),
        "gpu_power_frac": _noisy(rng, power, 0.03),
        "gpu_spread_frac": min(rng.expovariate(40), 0.3),
    }


def _small(rng: random.Random) -> list[dict[str, Any]]:
    mem, power = rng.uniform(0.02, 0.42), rng.uniform(0.12, 0.5)
    return [_sized(rng, mem, power) for _ in range(rng.randint(3, 20))]


def _small_and_hot(rng: random.Random) -> list[dict[str, Any]]:
    """A small model that needs all the speed there is."""
    mem, power = rng.uniform(0.02, 0.3), rng.uniform(0.62, 1)
    return [_sized(rng, mem, power) for _ in range(rng.randint(3, 20))]


def _large_and_cool(rng: random.Random) -> list[dict[str, Any]]:
    mem, power = rng.uniform(0.5, 0.98), rng.uniform(0.1, 0.5)
    return [_sized(rng, mem, power) for _ in range(rng.randint(3, 20))]


def _small_and_waiting(rng: random.Random) -> list[dict[str, Any]]:
    """It keeps its GPUs cool because it waits, for what was not seen."""
    mem, power = rng.uniform(0.02, 0.42), rng.uniform(0.12, 0.5)
    spread = rng.uniform(0.1, 0.28)
    sizes = [_sized(rng, mem, power) for _ in range(rng.randint(3, 20))]
    return [each | {"gpu_spread_frac": spread} for each in sizes]


def _once_large(rng: random.Random) -> list[dict[str, Any]]:
    """One input in some needs the memory."""
    sizes = [rng.uniform(0.05, 0.2) for _ in range(rng.randint(4, 20))] + [0.8]
    return [_sized(rng, mem, 0.3) for mem in sizes]


Make = Callable[[random.Random], list[dict[str, Any]]]
SICK: Final[Mapping[str, tuple[Make, ...]]] = {
    "starved": (_sawtooth, _told_to_wait),
    "communication": (_exchanging,),
    "straggler": (_with_a_slow_rank,),
    "gpu-size": (_small,),
}
HEALTHY: Final[tuple[Make, ...]] = (
    _steady,
    _saves,
    _saves_untold,
    _evaluates,
    _begins_slowly,
    _notebook,
    _waits_a_little,
    _sound_gang,
    _once_slow,
    _alone,
    _small_and_hot,
    _large_and_cool,
    _small_and_waiting,
    _once_large,
)
