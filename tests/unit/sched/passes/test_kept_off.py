"""Gangs are kept off slow nodes while they have enough others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.cli.text import refusal_text
from federator.model.event import SiteDrained
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerTested
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import Job, SiteName
from federator.sched.passes.kept_off import KeptOff
from federator.sched.passes.site_view import SiteView
from federator.sched.state.drains import DrainedSites
from tests.fakes.build import gang
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_elastic_sizes import RUNS, elastic, fleet, rigid, started

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
SLOW = ("a1", "a2")


def quarantined(f: Loopback, *names: str) -> None:
    """Nodes of alpine are slow from now on."""
    now_s = f.clock.now_s
    event = SiteDrained(
        at_s=now_s, site=ALPINE, nodes=names, cordon=True, gangs=True, until_s=now_s + 86_400.0
    )
    f.log.append(event)
    f.federation.ledger.apply(event)
    f.federation.rounds.memory.known.forget(ALPINE)


def total(gpus: int) -> Job:
    """So many GPUs, on however many nodes."""
    return replace(gang(1, 8), nodes=None, gpus_per_node=0, gpus=gpus)


@pytest.mark.parametrize(
    ("job", "avoided"),
    [
        (gang(1, 8), ()),
        (gang(2, 8), SLOW),
        (gang(10, 8), SLOW),
        (gang(11, 8), ()),  # it would wait until the quarantine is over
        (total(8), ()),
        (total(16), SLOW),
        (total(80), SLOW),
        (total(88), ()),
        (replace(gang(2, 8), nodelist=("a1",)), ()),
    ],
)
def test_gangs_avoid_slow_nodes_where_the_others_are_enough(
    job: Job, avoided: tuple[str, ...]
) -> None:
    f = fleet(alpine=12)
    quarantined(f, *SLOW)
    kept_off = KeptOff.at(ALPINE, f.federation.sites[ALPINE], f.federation.ledger.drains)
    ((asked),) = kept_off.jobs((job,))
    assert asked.avoid == avoided


def test_nodes_that_are_drained_are_no_others() -> None:
    f = fleet(alpine=12)
    quarantined(f, *SLOW)
    f.federation.ledger.apply(SiteDrained(at_s=1.0, site=ALPINE, nodes=("a3",), cordon=True))
    kept_off = KeptOff.at(ALPINE, f.federation.sites[ALPINE], f.federation.ledger.drains)
    for nodes, avoids in ((9, True), (10, False)):
        (asked,) = kept_off.jobs((gang(nodes, 8),))
        assert bool(asked.avoid) is avoids


def test_where_none_is_slow_jobs_are_asked_for_as_they_are() -> None:
    kept_off = KeptOff.at(ALPINE, SiteView(partitions=("gpu",)), DrainedSites())
    jobs = (gang(2, 8),)
    assert not kept_off
    assert kept_off.jobs(jobs) is jobs


def test_equal_jobs_of_others_are_asked_for_by_their_own_names() -> None:
    kept_off = KeptOff(SLOW)
    for nodes, avoided in ((1, ()), (2, SLOW)):
        for name in ("first", "second"):
            jobs = (replace(gang(nodes, 8), name=name),)
            asked = kept_off.jobs(jobs)
            assert (asked is jobs) is (not avoided)
            assert [(job.name, job.avoid) for job in asked] == [(name, avoided)]


def test_one_without_a_number_of_nodes_starts_on_sound_ones() -> None:
    f = fleet(alpine=6)
    quarantined(f, *SLOW)
    (id_,) = started(f, replace(rigid(1), jobs=(total(16),)))
    assert f.state(id_) is RUNS
    assert set(SLOW).isdisjoint(f.entry(id_).node_names)


def test_one_for_which_too_few_are_sound_has_room_kept_and_starts() -> None:
    f = fleet(alpine=4)
    (runs,) = started(f, rigid(1, time_limit_s=600.0))
    free = [f"a{k}" for k in range(1, 5) if f"a{k}" not in f.entry(runs).node_names]
    quarantined(f, free[0])
    large, small = started(f, rigid(4), rigid(1, time_limit_s=36_000.0))
    assert f.state(large) is f.state(small) is WorkloadState.PENDING
    f.slurm("alpine").end(f.entry(runs).attempt_id)
    f.run_for(60.0)
    assert f.state(large) is RUNS


def test_a_refused_gang_is_told_of_slow_nodes_and_not_of_failed_ones() -> None:
    f = fleet(alpine=4)
    quarantined(f, "a1")
    busy, waits = started(f, rigid(2), rigid(2))
    assert (f.state(busy), f.state(waits)) == (RUNS, WorkloadState.PENDING)
    reasons = f.refusals(waits)[ALPINE].reasons
    assert [r.code for r in reasons] == [ReasonCode.RESOURCES, ReasonCode.SLOW_NODES]
    assert reasons[1].detail == "a1"
    assert "kept off slow nodes (a1)" in refusal_text(f.refusals(waits)[ALPINE])


def test_nodes_that_failed_it_are_told_apart_from_slow_ones() -> None:
    kept_off = KeptOff(("a1", "a2"))
    reason = Reason(code=ReasonCode.NODE_FAILED, detail="a2,a3,a1")
    refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
    assert [(r.code.name, r.detail) for r in kept_off.said(refusal, ("a2", "a3")).reasons] == [
        ("NODE_FAILED", "a2,a3"),
        ("SLOW_NODES", "a1"),
    ]


def test_a_test_only_gang_avoids_them_too() -> None:
    f = fleet(alpine=4)
    quarantined(f, "a1")
    answer = f.ask(rigid(2), test_only=True)
    assert isinstance(answer, AnswerTested)
    bid = answer.answers[ALPINE].bid
    assert bid is not None
    assert "a1" not in bid.jobs[0].nodes


def test_what_a_gang_is_refused_is_remembered_there_and_elsewhere() -> None:
    f = fleet(alpine=4, baker=2)
    quarantined(f, "a1")
    started(f, rigid(3), rigid(2))
    (waits,) = started(f, rigid(2))
    assert f.state(waits) is WorkloadState.PENDING
    memory, workload = f.federation.rounds.memory, f.entry(waits).workload
    number = f.federation.ledger.backlog.number_of(workload)
    sites = memory.known.bits((ALPINE, BAKER))
    assert memory.known.is_refused(number, workload.jobs, sites)
    larger = (gang(4, 8),)  # it has no other nodes, so it avoids none
    assert not memory.known.is_refused(number + 1000, larger, memory.known.bits((ALPINE,)))
    assert memory.known.is_refused(number + 1001, larger, memory.known.bits((BAKER,)))


def test_an_elastic_job_avoids_them_and_one_of_a_node_alone_is_not_held_up() -> None:
    f = fleet(alpine=4)
    quarantined(f, "a1")
    (grown,) = started(f, elastic(1, 3))
    assert set(f.entry(grown).node_names) == {"a2", "a3", "a4"}
    waits, small = started(f, elastic(1, 3), rigid(1))
    assert f.state(waits) is WorkloadState.PENDING
    assert f.entry(small).node_names == ("a1",)
