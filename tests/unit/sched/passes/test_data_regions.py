"""Where a workload with data sets could run, and where it ran."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.dataset import CopyPhase
from federator.model.lifecycle import WorkloadState
from federator.model.site import SiteJobState
from federator.model.workload import SiteName
from federator.sched.passes.data_regions import DataNearness, DataRegion, data_regions, ran_in
from federator.sched.state.rules import Rules, Staging
from federator.sched.state.workload_record import WorkloadRecord
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_data_copies import GIB, add, copy, tell
from tests.unit.sched.passes.test_data_places import ALPINE, BAKER, CEDAR, STORAGE, use

REGIONS = {ALPINE: "west", BAKER: "east", CEDAR: "east"}
OFF = Rules(storage=STORAGE, regions=REGIONS)
AUTO = replace(OFF, staging=Staging(auto=True, most_bytes=2 * GIB))


def fleet(rules: Rules = OFF, alpine: int = 2) -> Loopback:
    sites = {"alpine": rack("a", alpine), "baker": rack("b", 2), "cedar": rack("c", 2)}
    found = Loopback(sites, rules)
    found.run_for(2.0)
    return found


def regions(f: Loopback, gpus: int = 8) -> dict[str, DataRegion]:
    federation = f.federation
    catalogue = federation.ledger.catalogue
    rows = data_regions(
        (gang(1, gpus),), (use("a"),), federation.sites, federation.rules, catalogue
    )
    return {row.name: row for row in rows}


def test_a_region_is_a_candidate_where_the_data_is_or_would_be_copied() -> None:
    f = fleet(AUTO)
    add(f)
    found = regions(f)
    assert found["west"] == DataRegion("west", DataNearness.THERE, (ALPINE,))
    east = found["east"]
    assert (east.data, east.sites) == (DataNearness.COPY, (BAKER, CEDAR))
    assert (east.bytes_to_move, east.staging_s > 0) == (GIB, True)
    assert all(row.data.is_candidate for row in found.values())


def test_a_site_where_nothing_is_ever_done_is_no_candidate() -> None:
    f = fleet(replace(AUTO, shadow=frozenset({ALPINE, BAKER})))
    add(f)
    assert {name: row.sites for name, row in regions(f).items()} == {"east": (CEDAR,)}


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        (OFF, DataNearness.ASK),
        (replace(AUTO, staging=Staging(auto=True, most_bytes=GIB - 1)), DataNearness.ASK),
    ],
)
def test_a_region_to_which_nothing_is_copied_by_itself_is_none(
    rules: Rules, word: DataNearness
) -> None:
    f = fleet(rules)
    add(f)
    assert regions(f)["east"].data is word
    assert not word.is_candidate


def test_where_nothing_may_be_copied_the_data_cannot_be_had() -> None:
    f = fleet(AUTO)
    assert {row.data for row in regions(f).values()} == {DataNearness.NONE}


def test_a_region_that_could_never_hold_the_jobs_is_left_out() -> None:
    f = fleet(AUTO, alpine=0)
    add(f)
    assert regions(f).keys() == {"east"}
    assert regions(f, gpus=64) == {}


def test_a_copy_that_is_there_makes_a_candidate_of_its_region() -> None:
    f = fleet()
    add(f)
    copy(f)
    tell(f, CopyPhase.DONE)
    assert {name: row.data for name, row in regions(f).items()} == {
        "west": DataNearness.THERE,
        "east": DataNearness.THERE,
    }


def entry_that_ran(*sites: SiteName) -> WorkloadRecord:
    f = fleet()
    entry = f.entry(f.submit(draft(gang(1))))
    for site in sites:
        entry.site = site
        entry.began_to_run()
    return entry


@pytest.mark.parametrize(
    ("sites", "found"),
    [
        ((), ()),
        ((ALPINE,), ("west",)),
        ((ALPINE, ALPINE), ("west",)),
        ((ALPINE, BAKER), ("west", "east")),
        ((BAKER, CEDAR, BAKER), ("east",)),
        ((BAKER, ALPINE, CEDAR), ("west", "east")),
    ],
)
def test_each_region_where_an_attempt_began_to_run_is_known(
    sites: tuple[SiteName, ...], found: tuple[str, ...]
) -> None:
    entry = entry_that_ran(*sites)
    assert set(ran_in(entry, REGIONS)) == set(found)
    assert len(ran_in(entry, REGIONS)) == len(found)
    if sites:
        assert entry.ran_at == sites[-1]
        assert entry.ran_at not in entry.ran_before_at


def test_a_workload_that_goes_on_elsewhere_has_run_in_both_regions_also_after_a_replay() -> None:
    f = fleet(alpine=1)
    id_ = f.submit(draft(gang(1)))
    f.run_for(5.0)
    first = f.entry(id_).site
    f.slurm(first).end(f.entry(id_).attempt_id, SiteJobState.NODE_FAIL)
    for _ in range(60):
        if f.entry(id_).state is WorkloadState.PENDING:
            break
        f.run_for(0.5)
    f.site_down(first)
    f.run_for(120.0)
    entry = f.entry(id_)
    assert entry.state is WorkloadState.RUNNING
    assert entry.site != first
    assert ran_in(entry, REGIONS) == (REGIONS[first], REGIONS[entry.site])
    again = f.replayed().entries[id_]
    assert (again.ran_at, again.ran_before_at) == (entry.ran_at, entry.ran_before_at)
