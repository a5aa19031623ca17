"""Which free cells a job breaks, with ``policy.cells`` and without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.site import Node
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.cells import broken_cell
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.placement import Placed, place_job
from federator.sched.bid.site_scheduler import SiteScheduler
from tests.fakes.build import bid_request, gang, rack


@pytest.mark.parametrize(
    ("free", "wanted", "cell"),
    [
        (8, 1, 8),
        (7, 1, 1),  # 4, 2 and 1
        (6, 1, 2),
        (6, 2, 2),
        (6, 3, 4),
        (6, 5, 6),  # in no cell of its own: 4 and 2 are both broken
        (5, 1, 1),
        (3, 2, 2),
        (12, 8, 8),
        (12, 9, 12),
    ],
)
def test_the_smallest_free_cell_that_holds_it_is_broken(free: int, wanted: int, cell: int) -> None:
    assert broken_cell(free, wanted) == cell


def free(node: Node, gpus: int) -> Node:
    return replace(node, gpus_alloc=node.gpus - gpus)


def place(job: Job, *nodes: Node, cells: bool) -> set[str]:
    room = FreeCapacity(nodes)
    room.keep_cells(cells)
    found = place_job(job, room, ("gpu",))
    assert isinstance(found, Placed), found
    return set(found.plan.nodes)


def test_one_gpu_is_taken_beside_others_and_not_from_a_pair() -> None:
    a1, a2 = rack("a", 2)
    nodes = free(a1, 2), free(a2, 5)
    assert place(gang(1, 1), *nodes, cells=False) == {"a1"}  # the tightest
    assert place(gang(1, 1), *nodes, cells=True) == {"a2"}  # 5 are 4 and 1; the pair stays whole
    assert place(Job(name="t", gpus=1), *nodes, cells=True) == {"a2"}  # a total likewise
    assert place(gang(1, 2), *nodes, cells=True) == {"a1"}


def test_a_job_of_a_node_breaks_the_smallest_cell_of_nodes() -> None:
    # Rack a has 4 whole nodes, one cell; rack b has 5, a cell of 4 and one of 1.
    nodes = [*rack("a", 4), *rack("b", 5)]
    assert place(gang(1, 8), *nodes, cells=False) <= {"a1", "a2", "a3", "a4"}
    assert place(gang(1, 8), *nodes, cells=True) <= {"b1", "b2", "b3", "b4", "b5"}
    assert place(gang(1, 3), *nodes, cells=True) <= {"b1", "b2", "b3", "b4", "b5"}
    assert place(gang(4, 8), *nodes, cells=True) == {"a1", "a2", "a3", "a4"}


def test_a_gang_takes_the_rack_whose_cell_it_fits() -> None:
    nodes = [*rack("a", 4), *rack("b", 6)]  # 4; 4 and 2
    assert place(gang(2, 8), *nodes, cells=False) <= {"a1", "a2", "a3", "a4"}
    assert place(gang(2, 8), *nodes, cells=True) <= {f"b{k}" for k in range(1, 7)}


def test_what_fits_nowhere_else_breaks_a_large_cell() -> None:
    a1, a2 = rack("a", 2)
    assert place(gang(1, 5), a1, free(a2, 4), cells=True) == {"a1"}
    assert place(gang(1, 5), free(a1, 4), free(a2, 6), cells=True) == {"a2"}


def test_components_of_a_het_job_keep_cells_too() -> None:
    a1, a2, a3 = rack("a", 3)
    room = FreeCapacity([free(a1, 2), free(a2, 5), free(a3, 7)])
    room.keep_cells(True)
    first = place_job(gang(1, 1), room, ("gpu",))
    assert isinstance(first, Placed)
    assert set(first.plan.nodes) == {"a2"}
    room.assign(first.plan)
    second = place_job(gang(1, 1), room, ("gpu",))
    assert isinstance(second, Placed)
    assert set(second.plan.nodes) == {"a3"}  # not the pair of a1


def test_a_site_keeps_cells_while_it_is_told_to_and_remembers_no_other_answers() -> None:
    a1, a2 = rack("a", 2)
    nodes = [free(a1, 2), free(a2, 5)]
    site = SiteScheduler(("gpu",))
    site.update(nodes, ())

    def node() -> str:
        (answer,) = site.bid([bid_request(id=WorkloadId(1), jobs=(gang(1, 1),))])
        assert answer.bid is not None
        return next(iter(answer.bid.jobs[0].nodes))

    assert node() == "a1"
    site.expect({}, cells=True)
    assert node() == "a2"
    site.update([*nodes, free(rack("c", 1)[0], 8)], ())  # the site is built differently
    assert node() == "a2"
    site.expect({})
    assert node() == "a1"
