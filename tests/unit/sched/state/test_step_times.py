"""Slow runs are told from sound ones by the steps of their like on other nodes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import nan
from statistics import median
from typing import NamedTuple

import pytest

from federator.model.site import StepWindow
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.sched.state import step_times as module
from federator.sched.state.step_times import (
    LEAST_OTHERS,
    LEAST_STEPS,
    LEAST_WINDOWS,
    NORMAL,
    SLOW,
    WINDOWS,
    RunShape,
    Speed,
    StepTimes,
    judged,
)
from tests.fakes import gpu_recordings

SHAPE = RunShape((0, "vision", "ada", "train", 16), SiteName("alpine"), "gpu", ("h100",), 2)
FACTOR = 1.34  # Greyhound's: by so much fail-slows delay a job on average


def never(_: AttemptId) -> bool:
    return False


def attempt(number: int, of: int = 1) -> AttemptId:
    return AttemptId(workload=WorkloadId(number), attempt=of)


def window(number: int, median_s: float = 1.0, steps: int = 20) -> StepWindow:
    return StepWindow(number=number, steps=steps, median_s=median_s, p90_s=median_s)


def runs(*steps_s: float, windows: int = LEAST_WINDOWS) -> StepTimes:
    """Run k, from 1, has two nodes of its own, and steps that take so long."""
    times = StepTimes(never)
    for k, step_s in enumerate(steps_s, start=1):
        for number in range(1, windows + 1):
            times.take_in(SHAPE, attempt(k), (f"a{k}", f"b{k}"), window(number, step_s))
    return times


@pytest.mark.parametrize(
    ("factor", "speed"),
    [
        (1.0, Speed.NORMAL),
        (0.5, Speed.NORMAL),
        (NORMAL - 0.001, Speed.NORMAL),
        (NORMAL + 0.001, Speed.UNSURE),
        (SLOW - 0.001, Speed.UNSURE),
        (SLOW + 0.001, Speed.SLOW),
        (FACTOR, Speed.SLOW),
    ],
)
def test_a_run_is_judged_by_the_middle_of_the_others(factor: float, speed: Speed) -> None:
    found = judged(2.0 * factor, (2.0, 1.99, 2.01))
    assert found is not None
    assert (found.speed, found.others) == (speed, 3)
    assert found.factor == pytest.approx(factor)


def recorded(label: str, steps: int = 20) -> list[float]:
    """Medians of the windows of a training that was recorded on an H100."""
    took_s = [took_s for _, took_s, _ in gpu_recordings.training(label)["steps"]]
    return [median(took_s[k : k + steps]) for k in range(0, len(took_s) - steps + 1, steps)]


def test_steps_of_a_real_training_differ_less_than_the_bounds_and_a_shared_gpu_shows() -> None:
    """One that loses a quarter of its GPU to another process takes a ninth longer: not enough."""
    sound = [recorded(label) for label in ("healthy", "evaluating", "saving")]
    runs_s = [median(windows[-9:]) for windows in (*sound, sound[0][:9], sound[1][:9])]
    for k, run_s in enumerate(runs_s):
        found = judged(run_s, runs_s[:k] + runs_s[k + 1 :])
        assert found is not None
        assert found.speed is Speed.NORMAL
    assert max(runs_s) / min(runs_s) < 1.06
    found = judged(median(recorded("limping")), runs_s)
    assert found is not None
    assert found.speed is Speed.UNSURE
    assert found.factor == pytest.approx(1.11, abs=0.03)


def test_too_few_others_prove_nothing() -> None:
    assert judged(5.0, (1.0,) * (LEAST_OTHERS - 1)) is None


def test_runs_of_a_kind_that_differ_much_among_themselves_need_more() -> None:
    found = judged(1.34, (0.7, 0.8, 1.0, 1.2, 1.4, 0.75, 1.3, 1.0))
    assert found is not None
    assert found.speed is Speed.UNSURE


def test_it_is_compared_with_runs_on_other_nodes_that_were_not_slow() -> None:
    times = runs(1.0, 1.0, 1.0, 1.0, 1.5)
    found = times.judge(SHAPE, attempt(5))
    assert found is not None
    assert (found.speed, found.others) == (Speed.SLOW, 4)
    for number in range(1, LEAST_WINDOWS + 1):
        times.take_in(SHAPE, attempt(6), ("a1", "c9"), window(number, 1.0))
    found = times.judge(SHAPE, attempt(6))
    assert found is not None
    assert found.others == 3, "one was slow, and one has a node in common with it"


def test_one_window_is_one_however_often_it_is_told() -> None:
    times = StepTimes(never)
    told = [times.take_in(SHAPE, attempt(1), ("a",), window(1)) for _ in range(LEAST_WINDOWS)]
    assert not any(told)
    told = [times.take_in(SHAPE, attempt(1), ("a",), window(k)) for k in range(2, WINDOWS)]
    assert told == [False] * (LEAST_WINDOWS - 2) + [True] * (WINDOWS - LEAST_WINDOWS)


@pytest.mark.parametrize(
    "odd", [window(9, nan), window(9, -1.0), window(9, 1e300), window(9, 1.0, LEAST_STEPS - 1)]
)
def test_what_is_no_time_or_of_too_few_steps_is_not_counted(odd: StepWindow) -> None:
    times = runs(1.0, 1.0, 1.0, 1.0)
    assert not times.take_in(SHAPE, attempt(4), ("a4", "b4"), odd)
    found = times.judge(SHAPE, attempt(4))
    assert found is not None
    assert found.factor == 1.0


def test_a_few_odd_windows_change_nothing() -> None:
    times = runs(1.0, 1.0, 1.0, 1.0, windows=WINDOWS)
    for number in range(WINDOWS + 1, WINDOWS + 4):
        times.take_in(SHAPE, attempt(4), ("a4", "b4"), window(number, 3.0))  # it evaluates, say
    found = times.judge(SHAPE, attempt(4))
    assert found is not None
    assert found.speed is Speed.NORMAL


def test_a_node_that_becomes_slow_is_seen_when_most_windows_are_slow() -> None:
    times = runs(1.0, 1.0, 1.0, 1.0, windows=WINDOWS)
    seen: list[Speed] = []
    for number in range(WINDOWS + 1, 2 * WINDOWS + 1):
        times.take_in(SHAPE, attempt(4), ("a4", "b4"), window(number, FACTOR))
        found = times.judge(SHAPE, attempt(4))
        assert found is not None
        seen.append(found.speed)
    late = WINDOWS // 2
    assert seen == [Speed.NORMAL] * late + [Speed.SLOW] * (WINDOWS - late)


def test_one_that_was_as_slow_on_other_nodes_is_slow_itself() -> None:
    times = runs(1.0, 1.0, 1.0, 1.5)
    assert not times.slow_itself(SHAPE, attempt(4))
    for number in range(1, LEAST_WINDOWS + 1):
        times.take_in(SHAPE, attempt(4, 2), ("c1", "c2"), window(number, 1.48))
    assert times.slow_itself(SHAPE, attempt(4, 2))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUNS_KEPT", 4)
    monkeypatch.setattr(module, "KINDS_KEPT", 1)
    times = runs(1.5, 1.0, 1.0, 1.0, 1.0)
    assert times.judge(SHAPE, attempt(1)) is None  # it was told of first
    times.take_in(SHAPE._replace(nodes=4), attempt(9), ("z",), window(1))
    assert times.judge(SHAPE, attempt(5)) is None


def test_of_more_live_runs_than_are_kept_the_first_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RUNS_KEPT", 4)
    ended = set[AttemptId]()
    times = StepTimes(lambda each: each not in ended)
    told: dict[AttemptId, bool] = {}
    for number in range(1, LEAST_WINDOWS + 1):
        for k in range(1, 6):
            told[attempt(k)] = times.take_in(SHAPE, attempt(k), (f"a{k}",), window(number))
    assert [*told.values()] == [True] * 4 + [False]
    assert times.judge(SHAPE, attempt(1)) is not None
    ended |= {attempt(2), attempt(3)}
    for number in range(1, LEAST_WINDOWS + 1):
        for k in (5, 6, 7):
            told[attempt(k)] = times.take_in(SHAPE, attempt(k), (f"a{k}",), window(number))
    assert [told[attempt(k)] for k in (5, 6, 7)] == [True, True, False]


def test_what_its_workload_did_before_is_dropped_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUNS_KEPT", 4)
    times = runs(1.5, 1.0, 1.0, 1.0)
    for number in range(1, LEAST_WINDOWS + 1):
        times.take_in(SHAPE, attempt(1, 2), ("c1", "c2"), window(number, 1.5))
    assert times.slow_itself(SHAPE, attempt(1, 2))


# ---- planted slow nodes ----

FLEETS = 1_000
TOLD = 16  # windows of each run
HICCUPS = 0.05  # of windows, with an evaluation or a slow file system: 1.2 to 2 times as long


class Verdicts(NamedTuple):
    """Of the runs of many fleets."""

    slow: int  # with a planted node, that could be compared
    found: int  # of those
    sound: int
    blamed: int  # of those

    @property
    def recall(self) -> float:
        return self.found / self.slow

    @property
    def false_frac(self) -> float:
        return self.blamed / self.sound


def fleet(rng: random.Random, run_noise: float, window_noise: float) -> Iterator[tuple[bool, bool]]:
    """Of each run of one kind that could be judged: is it on a slow node, and is it ever blamed?

    Every second fleet has one such node. Step times are log-normal: by run, and by window.
    """
    size = rng.choice((2, 3, 4, 6, 8))
    names = [f"n{k}" for k in range(rng.randint(5 * size, 16 * size))]
    gangs = [rng.sample(names, size) for _ in range(rng.randint(6, 20))]
    slow = rng.choice(rng.choice(gangs)) if rng.random() < 0.5 else ""
    times, base_s = StepTimes(never), rng.lognormvariate(0.0, 1.0)
    steps_s = [base_s * rng.lognormvariate(0.0, run_noise) for _ in gangs]
    known, blamed = set[int](), set[int]()
    for number in range(1, TOLD + 1):
        for k, gang in enumerate(gangs):
            took_s = steps_s[k] * rng.lognormvariate(0.0, window_noise)
            took_s *= FACTOR if slow in gang else 1.0
            took_s *= rng.uniform(1.2, 2.0) if rng.random() < HICCUPS else 1.0
            if times.take_in(SHAPE, attempt(k + 1), gang, window(number, took_s)):
                found = times.judge(SHAPE, attempt(k + 1))
                if found is not None:
                    known.add(k)
                    blamed |= {k} if found.speed is Speed.SLOW else set()
    return ((slow in gangs[k], k in blamed) for k in sorted(known))


def verdicts(fleets: int, run_noise: float, window_noise: float) -> Verdicts:
    rng = random.Random(27)
    found = [run for _ in range(fleets) for run in fleet(rng, run_noise, window_noise)]
    slow = [blamed for is_slow, blamed in found if is_slow]
    sound = [blamed for is_slow, blamed in found if not is_slow]
    return Verdicts(len(slow), sum(slow), len(sound), sum(sound))


@pytest.mark.slow
def test_planted_slow_nodes_are_found_and_sound_ones_are_not_blamed() -> None:
    found = verdicts(FLEETS, run_noise=0.03, window_noise=0.05)
    assert found.slow > 500
    assert found.recall > 0.99
    assert found.false_frac <= 0.01


if __name__ == "__main__":  # the table of docs/results.md
    for noise in (0.02, 0.03, 0.04, 0.06):
        of = verdicts(FLEETS, noise, 0.05)
        print(f"{noise:.2f} {of} recall {of.recall:.4f} false {of.false_frac:.4f}")
