"""Jobs that name nodes, or count features of some, on the nodes of one site."""

from __future__ import annotations

from dataclasses import replace

from federator.model.reason import ReasonCode
from federator.model.site import Node
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.placement import Placed, place_job
from federator.sched.bid.workload_plan import never_fits
from tests.fakes.build import gang, rack


def placed(job: Job, *nodes: Node) -> set[str]:
    result = place_job(job, FreeCapacity(nodes), ("gpu",))
    assert isinstance(result, Placed), result
    return set(result.plan.nodes)


def having(nodes: tuple[Node, ...], *features: str) -> tuple[Node, ...]:
    return tuple(replace(node, features=features) for node in nodes)


def test_the_nodes_asked_for_are_there_and_the_others_are_near_them() -> None:
    job = replace(gang(3), nodelist=("b2",))
    assert placed(job, *rack("a", 3), *rack("b", 4)) <= {"b1", "b2", "b3", "b4"}
    assert "b2" in placed(job, *rack("a", 3), *rack("b", 4))


def test_a_node_asked_for_that_is_full_is_named() -> None:
    a1, a2 = rack("a", 2)
    job = replace(gang(1), nodelist=("a1",))
    (reason,) = place_job(job, FreeCapacity((replace(a1, gpus_alloc=8), a2)), ("gpu",))  # type: ignore[misc]
    assert (reason.code, reason.detail) == (ReasonCode.TOO_FEW_NODES, "a1")
    (reason,) = place_job(job, FreeCapacity((a2,)), ("gpu",))  # type: ignore[misc]
    assert (reason.code, reason.detail) == (ReasonCode.NODES_ASKED, "a1")


def test_a_node_that_the_site_does_not_have_rejects_the_job_for_ever() -> None:
    refusal = never_fits([replace(gang(1), nodelist=("z1",))], FreeCapacity(rack("a", 1)), ("gpu",))
    assert refusal is not None
    assert refusal.reasons[0].code is ReasonCode.NO_NODE


def test_excluding_all_nodes_says_so() -> None:
    job = replace(gang(1), exclude=("a1", "a2"))
    (reason,) = place_job(job, FreeCapacity(rack("a", 2)), ("gpu",))  # type: ignore[misc]
    assert reason.code is ReasonCode.NODES_ASKED


def test_all_nodes_of_a_matching_or_have_the_same_feature() -> None:
    fleet = (*having(rack("a", 2), "x"), *having(rack("b", 1), "y"))
    assert placed(replace(gang(2), constraint="[x|y]"), *fleet) == {"a1", "a2"}
    assert placed(replace(gang(3), constraint="x|y"), *fleet) == {"a1", "a2", "b1"}


def test_a_node_with_both_features_counts_for_the_one_that_lacks_nodes() -> None:
    fleet = (*having(rack("a", 1), "x", "y"), *having(rack("b", 1), "x"))
    assert placed(replace(gang(2), constraint="[x*1&y*1]"), *fleet) == {"a1", "b1"}


def test_a_total_takes_nodes_until_it_is_held_beside_those_asked_for() -> None:
    job = replace(Job(name="t", gpus=20), nodelist=("b1",))
    found = placed(job, *rack("a", 2), *rack("b", 1))
    assert found == {"a1", "a2", "b1"}
