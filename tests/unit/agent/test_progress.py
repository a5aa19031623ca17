"""Progress leases at a site: who has finished no step in time, by what this agent has seen."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from federator.agent.acts import AT_ONCE, LOOK_TAKES_S
from federator.agent.base import CheckpointStatus
from federator.agent.folders import ATTEMPTS_PER_LOOK
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.progress import LOOK_EVERY_S, LOOKS, ProgressLeases
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.site import AttemptReport, SiteJobState, StepWindow
from tests.fakes.agent import LookedSite, PartOfAgent
from tests.fakes.build import attempt

LEASE_S = 80.0
RUNS = AttemptReport(
    attempt=attempt(1), user="ada", site_job_id=101, state=SiteJobState.RUNNING, started_at_s=1.0
)
STALL = "rank 0 of 2 on a1: no step since 4 for 90 s, in agree (ranks.py:98)"


class Rig:
    """The leases of one agent, and the sweeps that they complete."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.site = LookedSite(self.clock)
        self._folder = folder
        self.agent = PartOfAgent(folder, self.site, self.clock)
        self.leases = ProgressLeases(self.agent.memory)

    def launched(
        self, progress_s: float = LEASE_S, folder: str = "/c", number: int = 1, user: str = "ada"
    ) -> None:
        mark = JournalMark(
            step=JournalStep.JOB,
            at_s=self.clock(),
            user=user,
            job_id=100 + number,
            checkpoint_dir=folder,
            progress_s=progress_s,
        )
        self.agent.journal.put(attempt(number), mark)

    def steps(self, stall: str = STALL) -> None:
        """It notes a step now, by the clock of a file server that is an hour ahead."""
        self.notes(self.clock() + 3600.0, stall)

    def notes(self, at_s: float, stall: str = "") -> None:
        self.site.seen[attempt(1)] = CheckpointStatus(stepped_at_s=at_s, stall=stall)

    def sweep(self, report: AttemptReport = RUNS, after_s: float = 20.0) -> AttemptReport:
        return self.sweep_all(report, after_s=after_s)[0]

    def sweep_all(self, *reports: AttemptReport, after_s: float = 20.0) -> list[AttemptReport]:
        found: list[AttemptReport] = []

        async def go() -> None:
            found.extend(await self.sweeps(*reports))

        self.clock.advance(after_s)
        run_virtual(self.clock, go())
        return found

    async def sweeps(self, *reports: AttemptReport) -> list[AttemptReport]:
        self.agent.memory.now = self.agent.now
        swept = {report.attempt: report for report in reports}
        assert self.leases.looks(swept) == []  # a sweep waits for none
        self.agent.begin(self.leases.looked)
        await self.agent.finish()
        self.agent.memory.known = self.leases.complete(swept)
        return list(self.agent.memory.known.values())


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_one_that_finishes_no_step_in_its_lease_is_told_of_with_what_its_ranks_say(
    rig: Rig,
) -> None:
    rig.launched()
    rig.steps()
    rig.sweep()
    seen_s = rig.clock()
    for _ in range(4):
        assert rig.sweep() == RUNS
    told = rig.sweep()
    assert (told.stalled_since_s, told.stall) == (seen_s, STALL)
    assert rig.sweep() == told  # no news each time


def test_one_whose_ranks_say_nothing_has_a_little_longer(rig: Rig) -> None:
    rig.launched()
    rig.steps(stall="")
    assert [rig.sweep() for _ in range(6)] == [RUNS] * 6
    told = rig.sweep()
    assert (told.stalled_since_s > 0, told.stall) == (True, "")


def test_until_then_it_waits_for_ranks_that_have_not_spoken_yet(rig: Rig) -> None:
    rig.launched()
    rig.notes(at_s=500.0)
    assert [rig.sweep() for _ in range(5)] == [RUNS] * 5  # a lease, since it was seen first
    rig.notes(at_s=500.0, stall="rank 0: in agree")
    assert rig.sweep() == RUNS
    rig.notes(at_s=500.0, stall="rank 0: in agree; rank 1: in hang")
    told = rig.sweep()
    assert told.stall == "rank 0: in agree; rank 1: in hang"  # all that was said by then


def test_words_that_two_looks_in_a_row_find_are_all(rig: Rig) -> None:
    rig.launched()
    rig.notes(at_s=500.0)
    for _ in range(4):
        rig.sweep()
    rig.notes(at_s=500.0, stall=STALL)
    assert rig.sweep() == RUNS
    assert rig.sweep().stall == STALL


def test_what_was_told_of_a_stall_stays_whatever_is_said_later(rig: Rig) -> None:
    rig.launched()
    rig.steps()
    told = [rig.sweep() for _ in range(8)][-1]
    assert told.stalled_since_s
    at_s = rig.site.seen[attempt(1)].stepped_at_s
    for number in range(4):
        rig.notes(at_s, stall=f"rank 0: {number}")
        assert rig.sweep() == told


def test_one_that_has_closed_its_lease_may_go_on_as_long_as_it_likes(rig: Rig) -> None:
    rig.launched()
    rig.steps()
    for _ in range(4):
        rig.sweep()
    rig.notes(at_s=0.0)
    assert [rig.sweep() for _ in range(50)] == [RUNS] * 50
    rig.steps()  # another Checkpointer
    assert any(rig.sweep().stalled_since_s for _ in range(7))


def test_a_step_in_time_renews_the_lease(rig: Rig) -> None:
    rig.launched()
    for _ in range(20):
        rig.steps()
        assert rig.sweep(after_s=LEASE_S) == RUNS


def test_a_step_after_all_takes_it_back(rig: Rig) -> None:
    rig.launched()
    rig.steps()
    found = [rig.sweep() for _ in range(7)]
    assert found[-1].stalled_since_s
    rig.steps()
    assert rig.sweep() == RUNS


def test_one_that_has_noted_no_step_yet_may_take_as_long_as_it_likes(rig: Rig) -> None:
    rig.launched()
    assert [rig.sweep() for _ in range(50)] == [RUNS] * 50


@pytest.mark.parametrize("given", [{"progress_s": 0.0}, {"folder": ""}])
def test_nobody_looks_at_one_without_a_lease_or_a_folder(
    rig: Rig, given: dict[str, object]
) -> None:
    rig.launched(**given)  # type: ignore[arg-type]
    rig.steps()
    assert [rig.sweep() for _ in range(10)] == [RUNS] * 10
    assert rig.site.looks == []


def test_it_is_looked_at_a_few_times_in_its_lease_and_no_more(rig: Rig) -> None:
    rig.launched()
    rig.steps()
    for _ in range(80):
        rig.sweep(after_s=1.0)
    assert len(rig.site.looks) == LOOKS


def test_a_long_lease_is_looked_at_once_a_minute(rig: Rig) -> None:
    rig.launched(progress_s=36_000.0)
    rig.steps()
    for _ in range(60):
        rig.sweep(after_s=10.0)
    assert len(rig.site.looks) == 600.0 / LOOK_EVERY_S


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_a_folder_that_does_not_answer_proves_nothing(rig: Rig, how: str) -> None:
    rig.launched()
    rig.steps()
    for _ in range(3):
        rig.sweep()
    silent: set[str] = getattr(rig.site, how)
    silent.add("ada")
    for _ in range(6):
        assert rig.sweep() == RUNS
    silent.clear()
    for _ in range(4):
        assert rig.sweep() == RUNS  # begun anew
    assert any(rig.sweep().stalled_since_s for _ in range(4))


def test_one_that_slurm_has_started_again_begins_anew(rig: Rig) -> None:
    rig.launched()
    rig.steps()
    for _ in range(4):
        rig.sweep()
    again = replace(RUNS, restarts=1)
    assert rig.sweep(again) == again
    rig.steps()
    for _ in range(5):
        assert rig.sweep(again) == again
    assert rig.sweep(again).stalled_since_s


def test_the_notes_of_an_earlier_run_are_no_steps_of_this_one(rig: Rig) -> None:
    rig.launched()
    rig.steps()
    rig.sweep()
    rig.steps()  # the last one, which nobody has seen
    again = replace(RUNS, restarts=1)
    rig.sweep(replace(again, state=SiteJobState.PENDING))
    assert [rig.sweep(again) for _ in range(20)] == [again] * 20  # it loads
    rig.steps()
    assert [rig.sweep(again) for _ in range(5)] == [again] * 5
    assert rig.sweep(again).stalled_since_s


def test_an_agent_that_comes_anew_takes_a_note_as_it_finds_it(rig: Rig) -> None:
    rig.launched()
    rig.steps()
    again = replace(RUNS, restarts=1)
    assert any(rig.sweep(again).stalled_since_s for _ in range(7))


@pytest.mark.parametrize("state", [SiteJobState.PENDING, SiteJobState.COMPLETED])
def test_one_that_does_not_run_has_none(rig: Rig, state: SiteJobState) -> None:
    rig.launched()
    rig.steps()
    still = replace(RUNS, state=state)
    assert [rig.sweep(still) for _ in range(8)] == [still] * 8


def test_one_that_was_told_to_leave_has_none(rig: Rig) -> None:
    rig.launched()
    rig.steps()
    for _ in range(4):
        rig.sweep()
    rig.agent.memory.note(attempt(1), told_at_s=rig.clock())
    rig.agent.begin(rig.leases.looked)
    assert [rig.sweep() for _ in range(4)] == [RUNS] * 4


def tasks(rig: Rig, count: int, user: str = "ada", first: int = 1) -> list[AttemptReport]:
    numbers = range(first, first + count)
    for number in numbers:
        rig.launched(number=number, user=user)
    ids = ((attempt(n), 100 + n) for n in numbers)
    return [replace(RUNS, attempt=a, user=user, site_job_id=job_id) for a, job_id in ids]


def test_thousands_of_tasks_of_one_user_are_some_looks_one_after_the_other(rig: Rig) -> None:
    array = tasks(rig, 2 * ATTEMPTS_PER_LOOK + 10)
    rig.sweep_all(*array)
    sizes = [len(orders) for orders in rig.site.looks]
    assert sizes == [ATTEMPTS_PER_LOOK, ATTEMPTS_PER_LOOK, 10]
    for report in array:
        rig.site.seen[report.attempt] = CheckpointStatus(stepped_at_s=9.0, stall=STALL)
    told = [rig.sweep_all(*array) for _ in range(7)][-1]
    assert all(report.stall == STALL for report in told)


def test_folders_of_one_user_that_hang_cost_one_look(rig: Rig) -> None:
    array = tasks(rig, 2 * ATTEMPTS_PER_LOOK + 10)
    rig.site.hangs.add("ada")
    began_s = rig.clock()
    rig.sweep_all(*array)
    assert rig.clock() - began_s == pytest.approx(20.0 + LOOK_TAKES_S)
    assert len(rig.site.looks) == 1
    rig.sweep_all(*array, after_s=1.0)
    assert len(rig.site.looks) == 1  # all of them have had their turn


def test_of_many_users_a_few_are_looked_at_at_once_and_none_too_late(rig: Rig) -> None:
    users = [f"u{k}" for k in range(30)]
    runs = [tasks(rig, 1, user, first=k)[0] for k, user in enumerate(users)]
    for report in runs:
        rig.site.seen[report.attempt] = CheckpointStatus(stepped_at_s=9.0, stall=STALL)
    rig.site.takes_s = 0.9 * LOOK_TAKES_S

    async def go() -> None:
        await rig.sweeps(*runs)
        assert rig.site.most_at_once == AT_ONCE["progress"]
        assert len(rig.site.looks) == len(users)
        for _ in range(3):
            await asyncio.sleep(LEASE_S / LOOKS)
            told = await rig.sweeps(*runs)
        assert all(report.stall == STALL for report in told)

    run_virtual(rig.clock, go())


STEPS = StepWindow(number=3, steps=20, median_s=1.5, p90_s=1.6)


def test_how_long_its_steps_take_is_told_once_of_each_window(rig: Rig) -> None:
    rig.launched()
    rig.site.seen[attempt(1)] = CheckpointStatus(stepped_at_s=500.0, steps=STEPS)
    told = rig.sweep()
    assert told == replace(RUNS, steps=STEPS)
    rig.site.seen[attempt(1)] = CheckpointStatus(stepped_at_s=501.0)  # it cannot be read now
    assert rig.sweep() == told
    later = replace(STEPS, number=4)
    rig.site.seen[attempt(1)] = CheckpointStatus(stepped_at_s=502.0, steps=later)
    assert rig.sweep() == replace(RUNS, steps=later)


def test_the_steps_of_an_earlier_run_are_not_those_of_this_one(rig: Rig) -> None:
    rig.launched()
    rig.agent.memory.known = {RUNS.attempt: RUNS}
    again = replace(RUNS, restarts=1)
    rig.site.seen[attempt(1)] = CheckpointStatus(stepped_at_s=500.0, steps=STEPS)
    assert rig.sweep(again) == again
    rig.site.seen[attempt(1)] = CheckpointStatus(stepped_at_s=600.0, steps=STEPS)
    assert rig.sweep(again) == replace(again, steps=STEPS)
