"""A change of what a workload asks for never meets an offer for what it asked before."""

from __future__ import annotations

from federator.model.eligibility import Hold
from federator.model.event import Amended
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerControlled, ControlAsked, ControlRefusal, ControlVerb
from federator.model.reason import ReasonCode
from federator.model.workload import WorkloadId
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback


def ask_for(f: Loopback, id_: WorkloadId, nodes: int) -> None:
    amended = Amended(at_s=0.0, workloads=(id_,), jobs=(gang(nodes),))
    asked = ControlAsked(
        client=77, verb=ControlVerb.UPDATE, ids=(id_,), by="ada", amended=(amended,)
    )
    f.observe(asked)


def test_a_change_waits_for_the_end_of_the_pass_that_asks_about_the_workload() -> None:
    f = Loopback({"alpine": rack("a", 2)})
    f.submit(draft(gang(1)))
    f.run_for(1.0)
    waits = f.submit(draft(gang(2)))
    starts = f.submit(draft(gang(1)))
    f.run_until(lambda: f.federation.rounds.is_open)
    ask_for(f, waits, nodes=1)
    assert 77 not in f.answers
    f.run_for(1.0)
    assert f.answers[77] == AnswerControlled(client=77, ids=(waits,))
    assert f.entry(waits).workload.jobs == (gang(1),)
    states = {f.state(id_): id_ for id_ in (waits, starts)}
    assert set(states) == {WorkloadState.PENDING, WorkloadState.RUNNING}
    assert len(f.entry(states[WorkloadState.RUNNING]).node_names) == 1


def test_a_change_that_came_too_late_is_refused() -> None:
    f = Loopback({"alpine": rack("a", 2)})
    id_ = f.submit(draft(gang(2)))
    f.run_until(lambda: f.federation.rounds.is_open)
    ask_for(f, id_, nodes=1)
    f.run_for(1.0)
    answer = f.answers[77]
    assert isinstance(answer, AnswerControlled)
    assert answer.refused == ((id_, ControlRefusal.STARTED),)
    assert (f.state(id_), len(f.entry(id_).node_names)) == (WorkloadState.RUNNING, 2)


# ---- requeue ----


def test_a_requeued_workload_saves_leaves_and_starts_again_and_it_is_no_eviction() -> None:
    f = Loopback({"alpine": rack("a", 2)}, Rules(grace_s=30.0))
    f.save_s = 5.0
    id_ = f.submit(draft())
    f.run_for(100.0)
    assert f.control(ControlVerb.REQUEUE, id_).ids == (id_,)
    assert f.state(id_) is WorkloadState.PREEMPTING
    f.run_for(4.0)
    assert f.control(ControlVerb.REQUEUE, id_).ids == (id_,)  # asked again: it leaves already
    f.run_for(30.0)
    entry = f.entry(id_)
    assert (entry.state, entry.attempt) == (WorkloadState.RUNNING, 2)
    assert (entry.preemptions, len(f.federation.ledger.evictions.within)) == (0, 0)
    assert entry.lost_gpu_s == 0.0


def test_a_requeued_workload_that_is_to_be_held_waits_then() -> None:
    f = Loopback({"alpine": rack("a", 2)}, Rules(grace_s=30.0))
    id_ = f.submit(draft())
    f.run_for(10.0)
    f.control(ControlVerb.REQUEUE_HOLD, id_, by="root", is_operator=True)
    f.restart()
    f.run_for(60.0)
    assert (f.state(id_), f.entry(id_).hold) == (WorkloadState.INELIGIBLE, Hold.ADMIN)


def test_what_its_site_has_not_started_is_withdrawn_by_a_requeue() -> None:
    f = Loopback({"alpine": rack("a", 2)})
    f.slurm("alpine").starts_jobs = False
    id_ = f.submit(draft())
    f.run_until(lambda: f.state(id_) is WorkloadState.LAUNCHING)
    f.control(ControlVerb.REQUEUE, id_)
    f.run_until(lambda: f.state(id_) is WorkloadState.PENDING)


def test_what_waits_or_may_not_start_again_is_not_requeued() -> None:
    f = Loopback({"alpine": rack("a", 2)})
    held = f.submit(draft(hold=Hold.USER))
    once = f.submit(draft(requeue=False))
    f.run_for(5.0)
    refused = f.control(ControlVerb.REQUEUE, held, once).refused
    assert refused == ((held, ControlRefusal.PENDING), (once, ControlRefusal.NO_REQUEUE))
    assert f.state(once) is WorkloadState.RUNNING


def test_a_job_that_no_site_took_is_tried_at_once_when_it_is_released() -> None:
    f = Loopback({"alpine": rack("a", 2)})
    f.refuse_launches("alpine", code=ReasonCode.SBATCH_REFUSED)
    id_ = f.submit(draft())
    f.run_for(30.0)
    assert f.state(id_) is WorkloadState.HELD
    f.refuse_launches("alpine", refuses=False)
    f.control(ControlVerb.RELEASE, id_)
    f.run_for(5.0)
    assert f.state(id_) is WorkloadState.RUNNING


def test_a_workload_that_is_forgotten_while_a_pass_asks_about_it_disturbs_nothing() -> None:
    f = Loopback({"alpine": rack("a", 2)})
    id_, other = f.submit(draft()), f.submit(draft())
    f.run_until(lambda: f.federation.rounds.is_open)
    f.cancel(id_)
    f.forget_ended(0.0)
    assert id_ not in f.federation.ledger.entries
    f.run_for(1.0)
    assert f.state(other) is WorkloadState.RUNNING
