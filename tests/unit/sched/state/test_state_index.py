"""Workloads are found by their state, the oldest change first."""

from __future__ import annotations

from itertools import permutations

from federator.model.lifecycle import WorkloadState
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.sched.state.state_index import StateIndex
from federator.sched.state.workload_record import WorkloadRecord
from tests.fakes.build import workload

PENDING, RUNNING = WorkloadState.PENDING, WorkloadState.RUNNING
IDS = tuple(WorkloadId(FIRST_WORKLOAD_ID + k) for k in range(3))


def index() -> StateIndex:
    found = StateIndex({id_: WorkloadRecord(workload(k)) for k, id_ in enumerate(IDS)})
    for id_ in IDS:
        found.add(id_, PENDING)
    return found


def test_who_comes_back_into_a_state_is_the_last_of_it() -> None:
    by_state = index()
    by_state.move(IDS[0], PENDING, RUNNING)
    by_state.move(IDS[0], RUNNING, PENDING)
    assert by_state.ids(PENDING) == (IDS[1], IDS[2], IDS[0])
    assert by_state.count(RUNNING) == 0


def test_a_state_may_change_while_it_is_read() -> None:
    by_state = index()
    seen = []
    for record in by_state.records(PENDING):
        seen.append(record.workload.id)
        by_state.move(record.workload.id, PENDING, RUNNING)
    assert tuple(seen) == by_state.ids(RUNNING) == IDS


def test_the_order_of_records_does_not_follow_from_that_of_the_states_asked_for() -> None:
    """A set of states has another order in each process."""
    by_state = index()
    by_state.move(IDS[0], PENDING, RUNNING)
    for states in permutations((PENDING, RUNNING, WorkloadState.LAUNCHING)):
        found = [record.workload.id for record in by_state.records(*states)]
        assert found == [IDS[1], IDS[2], IDS[0]]


def test_what_is_dropped_is_in_no_state() -> None:
    by_state = index()
    by_state.drop(IDS[0], PENDING)
    by_state.restore(RUNNING, (IDS[0],))
    assert by_state.ids(PENDING) == IDS[1:]
    assert by_state.ids(RUNNING) == IDS[:1]
