"""What ``federator doctor`` finds of GPUs that wait, and what looks alike and is let alone."""

from __future__ import annotations

from typing import Any

import pytest

from federator.cli.doctor_text import finding_lines
from federator.usage.diagnosis import Diagnosis, JudgedAttempt
from federator.usage.job_doctor import examine
from tests.fakes import gpu_recordings

HOUR_S = 3600.0
T0_S = 1_764_000_000.0
SAWTOOTH: dict[str, Any] = {
    "gpu_looks": 720.0,
    "gpu_spread_frac": 0.45,
    "gpu_low_frac": 0.4,
    "gpu_high_frac": 0.5,
    "gpu_falls": 150.0,
    "gpu_longest_low_frac": 0.01,
}
RANKS: dict[str, Any] = {
    "ranks": 16.0,
    "step_s": 1.0,
    "load_s": 0.01,
    "own_least_s": 0.9,
    "own_most_s": 0.95,
    "slow_rank": 5.0,
}


def attempt(number: int = 1, **more: Any) -> JudgedAttempt:
    start_s = T0_S + number * 10 * HOUR_S
    plain: dict[str, Any] = {
        "id": number,
        "tenant": "vision",
        "user": "ada",
        "family": "train-#",
        "gpus": 8,
        "started_at_s": start_s,
        "ended_at_s": start_s + 4 * HOUR_S,
        "state": "COMPLETED",
    }
    return JudgedAttempt(**(plain | more))


def found(*records: JudgedAttempt) -> list[Diagnosis]:
    return examine(records, T0_S)


def kinds(*records: JudgedAttempt) -> list[str]:
    return [each.kind for each in found(*records)]


def test_a_sawtooth_is_found_with_its_figures_and_in_words() -> None:
    (made,) = found(attempt(**SAWTOOTH))
    assert (made.kind, made.gpu_h, made.jobs) == ("starved", 12.8, (1,))
    assert list(finding_lines(made)) == [
        "starved: ada (vision) 'train-#': GPUs that wait for input, 12.8 GPU hours",
        "  in 1 of the 1 attempts that tell: the GPUs swing (deviation 45%): they hardly work in "
        "40% of the looks, work in 50%, and fell 150 times",
        "  do: more loader workers, data nearer to it; or rarer pauses, if those are meant",
        "  jobs: 1",
    ]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"gpu_looks": 29.0}, id="too few looks"),
        pytest.param({"gpu_spread_frac": 0.29}, id="it hardly swings"),
        pytest.param({"gpu_falls": 5.0}, id="a few long pauses"),
        pytest.param({"gpu_longest_low_frac": 0.3}, id="mostly one pause: a slow start"),
        pytest.param({"gpu_high_frac": 0.1}, id="it never works: idle, at most"),
        pytest.param({"save_s": 0.2 * 4 * HOUR_S}, id="it saves in half of the pauses"),
        pytest.param({"ended_at_s": T0_S + 10 * HOUR_S + 500}, id="it is short"),
        pytest.param({"gpu_falls": None}, id="an older hook"),
    ],
)
def test_what_is_no_sawtooth_is_let_alone(more: dict[str, Any]) -> None:
    assert kinds(attempt(**(SAWTOOTH | more))) == []


def test_a_job_that_tells_of_its_waits_is_believed_however_steady_it_looks() -> None:
    steady = SAWTOOTH | {"gpu_spread_frac": 0.05, "gpu_falls": 0.0}
    (made,) = found(attempt(**steady, step_s=1.0, load_s=0.4))
    assert (made.kind, made.gpu_h) == ("starved", 12.8)
    assert "0.4 s of a step of 1 s wait for a batch" in "".join(finding_lines(made))


def test_a_load_that_overlaps_with_the_gpus_work_is_no_wait_for_input() -> None:
    steady: dict[str, Any] = SAWTOOTH | {
        "gpu_spread_frac": 0.02,
        "gpu_falls": 0.0,
        "gpu_low_frac": 0.0,
    }
    marks: dict[str, Any] = {"step_s": 1.0, "load_s": 0.8}
    assert kinds(attempt(**steady, **marks, gpu_busy_frac=0.99)) == []
    assert kinds(attempt(**marks, gpu_busy_frac=0.99)) == []  # as sacct tells, without looks
    assert kinds(attempt(**steady, **marks, gpu_busy_frac=0.4)) == ["starved"]
    long = steady | {"gpu_low_frac": 0.4}  # each minute has a look at work
    assert kinds(attempt(**long, **marks, gpu_busy_frac=0.99)) == ["starved"]


def test_steps_of_more_than_half_again_the_slowest_ranks_part_are_bound_by_exchange() -> None:
    (made,) = found(attempt(**(RANKS | {"step_s": 1.5})))
    assert made.kind == "communication"
    assert made.gpu_h == pytest.approx(32 * (1 - 0.95 / 1.5), abs=1e-3)
    assert kinds(attempt(**(RANKS | {"step_s": 1.4}))) == []


def test_a_rank_that_all_wait_for_is_a_straggler_and_named() -> None:
    (made,) = found(attempt(**(RANKS | {"own_least_s": 0.6})))
    assert (made.kind, made.gpu_h) == ("straggler", 11.2)
    lines = "".join(finding_lines(made))
    assert "the slowest was rank 5" in lines
    assert "look at the node of that rank" in lines
    again = found(*(attempt(k, **(RANKS | {"own_least_s": 0.6})) for k in (1, 2, 3)))
    assert "balance its part" in "".join(finding_lines(again[0]))


def test_one_slow_run_of_many_is_not_the_familys_and_one_rank_has_no_others() -> None:
    slow = RANKS | {"own_least_s": 0.5, "step_s": 2.0}
    assert kinds(attempt(1, **slow), *(attempt(k, **RANKS) for k in (2, 3, 4))) == []
    assert kinds(attempt(**(slow | {"ranks": 1.0}))) == []
    assert kinds(attempt(**(slow | {"own_least_s": 0.0}))) == []  # a rank did not mark its part


def sized(number: int, **more: Any) -> JudgedAttempt:
    plain = {"gpu_mem_mib": 8_000.0, "gpu_total_mib": 81_559.0, "gpu_power_frac": 0.3}
    return attempt(number, **(plain | more))


def test_a_large_gpu_that_is_kept_empty_and_cool_is_found_with_what_would_do() -> None:
    (made,) = found(*(sized(k, gpu_busy_frac=0.9) for k in (1, 2, 3)))
    assert (made.kind, made.evidence["would_do_gpu_mib"]) == ("gpu-size", 10 * 1024)
    assert "7.8G of 79.6G on a GPU at the most, the GPUs 90% busy, at 30% of their power" in (
        "".join(finding_lines(made))
    )


@pytest.mark.parametrize(
    "third",
    [
        pytest.param({"gpu_mem_mib": 60_000.0}, id="one needs the memory"),
        pytest.param({"gpu_power_frac": 0.8}, id="one needs the speed"),
        pytest.param({"gpu_power_frac": None}, id="of one nobody knows how hard it works"),
        pytest.param({"gpu_power_frac": None, "gpu_busy_frac": 0.9}, id="it is busy"),
        pytest.param({"gpu_spread_frac": 0.3}, id="one waits for something"),
        pytest.param({"gpu_busy_frac": 0.01}, id="one does nothing"),
        pytest.param({"state": "FAILED"}, id="only two completed"),
    ],
)
def test_gpus_are_not_called_too_large_if_one_of_the_family_uses_them(third: Any) -> None:
    assert "gpu-size" not in kinds(sized(1), sized(2), sized(3, **third))


RECORDED: dict[str, tuple[list[str], list[str]]] = {  # by the watch alone; by its marks, too
    "healthy": ([], []),
    "starved-30": ([], ["starved"]),
    "starved-50": ([], ["starved"]),
    "starved-80": ([], ["starved"]),
    "starved-shards": (["starved"], ["starved"]),
    "copies": ([], ["starved"]),
    "idle": (["idle"], ["idle"]),
    "left-over": (["idle"], ["idle"]),
    "tiny": (["gpu-size"], ["gpu-size"]),
    "small-batches": (["gpu-size"], ["gpu-size"]),
    "saving": ([], []),
    "evaluating": ([], []),
    "limping": ([], []),  # as fast as it can, on a GPU that is shared: see test_step_times
    "communication": ([], ["communication"]),
    "straggler": ([], ["straggler"]),
}


@pytest.mark.parametrize(("label", "found_kinds"), RECORDED.items(), ids=list(RECORDED))
def test_trainings_that_were_recorded_on_an_h100_are_told_apart(
    label: str, found_kinds: tuple[list[str], list[str]]
) -> None:
    """Waits within a step are seen only if they are marked; nothing that is healthy is accused."""
    for marks in (False, True):
        assert kinds(*gpu_recordings.attempts(label, marks=marks)) == found_kinds[marks]
