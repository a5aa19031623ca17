"""Slurm as the model sees it: what runs twice, too late, or beyond a limit breaks a promise."""

from __future__ import annotations

import pytest

from federator.faults.checks.evidence import Array, Evidence
from federator.faults.checks.run_checks import CANCELS_WITHIN_S, RunChecks
from federator.faults.checks.wish_checks import WishChecks
from federator.faults.user_code import CodeRun
from federator.model.site import SiteJobState
from federator.model.workload import AttemptId
from tests.fakes.build import attempt


class Watched:
    """The checks, their evidence, and a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.evidence = Evidence(lambda _: None, lambda: self.now_s)
        limits = {frozenset({"ada", "bob"}): 8.0}
        self.checks = RunChecks(self.evidence, limits, WishChecks(self.evidence))

    def starts(self, which: AttemptId, user: str = "ada", gpus: int = 4) -> CodeRun:
        run = CodeRun("alpine", which, 7, user, gpus, self.now_s)
        self.checks.began(run)
        return run

    def ends(self, run: CodeRun, state: SiteJobState = SiteJobState.COMPLETED) -> None:
        run.ended = state
        self.checks.ended(run)

    @property
    def broken(self) -> list[str]:
        return self.evidence.broken


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_one_attempt_is_submitted_once_unless_its_sbatch_went_beyond_every_limit(
    watched: Watched,
) -> None:
    watched.checks.beyond(attempt(1))
    for which in (attempt(0), attempt(1)):
        watched.checks.submitted("alpine", which, 101)
        watched.checks.submitted("alpine", which, 102)
    assert watched.broken == [f"{attempt(0)} was submitted twice"]


def test_two_attempts_of_a_workload_run_one_after_the_other(watched: Watched) -> None:
    first = watched.starts(attempt(0, 1))
    watched.ends(first, SiteJobState.NODE_FAIL)
    watched.starts(attempt(0, 2))
    assert watched.broken == []
    watched.starts(attempt(0, 3))
    assert "runs twice" in watched.broken[0]


def test_what_has_completed_does_not_run_again(watched: Watched) -> None:
    watched.ends(watched.starts(attempt(0, 1)))
    watched.starts(attempt(0, 2))
    assert watched.broken == [f"{attempt().workload} has completed, and runs again at alpine"]


def test_users_together_stay_within_their_limit(watched: Watched) -> None:
    watched.starts(attempt(0))
    watched.starts(attempt(1), "bob")
    watched.starts(attempt(2), "eve")
    assert watched.broken == []
    watched.starts(attempt(3), "bob", 1)
    assert watched.broken == ["ada, bob use 9 GPUs, and may use 8"]


def test_a_job_that_slurm_knows_no_more_counts_for_no_limit(watched: Watched) -> None:
    watched.starts(attempt(0), gpus=8)
    watched.checks.unrecorded(attempt(0))
    watched.starts(attempt(1), gpus=8)
    assert watched.broken == []


def test_no_more_tasks_of_an_array_run_than_its_throttle_lets(watched: Watched) -> None:
    array = Array(id=attempt().workload, indices=(3, 5), max_running=1)
    watched.evidence.arrays = dict.fromkeys(array.tasks, array)
    watched.checks.is_task(attempt(1), 5)
    watched.starts(attempt(0))
    assert watched.broken == []
    watched.checks.is_task(attempt(1), 3)
    watched.starts(attempt(1))
    assert watched.broken == [
        f"{attempt(1)} is task 5 of its array, and was submitted as 3",
        f"2 tasks of array {array.id} run, and 1 may",
    ]


def test_work_that_was_cancelled_does_not_run_to_its_own_end(watched: Watched) -> None:
    run = watched.starts(attempt())
    watched.evidence.truth(attempt().workload).cancel_acked_at_s = 0.0
    watched.evidence.faults_stopped_at_s = 10.0
    watched.now_s = 10.0 + CANCELS_WITHIN_S + 1.0
    watched.ends(run)
    assert "was cancelled, and ran on" in watched.broken[0]
