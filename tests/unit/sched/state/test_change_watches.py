"""A reader of the ledger is told of every workload once, and then of those that change."""

from __future__ import annotations

from federator.model.workload import WorkloadId
from federator.sched.state.change_watches import ChangeWatches

ONE, TWO, THREE = WorkloadId(1), WorkloadId(2), WorkloadId(3)


def test_a_new_watch_has_all_that_are_known_and_then_those_that_change() -> None:
    known = {ONE: "", TWO: ""}
    watches = ChangeWatches(known)
    known[THREE] = ""
    watch = watches.open()
    assert watch == {ONE, TWO, THREE}
    watch.clear()
    watches.add(TWO)
    assert watch == {TWO}


def test_every_reader_has_its_own_watch_until_it_closes_it() -> None:
    watches = ChangeWatches({})
    first, second = watches.open(), watches.open()
    assert first == second
    watches.close(first)  # not its twin
    watches.add(ONE)
    assert (first, second, len(watches)) == (set(), {ONE}, 1)
