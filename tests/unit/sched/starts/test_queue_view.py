"""What a play sees of a federation: free GPUs, those in others' use taken away."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from federator.model.event import SiteDrained
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.start_estimate import NoEstimate
from federator.model.workload import Job, SiteName
from federator.sched.bid.site_scheduler import summarise
from federator.sched.starts.queue_view import not_played, queue_view
from tests.fakes.build import draft, gang, rack, workload
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_checkpoint_moves import fleet as two_regions
from tests.unit.sched.passes.test_checkpoint_moves import leave
from tests.unit.sched.passes.test_data_copies import add, fleet, submit

MATLAB = (("matlab", 2),)


def free_gpus(used: tuple[int, ...], partitions: tuple[tuple[str, ...], ...]) -> list[int]:
    """Of a site with a node in each of these partitions, of which others use so many GPUs."""
    nodes = [
        replace(node, gpus_alloc=gpus, partitions=names)
        for node, gpus, names in zip(rack("a", len(used)), used, partitions, strict=True)
    ]
    f = Loopback({"alpine": nodes})
    f.run_for(1.0)
    view = f.federation.sites[SiteName("alpine")]
    view.summary = summarise(nodes, sorted({name for names in partitions for name in names}))
    (pool,) = queue_view(f.federation, f.clock.now_s).pools
    return pool.free


def test_gpus_in_others_use_are_taken_on_the_freest_nodes() -> None:
    assert sum(free_gpus((3, 0), (("gpu",), ("gpu",)))) == 13


def test_partitions_without_a_node_in_common_are_summed() -> None:
    assert free_gpus((8, 8), (("gpu",), ("long",))) == [0, 0]


@pytest.mark.parametrize("second", [("gpu", "long"), ("long", "gpu")])
def test_partitions_that_share_nodes_count_once(second: tuple[str, ...]) -> None:
    assert sum(free_gpus((4, 4), (("gpu", "long"), second))) == 8


@pytest.mark.parametrize(
    "holder",
    [
        replace(gang(1), gpus_per_node=4, fleet_licenses=MATLAB),
        Job(name="cpu", nodes=1, cpus_per_node=1, fleet_licenses=MATLAB),
    ],
    ids=["of GPUs, too", "of no GPUs"],
)
def test_who_waits_for_the_fleets_licences_is_seen_with_their_holder(holder: Job) -> None:
    f = Loopback({"alpine": rack("a", 1)})
    f.reload(replace(f.federation.rules, licenses={"matlab": 3}))
    runs = f.submit(draft(holder))
    f.run_for(60.0)
    waits = f.submit(draft(replace(gang(1), gpus_per_node=4, fleet_licenses=MATLAB)))
    f.run_for(60.0)
    view = queue_view(f.federation, f.clock.now_s)
    assert [(held.id, held.licenses) for held in view.occupied] == [(runs, MATLAB)]
    assert [(queued.id, queued.shape.licenses) for queued in view.queued] == [(waits, MATLAB)]
    assert view.places.licenses_free == {"matlab": 1}


def test_gangs_are_played_without_the_nodes_that_they_are_kept_off() -> None:
    f = Loopback({"alpine": rack("a", 3), "boreal": rack("b", 1)})
    f.run_for(1.0)
    f.submit(draft(gang(3)))
    f.submit(draft(gang(1)))
    f.run_for(30.0)
    two, three, one, two_again, one_again = (f.submit(draft(gang(n))) for n in (2, 3, 1, 2, 1))
    f.run_for(30.0)
    slow = SiteDrained(at_s=1.0, site=SiteName("alpine"), nodes=("a1",), cordon=True, gangs=True)
    f.federation.ledger.apply(slow)
    view = queue_view(f.federation, f.clock.now_s)
    assert [pool.slow for pool in view.pools] == [{0}, set()]
    off_slow = {queued.id: queued.shape.off_slow for queued in view.queued}
    kept_off = {two: (0,), three: (), one: (), two_again: (0,), one_again: ()}
    assert off_slow == kept_off, "alpine has no three others"


def refused(*codes: ReasonCode) -> Any:
    """A federation whose sites let everybody wait, each for one of these."""
    said = {
        SiteName(code.value): Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=code),))
        for code in codes
    }
    return SimpleNamespace(refusals_of=lambda _entry: said)


@pytest.mark.parametrize(
    ("licenses", "codes", "found"),
    [
        (MATLAB, (ReasonCode.LICENSES,), NoEstimate.LICENSES),
        (MATLAB, (ReasonCode.LICENSES, ReasonCode.RESOURCES), None),
        (MATLAB, (ReasonCode.RESOURCES,), None),
        (MATLAB, (), None),
        ((), (ReasonCode.LICENSES,), None),  # of the fleet
        ((), (ReasonCode.TENANT_MODE,), NoEstimate.MAY_NOT_START),
    ],
)
def test_who_waits_for_licences_of_sites_or_for_its_tenants_mode_is_not_played(
    licenses: Any, codes: tuple[ReasonCode, ...], found: NoEstimate | None
) -> None:
    entry: Any = SimpleNamespace(workload=workload(1, replace(gang(1), licenses=licenses)))
    assert not_played(refused(*codes), entry) is found


def test_one_with_data_sets_is_played_only_where_they_are() -> None:
    f = fleet(alpine=1)  # and two nodes free at baker
    add(f)
    f.submit(draft(gang(1)))
    f.run_for(2.0)
    waits = submit(f)
    view = queue_view(f.federation, f.clock.now_s)
    (queued,) = [queued for queued in view.queued if queued.id == waits]
    assert [view.places.names[p][0] for p in queued.shape.pools] == ["alpine"]


def test_one_whose_checkpoint_no_open_site_can_read_is_not_played() -> None:
    f = two_regions()
    waits = leave(f)  # of the west, which is drained
    view = queue_view(f.federation, f.clock.now_s)
    assert view.without[waits] is NoEstimate.NO_PLACE
