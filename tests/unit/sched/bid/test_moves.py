"""The site plans a gang and the places of those who move for it in one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from federator.model.plan import Bid, NodeMove
from federator.model.site import Node, NodeShare, RunningJob
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.moves import MoveLimits, plan_with_moves
from federator.sched.bid.running_jobs import Occupants
from tests.fakes.build import gang, rack

NOW_S = 10_000.0
NODES = rack("a", 4)
LIMITS = MoveLimits(most=4, priority=3, now_s=NOW_S)


def small(id_: int, node: str, gpus: int, **fields: object) -> RunningJob:
    job = RunningJob(
        id=id_,
        tenant="vision",
        priority=3,
        preemptible=True,
        movable=True,
        started_at_s=0.0,
        nodes={node: NodeShare(gpus=gpus, cpus=gpus)},
    )
    return replace(job, **fields)  # type: ignore[arg-type]


def plan(
    jobs: Sequence[RunningJob],
    asked: Job,
    nodes: Sequence[Node] = NODES,
    limits: MoveLimits = LIMITS,
) -> Bid | None:
    used: dict[str, int] = {}
    for job in jobs:
        for name, share in job.nodes.items():
            used[name] = used.get(name, 0) + share.gpus
    busy = [
        replace(n, gpus_alloc=used.get(n.name, 0), cpus_alloc=used.get(n.name, 0)) for n in nodes
    ]
    room = FreeCapacity(busy)
    before = {f.node.name: f.left for f in room.nodes}
    occupants = Occupants(room, jobs)
    found = plan_with_moves([asked], room, ("gpu",), occupants, limits)
    if found is not None:
        for each in found.jobs:
            room.release(each)
    assert {f.node.name: f.left for f in room.nodes} == before
    return found


HALVES = tuple(small(k, f"a{k}", 4) for k in range(1, 5))


def test_two_of_four_half_used_nodes_are_emptied_onto_the_others() -> None:
    found = plan(HALVES, gang(2))
    assert found is not None
    (job,) = found.jobs
    assert sorted(found.victims) == [int(name[1:]) for name in sorted(job.nodes)]
    places = {move.node for move in found.moves}
    assert len(places) == 2
    assert places.isdisjoint(job.nodes)
    assert found.score.lost_work_gpu_s > 0


def test_the_nodes_that_lose_the_least_are_emptied_and_the_tightest_place_is_taken() -> None:
    found = plan(
        (small(1, "a1", 1), small(2, "a2", 4), small(3, "a3", 6), small(4, "a4", 8)), gang(1)
    )
    assert found is not None
    assert found.moves == (NodeMove(1, "a3"),)


def test_nobody_moves_who_has_no_place_may_not_or_is_more_important() -> None:
    full = (*HALVES[:2], small(3, "a3", 8), small(4, "a4", 8))
    assert plan(full, gang(2)) is None  # 8 GPUs are free
    for fields in (
        {"movable": False},
        {"preemptible": False},
        {"priority": 2},
        {"cooldown_until_s": NOW_S + 1},
        {"saves_in_time": False},
    ):
        assert plan([replace(job, **fields) for job in HALVES], gang(2)) is None
    assert plan(HALVES, gang(2), limits=MoveLimits(1, 3, NOW_S)) is None


def test_a_place_is_a_node_of_the_same_kind() -> None:
    two = (small(1, "a1", 4), small(2, "b1", 4))
    assert plan(two, gang(1), (*rack("a", 1), *rack("b", 1))) is not None
    assert plan(two, gang(1), (*rack("a", 1, features=("ib",)), *rack("b", 1))) is None


def test_jobs_that_take_gpus_anywhere_need_no_moves() -> None:
    assert plan(HALVES, Job(name="any", gpus=16)) is None
