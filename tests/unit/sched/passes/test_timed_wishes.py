"""How long jobs hold out for few switches."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from federator.model.lifecycle import WorkloadState
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import Job, SiteName
from federator.sched.passes.timed_wishes import reservation_begins_s
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

PENDING, RUNNING = WorkloadState.PENDING, WorkloadState.RUNNING


def together(nodes: int, wait_s: float) -> Job:
    return replace(gang(nodes), switches=1, switch_wait_s=wait_s)


def two_racks() -> Loopback:
    return Loopback({"alpine": (*rack("a", 2), *rack("b", 2))})


def test_a_job_starts_under_more_switches_when_it_has_waited_long_enough() -> None:
    f = two_racks()
    id_ = f.submit(draft(together(3, 100.0)))
    f.run_for(90.0)
    assert f.state(id_) is PENDING
    (refusal,) = f.entry(id_).refusals.values()
    assert refusal.reasons[0].code is ReasonCode.SWITCHES
    f.run_for(15.0)
    assert f.state(id_) is RUNNING
    assert f.replayed().entries[id_].workload == f.entry(id_).workload


def test_the_wait_begins_when_it_could_start_but_for_the_switches() -> None:
    f = two_racks()
    first = f.submit(draft(gang(4)))
    f.run_for(1.0)
    id_ = f.submit(draft(together(3, 100.0)))
    f.run_for(200.0)
    assert f.state(id_) is PENDING
    f.cancel(first)
    f.run_for(80.0)
    assert f.state(id_) is PENDING
    f.run_for(30.0)
    assert f.state(id_) is RUNNING


def test_each_of_many_alike_starts_when_its_own_wait_is_over() -> None:
    """The refusal of the first was taken for theirs, so they were never asked about."""
    f = Loopback({"alpine": tuple(node for name in "abcdef" for node in rack(name, 1))})
    ids = [f.submit(draft(together(2, 100.0)))]
    for _ in range(2):
        f.run_for(30.0)
        ids.append(f.submit(draft(together(2, 100.0))))
    f.run_for(45.0)
    assert [f.state(id_) for id_ in ids] == [RUNNING, PENDING, PENDING]
    f.run_for(30.0)
    assert [f.state(id_) for id_ in ids] == [RUNNING, RUNNING, PENDING]
    f.run_for(30.0)
    assert [f.state(id_) for id_ in ids] == [RUNNING] * 3


def test_passes_for_others_meanwhile_do_not_put_its_time_off() -> None:
    f = Loopback({"alpine": tuple(node for name in "abcd" for node in rack(name, 1))})
    id_ = f.submit(draft(together(2, 100.0)))
    f.run_for(50.0)
    f.submit(draft(gang(1)))
    f.run_for(55.0)
    assert f.state(id_) is RUNNING


def test_without_an_end_it_waits_for_one_switch() -> None:
    f = two_racks()
    id_ = f.submit(draft(together(3, inf)))
    f.run_for(2_000.0)
    assert f.state(id_) is PENDING
    other = f.submit(draft(together(2, inf)))
    f.run_for(1.0)
    assert f.state(other) is RUNNING


def test_a_job_that_was_cancelled_meanwhile_is_left_alone() -> None:
    f = two_racks()
    id_ = f.submit(draft(together(3, 100.0)))
    f.run_for(10.0)
    f.cancel(id_)
    f.run_for(600.0)
    assert f.entry(id_).workload.jobs[0].switches == 1


def test_a_job_is_due_when_its_reservation_begins() -> None:
    f = two_racks()
    id_ = f.submit(draft(together(3, inf)))
    entry = f.entry(id_)
    waits = (
        Reason(code=ReasonCode.RESERVATION, detail=name, from_s=from_s)
        for name, from_s in (("r1", 5_000.0), ("r2", 4_000.0), ("r3", 0.0))
    )
    entry.refusals = {
        SiteName(f"s{k}"): Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
        for k, reason in enumerate(waits)
    }
    assert reservation_begins_s(entry, 3_000.0) == 4_001.0
    assert reservation_begins_s(entry, 4_500.0) == 5_001.0
    assert reservation_begins_s(entry, 6_000.0) == inf
