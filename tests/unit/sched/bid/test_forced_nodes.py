"""What is refused for good since one component must have the node that another needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.cli.text import refusal_text
from federator.model.workload import Job
from federator.sched.bid import forced_nodes
from federator.sched.bid.forced_nodes import crowded_out
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.workload_plan import never_fits
from tests.fakes.build import rack

(BIG,) = rack("a", 1, gpus=0, cpus=64)
SMALL = rack("b", 2, gpus=0, cpus=16)
ON_THE_NIC = Job(name="t+0", nodes=1, gres=(("nic", 1),))
MANY_CPUS = Job(name="t+1", cpus=48)
NODES = (replace(BIG, gres=(("nic", 1),)), *SMALL)


def test_a_component_that_cannot_do_without_anothers_only_node_is_refused() -> None:
    refusal = never_fits((ON_THE_NIC, MANY_CPUS), FreeCapacity(NODES), ("gpu",))
    assert refusal is not None
    assert refusal_text(refusal) == (
        "never: t+1: needs 48 CPUs that no other of its components has; the site has 32"
    )
    fewer = replace(MANY_CPUS, cpus=32)
    assert never_fits((ON_THE_NIC, fewer), FreeCapacity(NODES), ("gpu",)) is None


def test_who_is_pushed_aside_may_push_aside_another() -> None:
    """The first takes the large node, so the second must have both others, and the third has none;
    whatever their order."""
    jobs = (ON_THE_NIC, replace(MANY_CPUS, cpus=32), Job(name="t+2", nodes=1, cpus_per_node=16))
    for order in (jobs, jobs[::-1]):
        assert crowded_out(order, FreeCapacity(NODES), ("gpu",)) is not None
        assert crowded_out(order, FreeCapacity((*NODES, *rack("c", 1))), ("gpu",)) is None


def test_a_proof_that_takes_too_long_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forced_nodes, "TRIES", 1)
    assert crowded_out((ON_THE_NIC, MANY_CPUS), FreeCapacity(NODES), ("gpu",)) is None
