"""A change of what a workload asks for never meets an offer for what it asked before."""

from __future__ import annotations

from federator.model.event import Amended
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerControlled, ControlAsked, ControlRefusal, ControlVerb
from federator.model.workload import WorkloadId
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
    f.run_until(lambda: f.federation._rounds.is_open)
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
    f.run_until(lambda: f.federation._rounds.is_open)
    ask_for(f, id_, nodes=1)
    f.run_for(1.0)
    answer = f.answers[77]
    assert isinstance(answer, AnswerControlled)
    assert answer.refused == ((id_, ControlRefusal.STARTED),)
    assert (f.state(id_), len(f.entry(id_).node_names)) == (WorkloadState.RUNNING, 2)
