"""Pending workloads that have saved are listed, the one that has been so for longest first."""

from __future__ import annotations

from federator.model.lifecycle import WorkloadState
from federator.model.workload import SiteName
from federator.sched.state.saved_workloads import SavedWorkloads
from federator.sched.state.workload_record import WorkloadRecord
from tests.fakes.build import workload

PENDING, AWARDED = WorkloadState.PENDING, WorkloadState.AWARDED


def entry(number: int, state: WorkloadState = PENDING, saved_at: str = "alpine") -> WorkloadRecord:
    found = WorkloadRecord(workload(number))
    found.state, found.saved_at = state, SiteName(saved_at)
    return found


def test_only_those_that_wait_and_have_saved_are_listed() -> None:
    saved = SavedWorkloads()
    waits = entry(1)
    for each in (waits, entry(2, saved_at=""), entry(3, AWARDED)):
        saved.changed(each)
    assert list(saved) == [waits.workload.id]


def test_one_that_starts_is_listed_no_more_and_is_the_last_when_it_comes_back() -> None:
    saved = SavedWorkloads()
    first, second = entry(1), entry(2)
    saved.changed(first)
    saved.changed(second)
    first.state = AWARDED
    saved.changed(first)
    assert list(saved) == [second.workload.id]
    first.state = PENDING
    saved.changed(first)
    assert list(saved) == [second.workload.id, first.workload.id]


def test_one_that_is_forgotten_is_listed_no_more() -> None:
    saved = SavedWorkloads()
    saved.changed(entry(1))
    saved.drop(entry(1).workload.id)
    saved.drop(entry(2).workload.id)
    assert list(saved) == []
