"""Jobs with ``--switches`` get nodes under so few leaf switches, or none yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.reason import Reason, ReasonCode
from federator.model.site import Node
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.negative_cache import NOBODY, NegativeCache
from federator.sched.bid.placement import Placed, place_job
from federator.sched.bid.workload_plan import never_fits
from tests.fakes.build import gang, rack


def place(job: Job, *nodes: Node) -> set[str] | Reason:
    """The racks of a plan, or why there is none."""
    found = place_job(job, FreeCapacity(nodes), ("gpu",))
    if not isinstance(found, Placed):
        return found[0]
    return {name[0] for name in found.plan.nodes}


def under(switches: int, job: Job) -> Job:
    return replace(job, switches=switches, switch_wait_s=300.0)


FLEET = (*rack("a", 2), *rack("b", 3), *rack("c", 4))


def test_a_job_waits_where_one_switch_has_too_few_nodes() -> None:
    assert place(under(1, gang(4)), *FLEET) == {"c"}
    reason = place(under(1, gang(5)), *FLEET)
    assert isinstance(reason, Reason)
    assert (reason.code, reason.needed) == (ReasonCode.SWITCHES, 1)
    assert len(place(gang(5), *FLEET)) == 2  # type: ignore[arg-type]


def test_the_switches_with_the_most_are_taken() -> None:
    assert place(under(2, gang(7)), *FLEET) == {"b", "c"}
    assert isinstance(place(under(2, gang(8)), *FLEET), Reason)
    assert place(under(3, gang(9)), *FLEET) == {"a", "b", "c"}


@pytest.mark.parametrize(("gpus", "racks"), [(32, {"c"}), (56, {"b", "c"})])
def test_totals_are_held_by_as_few_switches(gpus: int, racks: set[str]) -> None:
    job = under(len(racks), Job(name="t", gpus=gpus))
    assert place(job, *FLEET) == racks
    assert isinstance(place(replace(job, gpus=gpus + 1), *FLEET), Reason)


def test_cpus_in_total_are_held_by_one_switch() -> None:
    assert place(under(1, Job(name="t", cpus=256)), *FLEET) == {"c"}
    assert isinstance(place(under(1, Job(name="t", cpus=257)), *FLEET), Reason)


def test_nodes_that_are_named_bring_their_switch() -> None:
    assert place(replace(under(1, gang(2)), nodelist=("a1",)), *FLEET) == {"a"}
    assert isinstance(place(replace(under(1, gang(3)), nodelist=("a1",)), *FLEET), Reason)


def test_a_site_that_never_has_so_many_under_them_is_not_ruled_out() -> None:
    """Once it has waited long enough, it starts there, as in Slurm."""
    assert never_fits([under(1, gang(9))], FreeCapacity(FLEET), ("gpu",)) is None


def test_a_failure_says_nothing_of_jobs_that_take_more_switches() -> None:
    cache: NegativeCache[int] = NegativeCache()
    cache.add((under(2, gang(8)),), NOBODY, 1)
    assert cache.find((under(1, gang(8)),), NOBODY) is not None
    for other in (under(3, gang(8)), gang(8), under(2, gang(7))):
        assert cache.find((other,), NOBODY) is None
