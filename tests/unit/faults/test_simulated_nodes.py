"""Nodes of a simulated Slurm: what a job finds free there, and what fails."""

from __future__ import annotations

import pytest

from federator.faults.simulated_nodes import SimulatedNodes
from federator.model.site import NodeShare, NodeState
from tests.fakes.build import plan_on, rack


@pytest.fixture
def nodes() -> SimulatedNodes:
    return SimulatedNodes(rack("a", 2))


def test_what_jobs_hold_is_shown_and_is_not_free(nodes: SimulatedNodes) -> None:
    held = plan_on("a1", gpus=5)
    shown = nodes.used_by(held)
    assert (shown["a1"].gpus_alloc, shown["a1"].state) == (5, NodeState.MIXED)
    assert (shown["a2"].gpus_alloc, shown["a2"].state) == (0, NodeState.IDLE)
    assert nodes.have_room(plan_on("a1", gpus=3), held)
    assert not nodes.have_room(plan_on("a1", gpus=4), held)
    assert not nodes.have_room(plan_on("a1", gpus=1, cpus=64), held)


def test_components_of_one_job_share_what_is_left(nodes: SimulatedNodes) -> None:
    assert nodes.have_room((*plan_on("a1", gpus=4), *plan_on("a1", gpus=4)), ())
    assert not nodes.have_room((*plan_on("a1", gpus=4), *plan_on("a1", gpus=5)), ())


def test_a_local_job_takes_its_part_until_it_ends(nodes: SimulatedNodes) -> None:
    nodes.take_locally("a1", NodeShare(gpus=8))
    assert not nodes.have_room(plan_on("a1"), ())
    nodes.take_locally("a1", NodeShare())
    assert nodes.have_room(plan_on("a1"), ())
    assert nodes.used_by(())["a1"].state is NodeState.IDLE


def test_a_node_that_failed_or_drained_takes_no_job_until_it_is_repaired(
    nodes: SimulatedNodes,
) -> None:
    nodes.fail("a1")
    nodes.drain("a2", "maintenance")
    assert [n.state for n in nodes.used_by(()).values()] == [NodeState.DOWN, NodeState.DRAINED]
    assert not any(nodes.have_room(plan_on(name), ()) for name in ("a1", "a2"))
    nodes.repair("a2")
    assert nodes.have_room(plan_on("a2"), ())
    nodes.repair_all()
    assert nodes.used_by(()) == {node.name: node for node in rack("a", 2)}


def test_what_is_shown_follows_each_change(nodes: SimulatedNodes) -> None:
    held = plan_on("a1", gpus=5)
    first = nodes.used_by(held)
    first.clear()  # is the caller's own
    assert nodes.used_by(held)["a1"].gpus_alloc == 5
    nodes.take_locally("a1", NodeShare(gpus=1))
    assert nodes.used_by(held)["a1"].gpus_alloc == 6
    nodes.take_locally("a1", NodeShare(gpus=2))
    assert nodes.used_by(held)["a1"].gpus_alloc == 7
    nodes.fail("a2")
    assert nodes.used_by(held)["a2"].state is NodeState.DOWN
    assert nodes.used_by(())["a1"].gpus_alloc == 2
