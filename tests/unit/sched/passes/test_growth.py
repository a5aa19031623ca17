"""Elastic jobs that run are resized: the whole federation in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent
from federator.model.reason import ReasonCode
from federator.model.tenant import Allowance
from federator.model.workload import WorkloadId
from federator.sched.passes.growth import LOOKS_EVERY_S
from federator.sched.state.rules import Rules
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_elastic_sizes import (
    OWNER,
    RUNS,
    WAITS,
    elastic,
    fleet,
    nodes,
    rigid,
    started,
)

COOLDOWN_S = 600.0
RULES = Rules(grace_s=60.0, cooldown_s=COOLDOWN_S, pass_interval_s=30.0)


def small(f: Loopback, *others: WorkloadId) -> WorkloadId:
    """An elastic job of 1 to 4 nodes that runs on two, since two were taken; now these are free."""
    taken = started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4))
    assert nodes(f, id_) == 2
    for each in taken:
        f.slurm("alpine").end(f.entry(each).attempt_id)
    return id_


def resizes(f: Loopback, id_: WorkloadId) -> list[tuple[int, int]]:
    """Of each, the nodes that it had and was to have."""
    changes = [e for e in f.log if isinstance(e, Changed) and e.workload == id_]
    asked = [e.reason for e in changes if e.happening is WorkloadEvent.REQUEUE_ASKED]
    return [(r.free, r.needed) for r in asked if r and r.code is ReasonCode.RESIZED]


def test_it_goes_on_with_more_nodes_when_they_are_idle_and_its_cooldown_is_over() -> None:
    f = fleet(rules=RULES)
    id_ = small(f)
    f.run_for(COOLDOWN_S - 60.0)
    assert nodes(f, id_) == 2
    f.run_for(240.0)
    assert (nodes(f, id_), f.entry(id_).attempt) == (4, 2)
    assert resizes(f, id_) == [(2, 4)]
    assert not len(f.federation.ledger.evictions.within)  # nor has it cost any of the budget


def _less_time(f: Loopback) -> WorkloadId:
    taken = started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4, time_limit_s=COOLDOWN_S + 900.0))
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    return id_


def _somebody_waits(f: Loopback) -> WorkloadId:
    id_ = small(f)
    f.submit(rigid(3))
    return id_


def _may_not_start_again(f: Loopback) -> WorkloadId:
    taken = started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4, requeue=False))
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    return id_


@pytest.mark.parametrize("case", [_less_time, _somebody_waits, _may_not_start_again])
def test_it_stays_as_it_is(case: Callable[[Loopback], WorkloadId]) -> None:
    f = fleet(rules=RULES)
    id_ = case(f)
    f.run_for(COOLDOWN_S + 120.0)
    assert (nodes(f, id_), resizes(f, id_)) == (2, [])


def test_it_grows_no_further_than_its_quota() -> None:
    f = fleet(replace(OWNER, quota=Allowance(gpus=24)), rules=RULES)
    taken = started(f, rigid(1))
    (id_,) = started(f, elastic(1, 4))
    assert nodes(f, id_) == 2
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    f.run_for(COOLDOWN_S + 240.0)
    assert (nodes(f, id_), resizes(f, id_)) == (3, [(2, 3)])


def test_surplus_is_given_back_to_one_that_waits_for_it() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, elastic(1, 4, asked=2))
    assert nodes(f, id_) == 4
    neighbour = f.submit(rigid(2))
    f.run_for(LOOKS_EVERY_S + 120.0)
    assert (nodes(f, id_), nodes(f, neighbour)) == (2, 2)
    assert resizes(f, id_) == [(4, 2)]


def test_for_one_whom_the_surplus_does_not_help_nothing_is_given_back() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, elastic(1, 4, asked=2))
    gang_ = f.submit(rigid(3))
    f.run_for(600.0)
    assert (nodes(f, id_), f.state(gang_), resizes(f, id_)) == (4, WAITS, [])


def test_what_it_asked_for_is_given_to_nobody() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, elastic(1, 4))
    f.submit(rigid(1))
    f.run_for(600.0)
    assert (nodes(f, id_), f.state(id_), resizes(f, id_)) == (4, RUNS, [])
