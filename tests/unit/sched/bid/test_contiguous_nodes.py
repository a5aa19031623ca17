"""Jobs with ``--contiguous`` get nodes that follow each other at their site, or none yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from federator.model.plan import BidRequest
from federator.model.reason import Reason, ReasonCode, RefusalKind
from federator.model.site import Node, NodeState
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.negative_cache import NOBODY, NegativeCache
from federator.sched.bid.placement import Placed, place_job
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.sched.bid.workload_plan import never_fits
from tests.fakes.build import gang, rack


def in_a_row(job: Job) -> Job:
    return replace(job, contiguous=True)


def busy(nodes: Sequence[Node], *names: str) -> list[Node]:
    """The nodes, of which some have no GPU free."""
    return [replace(n, gpus_alloc=n.gpus) if n.name in names else n for n in nodes]


def place(job: Job, nodes: Sequence[Node]) -> list[str] | Reason:
    """The nodes of a plan, or why there is none."""
    found = place_job(job, FreeCapacity(nodes), ("gpu",))
    return sorted(found.plan.nodes) if isinstance(found, Placed) else found[0]


def request(id_: int, *jobs: Job) -> BidRequest:
    return BidRequest(
        id=WorkloadId(id_), tenant="t", user="ada", priority=3, jobs=jobs, time_limit_s=60.0
    )


ROW = rack("a", 8)


def test_a_busy_node_interrupts_a_row() -> None:
    nodes = busy(ROW, "a2", "a5")  # free: a1, a3 a4, a6 a7 a8
    assert place(in_a_row(gang(3)), nodes) == ["a6", "a7", "a8"]
    assert place(in_a_row(gang(2)), nodes) == ["a3", "a4"], "the longer row stays whole"
    reason = place(in_a_row(gang(4)), nodes)
    assert isinstance(reason, Reason)
    assert (reason.code, reason.needed, reason.free) == (ReasonCode.TOO_FEW_NODES, 4, 3)
    assert len(place(gang(4), nodes)) == 4  # type: ignore[arg-type]


def test_nodes_of_other_partitions_and_those_that_are_down_interrupt_it_too() -> None:
    other = replace(ROW[1], partitions=("cpu",))
    assert isinstance(place(in_a_row(gang(2)), (ROW[0], other, ROW[2])), Reason)
    site = SiteScheduler(("gpu",))
    down = replace(ROW[1], state=NodeState.DOWN)
    site.update((ROW[0], down, *ROW[2:4]), ())
    (answer,) = site.bid([request(1, in_a_row(gang(2)))], 0.0)
    assert answer.bid is not None
    assert set(answer.bid.jobs[0].nodes) == {"a3", "a4"}
    (answer,) = site.bid([request(2, in_a_row(gang(3)))], 0.0)
    assert answer.refusal is not None
    assert answer.refusal.kind is RefusalKind.WAIT, "the node comes back"


def test_the_order_is_that_of_the_site_not_of_names() -> None:
    """As slurmctld's table may be in the order of the racks."""
    nodes = [ROW[k] for k in (0, 4, 1, 5, 2, 3)]
    assert place(in_a_row(gang(2)), busy(nodes, "a3", "a4", "a2", "a6")) == ["a1", "a5"]
    assert isinstance(place(in_a_row(gang(2)), busy(nodes, "a5", "a6", "a3")), Reason)


def test_a_row_under_one_switch_is_better() -> None:
    nodes = (*rack("a", 3), *rack("b", 4))
    assert place(in_a_row(gang(2)), busy(nodes, "a1", "b2")) == ["a2", "a3"]
    assert place(in_a_row(gang(3)), busy(nodes, "a1", "b2")) == ["a2", "a3", "b1"]
    reason = place(replace(in_a_row(gang(3)), switches=1), busy(nodes, "a1", "b2"))
    assert isinstance(reason, Reason)
    assert reason.code is ReasonCode.SWITCHES


def test_nodes_asked_for_by_name_are_in_the_row() -> None:
    nodes = busy(ROW, "a4")
    assert place(replace(in_a_row(gang(2)), nodelist=("a7",)), nodes) in (
        ["a6", "a7"],
        ["a7", "a8"],
    )
    assert place(replace(in_a_row(gang(3)), nodelist=("a1", "a3")), nodes) == ["a1", "a2", "a3"]
    assert isinstance(place(replace(in_a_row(gang(3)), nodelist=("a3", "a5")), nodes), Reason)


@pytest.mark.parametrize(("gpus", "row"), [(16, ["a3", "a4"]), (24, ["a6", "a7", "a8"])])
def test_totals_are_held_by_the_fewest_in_a_row(gpus: int, row: list[str]) -> None:
    assert place(in_a_row(Job(name="t", gpus=gpus)), busy(ROW, "a2", "a5")) == row


def test_counted_features_are_in_the_row() -> None:
    nodes = [replace(n, features=("big",)) if n.name in ("a2", "a6") else n for n in ROW]
    job = in_a_row(replace(gang(2), constraint="[big*1]"))
    row = place(job, busy(nodes, "a1", "a3"))
    assert row in (["a5", "a6"], ["a6", "a7"])


def test_more_than_any_row_of_the_site_is_refused_for_good() -> None:
    nodes = (*ROW[:3], replace(ROW[3], partitions=("cpu",)), *ROW[4:])
    empty = FreeCapacity(nodes)
    assert never_fits([in_a_row(gang(4))], empty, ("gpu",)) is None
    assert never_fits([in_a_row(gang(5))], empty, ("gpu",)) is not None
    assert never_fits([gang(5)], empty, ("gpu",)) is None


def test_each_component_of_a_het_job_has_a_row_of_its_own() -> None:
    site = SiteScheduler(("gpu",))
    site.update(busy(ROW, "a3"), ())
    jobs = (in_a_row(gang(2, name="x")), in_a_row(gang(4, name="y")))
    (answer,) = site.bid([request(1, *jobs)], 0.0)
    assert answer.bid is not None
    assert set(answer.bid.jobs[0].nodes) == {"a1", "a2"}
    assert len(answer.bid.jobs[1].nodes) == 4


def test_a_failure_says_nothing_of_jobs_that_take_any_nodes() -> None:
    cache: NegativeCache[int] = NegativeCache()
    cache.add((in_a_row(gang(3)),), NOBODY, 1)
    assert cache.find((gang(3),), NOBODY) is None
    cache = NegativeCache()
    cache.add((gang(3),), NOBODY, 1)
    assert cache.find((in_a_row(gang(3)),), NOBODY) is not None
