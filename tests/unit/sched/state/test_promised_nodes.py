"""Victims are kept for the award that needs them, whose lease begins anew when they have left."""

from __future__ import annotations

from federator.model.event import Awarded
from federator.model.lifecycle import WorkloadState
from federator.model.plan import Shrink
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.sched.state.promised_nodes import PromisedNodes
from federator.sched.state.workload_record import WorkloadRecord
from tests.fakes.build import attempt, plan_on, workload

IDS = tuple(WorkloadId(FIRST_WORKLOAD_ID + k) for k in range(3))
WINNER, VICTIM, SHRINKS = IDS
AWARD = Awarded(
    at_s=1.0,
    attempt=attempt(0),
    site="alpine",
    jobs=plan_on("a1"),
    victims=(VICTIM,),
    shrinks=(Shrink(SHRINKS, 1),),
)


class Promised:
    """An award that evicts one workload, and takes an optional job of another."""

    def __init__(self) -> None:
        self.entries = {id_: WorkloadRecord(workload(k)) for k, id_ in enumerate(IDS)}
        self.winner, self.victim, self.shrinks = self.entries.values()
        self.winner.state = WorkloadState.LAUNCHING
        self.nodes = PromisedNodes(self.entries)
        self.nodes.promise(AWARD)


def test_an_award_has_its_victims_to_itself_until_it_comes_to_nothing() -> None:
    it = Promised()
    assert it.victim.promised_to == WINNER
    assert it.shrinks.promised_jobs == {1: WINNER}
    it.nodes.spare(AWARD)
    assert it.victim.promised_to is None
    assert it.shrinks.promised_jobs == {}


def test_a_victim_that_was_promised_anew_is_not_spared_by_the_old_award() -> None:
    it = Promised()
    it.victim.promised_to = SHRINKS
    it.nodes.spare(AWARD)
    assert it.victim.promised_to == SHRINKS


def test_the_lease_of_the_winner_begins_when_its_victim_has_left() -> None:
    it = Promised()
    it.nodes.victim_left(it.victim, 50.0)
    assert it.winner.lease_from_s == 50.0
    assert it.victim.promised_to is None


def test_an_optional_job_is_leaving_until_it_is_known_to_be_gone() -> None:
    it = Promised()
    assert it.nodes.take_job(it.shrinks, 1, None) is it.winner
    assert (it.shrinks.promised_jobs, it.shrinks.leaving_jobs) == ({}, {1: WINNER})
    assert list(it.nodes.shrinking) == [SHRINKS]
    it.nodes.jobs_left(it.shrinks, (1,), 60.0)
    assert it.winner.lease_from_s == 60.0
    assert not it.nodes.shrinking


def test_who_has_started_meanwhile_has_no_lease_to_begin() -> None:
    it = Promised()
    it.winner.state = WorkloadState.RUNNING
    it.nodes.victim_left(it.victim, 50.0)
    assert it.winner.lease_from_s == 0.0
