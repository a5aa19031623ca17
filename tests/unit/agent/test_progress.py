"""Progress leases at a site: who has finished no step in time, by what this agent has seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from federator.agent.base import CheckpointStatus
from federator.agent.journal import JournalMark, JournalStep
from federator.agent.progress import LOOK_EVERY_S, LOOKS, ProgressLeases
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.site import AttemptReport, SiteJobState
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

    def launched(self, progress_s: float = LEASE_S, folder: str = "/c") -> None:
        mark = JournalMark(
            step=JournalStep.JOB,
            at_s=self.clock(),
            user="ada",
            job_id=101,
            checkpoint_dir=folder,
            progress_s=progress_s,
        )
        self.agent.journal.put(attempt(1), mark)

    def steps(self, stall: str = STALL) -> None:
        """It notes a step now, by the clock of a file server that is an hour ahead."""
        at_s = self.clock() + 3600.0
        self.site.seen[attempt(1)] = CheckpointStatus(stepped_at_s=at_s, stall=stall)

    def sweep(self, report: AttemptReport = RUNS, after_s: float = 20.0) -> AttemptReport:
        self.clock.advance(after_s)
        found: list[AttemptReport] = []

        async def go() -> None:
            self.agent.memory.now = self.agent.now
            swept = {report.attempt: report}
            assert self.leases.looks(swept) == []  # a sweep waits for none
            self.agent.begin(self.leases.looked)
            await self.agent.finish()
            found.append(self.leases.complete(swept)[report.attempt])

        run_virtual(self.clock, go())
        return found[0]


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
    for _ in range(5):
        assert rig.sweep(again) == again
    assert rig.sweep(again).stalled_since_s


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
