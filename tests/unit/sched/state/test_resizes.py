"""A larger size that comes to nothing: the job goes on at its last good one, in virtual time."""

from __future__ import annotations

import pytest

from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.reason import Reason, ReasonCode
from federator.model.site import SiteJobState
from federator.model.workload import WorkloadId
from federator.sched.passes.report_events import TRIAL_S
from federator.sched.state.resizes import note_worked
from federator.sched.state.rules import Rules
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_elastic_sizes import RUNS, WAITS, elastic, fleet, nodes, rigid
from tests.unit.sched.passes.test_elastic_sizes import started as started_all

COOLDOWN_S = 600.0
RULES = Rules(grace_s=60.0, cooldown_s=COOLDOWN_S, pass_interval_s=30.0)
FAILED = WorkloadState.FAILED


def grown(f: Loopback) -> WorkloadId:
    """A job of 1 to 4 nodes that ran on two, and is to go on with four."""
    taken = started_all(f, rigid(2))
    (id_,) = started_all(f, elastic(1, 4))
    for each in taken:
        f.slurm("alpine").end(f.entry(each).attempt_id)
    while f.entry(id_).state is RUNS:
        f.run_for(5.0)
    return id_


def fail(f: Loopback, id_: WorkloadId) -> None:
    f.slurm("alpine").end(f.entry(id_).attempt_id, SiteJobState.FAILED, 1)
    f.run_for(60.0)


def until_it_runs(f: Loopback, id_: WorkloadId) -> None:
    while not nodes(f, id_):
        f.run_for(5.0)


def test_one_that_fails_at_a_larger_size_goes_on_at_its_last_good_one() -> None:
    f = fleet(rules=RULES)
    id_ = grown(f)
    until_it_runs(f, id_)
    assert nodes(f, id_) == 4
    fail(f, id_)
    assert (nodes(f, id_), f.entry(id_).attempt) == (2, 3)
    f.run_for(2 * COOLDOWN_S)
    assert (nodes(f, id_), f.entry(id_).attempt) == (2, 3)  # nor is it made so large again


def test_one_that_fails_at_its_last_good_size_has_failed() -> None:
    f = fleet(rules=RULES)
    id_ = grown(f)
    until_it_runs(f, id_)
    fail(f, id_)
    fail(f, id_)
    assert (f.state(id_), f.entry(id_).attempt) == (FAILED, 3)


def test_one_that_has_worked_at_the_larger_size_for_long_has_failed() -> None:
    f = fleet(rules=RULES)
    id_ = grown(f)
    until_it_runs(f, id_)
    f.run_for(TRIAL_S + 60.0)
    fail(f, id_)
    assert f.state(id_) is FAILED


def test_one_asked_to_grow_again_seconds_after_its_start_has_not_worked_yet() -> None:
    f = fleet(rules=RULES)
    id_ = grown(f)
    until_it_runs(f, id_)
    entry = f.entry(id_)
    entry.stints = ((2, 300.0),)  # what it saved on two
    soon = Reason(code=ReasonCode.RESIZED, needed=8)
    asked = WorkloadEvent.REQUEUE_ASKED
    note_worked(entry, Changed(workload=id_, happening=asked, at_s=f.clock.now_s, reason=soon))
    fail(f, id_)
    assert (nodes(f, id_), f.entry(id_).attempt) == (2, 3)


def test_one_that_never_grew_has_failed() -> None:
    f = fleet(rules=RULES)
    (id_,) = started_all(f, elastic(1, 4))
    fail(f, id_)
    assert f.state(id_) is FAILED


@pytest.mark.parametrize("code", [ReasonCode.SBATCH_REFUSED, ReasonCode.PLAN_REFUSED])
def test_one_whose_larger_size_sbatch_refuses_goes_on_at_its_last_good_one(
    code: ReasonCode,
) -> None:
    f = fleet(rules=RULES)
    id_ = grown(f)
    f.refuse_launches("alpine", code=code)
    f.run_until(lambda: f.entry(id_).most_nodes > 0)
    f.refuse_launches("alpine", refuses=False)
    f.run_for(30.0)
    assert (nodes(f, id_), f.entry(id_).most_nodes) == (2, 2)


def test_one_that_sbatch_refuses_at_any_size_is_held_in_the_end() -> None:
    f = fleet(rules=RULES)
    f.refuse_launches("alpine", code=ReasonCode.SBATCH_REFUSED)
    id_ = f.submit(elastic(1, 4))
    f.run_for(120.0)
    assert (f.state(id_), f.entry(id_).most_nodes) == (WorkloadState.HELD, 1)


def test_the_bound_is_in_the_log() -> None:
    f = fleet(rules=RULES)
    id_ = grown(f)
    until_it_runs(f, id_)
    fail(f, id_)
    kept = f.replayed().entries[id_]
    assert (kept.good_nodes, kept.most_nodes) == (2, 2)


def test_others_that_wait_are_not_concerned() -> None:
    f = fleet(rules=RULES)
    f.refuse_launches("alpine", code=ReasonCode.SBATCH_REFUSED)
    id_ = f.submit(rigid(1))
    f.run_for(60.0)
    assert f.state(id_) is not WAITS
    assert f.entry(id_).most_nodes == 0
