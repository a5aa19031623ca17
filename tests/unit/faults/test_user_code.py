"""User code in simulated jobs: it runs its time, or saves and leaves when it is notified."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from federator.faults.clock import VirtualClock, run_virtual
from federator.faults.process import ManyProcesses
from federator.faults.slurm import SimulatedJob
from federator.faults.user_code import (
    GIVES_UP_S,
    NOT_JOINED,
    NOTICES_S,
    SAVED,
    CodeRun,
    Script,
    UserCode,
    Witness,
)
from federator.model.site import SiteJobState
from tests.fakes.build import attempt, plan_on

Finished = tuple[float, SiteJobState, int]


class Runs:
    """Sees user code begin and end (of a ``Witness``, what it is asked)."""

    def __init__(self) -> None:
        self.began_runs: list[CodeRun] = []
        self.ended_runs: list[CodeRun] = []
        self.losses: list[tuple[int, bool]] = []

    def began(self, run: CodeRun) -> None:
        self.began_runs.append(run)

    def ended(self, run: CodeRun) -> None:
        self.ended_runs.append(run)

    def went_on(self, run: CodeRun, *, enough: bool) -> None:
        self.losses.append((run.lost_nodes, enough))


def play(script: Script, act: Callable[[UserCode, SimulatedJob], None]) -> tuple[Runs, Finished]:
    """What one job does, and when it wants to end, in seconds from its start."""
    clock, runs = VirtualClock(), Runs()
    began_s = clock()
    job = SimulatedJob(101, attempt(), "ada", plan_on("a1", "a2"))
    finished: list[Finished] = []

    def finish(_job: SimulatedJob, _restarts: int, state: SiteJobState, exit_code: int) -> None:
        finished.append((round(clock() - began_s, 3), state, exit_code))

    code = UserCode("alpine", clock, lambda _: script, cast(Witness, runs), finish)

    async def live() -> None:
        act(code, job)
        await asyncio.sleep(100.0)

    run_virtual(clock, live(), ManyProcesses)
    return runs, finished[0]


def begins(code: UserCode, job: SimulatedJob) -> None:
    code.begin(job, attempt())


@pytest.mark.parametrize(
    ("exit_code", "state"), [(0, SiteJobState.COMPLETED), (1, SiteJobState.FAILED)]
)
def test_it_runs_for_its_time_and_ends_as_its_exit_status_says(
    exit_code: int, state: SiteJobState
) -> None:
    runs, finished = play(Script(duration_s=30.0, exit_code=exit_code), begins)
    assert finished == (30.0, state, exit_code)
    assert [run.gpus for run in runs.began_runs] == [16]


def test_when_it_is_notified_it_saves_and_leaves() -> None:
    def notified(code: UserCode, job: SimulatedJob) -> None:
        begins(code, job)
        code.notify(job)
        code.notify(job)  # once more changes nothing

    _, finished = play(Script(duration_s=30.0, saves_s=2.0), notified)
    assert finished == (2.0, SiteJobState.FAILED, SAVED)


def test_ranks_that_never_found_each_other_have_nothing_to_save_when_they_are_notified() -> None:
    def notified(code: UserCode, job: SimulatedJob) -> None:
        begins(code, job)
        code.notify(job)

    _, finished = play(Script(duration_s=30.0, saves_s=2.0, joins=1), notified)
    assert finished == (GIVES_UP_S, SiteJobState.FAILED, NOT_JOINED)


def test_one_that_was_notified_before_its_start_knows_that_unless_its_id_came_again() -> None:
    def early(code: UserCode, job: SimulatedJob) -> None:
        code.notify(job)
        begins(code, job)
        code.begin_anew(job.job_id)
        begins(code, job)

    runs, _ = play(Script(), early)
    assert [run.notified for run in runs.began_runs] == [True, False]


def test_it_ends_with_its_job_and_once() -> None:
    def ended(code: UserCode, job: SimulatedJob) -> None:
        begins(code, job)
        code.end(job, SiteJobState.NODE_FAIL, 1)
        code.end(job, SiteJobState.CANCELLED, 0)

    runs, _ = play(Script(), ended)
    assert [(run.ended, run.exit_code) for run in runs.ended_runs] == [(SiteJobState.NODE_FAIL, 1)]


def test_ranks_that_never_find_each_other_fail_after_a_while() -> None:
    _, finished = play(Script(duration_s=10.0, joins=1), begins)
    assert finished == (GIVES_UP_S, SiteJobState.FAILED, NOT_JOINED)
    _, finished = play(Script(duration_s=10.0, joins=2), begins)
    assert finished == (10.0, SiteJobState.COMPLETED, 0)


def test_a_gang_that_lost_a_node_in_its_prolog_is_known_to_have_lost_it() -> None:
    def loses(code: UserCode, job: SimulatedJob) -> None:
        job.spare, job.lost = 1, frozenset(["a2"])
        code.lose(job)
        code.begin(job, attempt())

    (run,) = play(Script(duration_s=30.0), loses)[0].began_runs
    assert (run.nodes, run.lost_nodes) == (1, 1)


@pytest.mark.parametrize(
    ("lost", "finished"),
    [
        (1, (30.0, SiteJobState.COMPLETED, 0)),
        (2, (NOTICES_S, SiteJobState.PENDING, 0)),
    ],
)
def test_a_gang_goes_on_with_its_spare_and_is_put_back_when_its_nodes_are_too_few(
    lost: int, finished: Finished
) -> None:
    def loses(code: UserCode, job: SimulatedJob) -> None:
        job.spare = 1
        code.begin(job, attempt())
        job.lost = frozenset(["a2", "a3"][:lost])
        code.lose(job)

    runs, found = play(Script(duration_s=30.0), loses)
    assert found == finished
    assert runs.losses == [(lost, lost == 1)]
