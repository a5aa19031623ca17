"""What is copied, where jobs start from their data, and how much of it is at home."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from federator.daemon.metrics.data_counts import HAD, nearness
from federator.daemon.metrics.term_metrics import TermMetrics
from federator.model.data_placement import DataPlacement, DataPlanning, MovedSet, PlannedMove
from federator.model.dataset import (
    CopyPhase,
    DataGiven,
    DataPlace,
    DataVerb,
    StorageDomain,
)
from federator.model.message import CopySeen, DataAsked, DataPlacementAsked
from federator.model.site import SiteJobState
from federator.model.tenant import Tenant
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.rules import DataMoving, Rules
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.counted import Counted
from tests.unit.sched.passes.test_data_copies import AUTO, DIGEST, GIB
from tests.unit.sched.passes.test_data_places import BAKER, CEDAR, STORAGE, use

RULES = Rules(storage=STORAGE)
BYTES, ENDED = "federator_copied_bytes_total", "federator_copies_ended_total"
STARTS, GPUS = "federator_data_starts_total", "federator_data_started_gpus_total"
CANDIDATES = "federator_data_candidate_regions_total"
RAN = "federator_data_ended_workloads_total"
AT_HOME = "federator_tenant_started_gpus_total"


def fleet(
    rules: Rules = RULES, tenants: tuple[Tenant, ...] = (), alpine: int = 2, baker: int = 2
) -> Counted:
    sites = {"alpine": rack("a", alpine), "baker": rack("b", baker)}
    return Counted(sites, rules, tenants=tenants)


def ask(f: Counted, verb: DataVerb, domain: str = "west", **given: Any) -> None:
    at = (DataPlace(domain=domain, path="sets/a" if verb is DataVerb.ADD else ""),)
    fields: dict[str, Any] = {"name": "a", "version": "1", "at": at} | given
    f.observe(DataAsked(client=-7, verb=verb, sets=(DataGiven(**fields),), by="ada"))
    f.run_for(2.0)


def add(f: Counted, **more: Any) -> None:
    ask(f, DataVerb.ADD, digest=DIGEST, size_bytes=GIB, **more)


def tell(f: Counted, phase: CopyPhase, copied: int = 0) -> None:
    of = {"name": "a", "version": "1", "domain": "east", "digest": DIGEST}
    f.observe(CopySeen(phase=phase, copied_bytes=copied, **of))
    f.run_for(2.0)


def submit(f: Counted, gpus: int = 8, *, with_data: bool = True, **more: Any) -> WorkloadId:
    job = draft(gang(1, gpus), **more)
    id_ = f.submit(replace(job, data=(use("a"),)) if with_data else job)
    f.run_for(5.0)
    return id_


def some(f: Counted, name: str) -> dict[tuple[str, ...], float]:
    """What is not 0."""
    return {labels: value for labels, value in f.values(name).items() if value}


# ---- copies ----


def test_a_copy_counts_with_its_size_once_it_is_whole() -> None:
    f = fleet()
    assert f.values(BYTES) == {("west", "east"): 0, ("east", "west"): 0}
    add(f)
    ask(f, DataVerb.COPY, "east")
    tell(f, CopyPhase.COPYING, GIB // 2)
    assert some(f, BYTES) == {}
    assert some(f, "federator_copies") == {("copying",): 1}
    tell(f, CopyPhase.DONE)
    tell(f, CopyPhase.DONE)
    assert some(f, BYTES) == {("west", "east"): GIB}
    assert f.values(ENDED) == {("done",): 1, ("given_up",): 0, ("withdrawn",): 0}
    assert some(f, "federator_copies") == {}


def test_each_try_that_fails_counts_and_the_copy_goes_on() -> None:
    f = fleet()
    add(f)
    ask(f, DataVerb.COPY, "east")
    tell(f, CopyPhase.FAILED)
    tell(f, CopyPhase.COPYING, 7)
    tell(f, CopyPhase.FAILED)
    assert f.value("federator_copy_failures_total") == 2
    assert some(f, ENDED) == {}
    assert some(f, "federator_copies") == {("failed",): 1}
    ask(f, DataVerb.COPY, "east")  # it begins anew, and so does its count of tries
    tell(f, CopyPhase.FAILED)
    assert f.value("federator_copy_failures_total") == 3


@pytest.mark.parametrize("at", [(), (DataPlace(domain="east"),)])
def test_a_copy_that_somebody_takes_out_is_withdrawn(at: tuple[DataPlace, ...]) -> None:
    f = fleet()
    add(f)
    ask(f, DataVerb.COPY, "east")
    ask(f, DataVerb.REMOVE, at=at)
    assert some(f, ENDED) == {("withdrawn",): 1}
    assert some(f, BYTES) == {}


def test_what_is_found_whole_by_its_owner_was_not_copied() -> None:
    f = fleet()
    add(f)
    ask(f, DataVerb.COPY, "east")
    ask(f, DataVerb.SEAL, "east", digest=DIGEST)
    assert some(f, ENDED) == {("withdrawn",): 1}


def test_a_change_of_the_data_set_beside_a_copy_counts_nothing() -> None:
    f = fleet()
    add(f)
    ask(f, DataVerb.COPY, "east")
    ask(f, DataVerb.PIN, "west")
    assert some(f, ENDED) == {}
    assert f.value("federator_copy_failures_total") == 0


def test_a_copy_for_a_job_that_is_gone_is_given_up() -> None:
    f = fleet(AUTO, alpine=0)
    add(f)
    id_ = submit(f)
    assert some(f, "federator_copies") == {("none",): 1}
    f.cancel(id_)
    tell(f, CopyPhase.FAILED)
    assert some(f, ENDED) == {("given_up",): 1}
    assert f.value("federator_copy_failures_total") == 1


def test_a_copy_that_an_earlier_daemon_began_is_counted_by_the_next() -> None:
    f = fleet()
    add(f)
    ask(f, DataVerb.COPY, "east")
    f.metrics = TermMetrics(f.federation, f.config, f.links, None, elapsed=f.clock, wall=f.clock)
    tell(f, CopyPhase.DONE)
    assert some(f, BYTES) == {("west", "east"): GIB}


def test_replicas_are_told_by_domain_and_state() -> None:
    f = fleet()
    states = ("ready", "copying", "lost", "retired")
    names = {(domain, state) for domain in STORAGE for state in states}
    assert f.values("federator_data_replicas").keys() == names
    add(f)
    ask(f, DataVerb.COPY, "east")
    assert some(f, "federator_data_replicas") == {("west", "ready"): 1, ("east", "copying"): 1}
    tell(f, CopyPhase.DONE)
    ask(f, DataVerb.LOSE, "west")
    assert some(f, "federator_data_replicas") == {("west", "lost"): 1, ("east", "ready"): 1}
    ask(f, DataVerb.REMOVE, at=())
    assert some(f, "federator_data_replicas") == {}


def test_a_plan_of_where_data_should_be_is_told_with_what_it_has_begun() -> None:
    moving = DataMoving(planning=DataPlanning.AUTOMATIC, quota_bytes=3 * GIB)
    f = fleet(replace(RULES, moving=moving))
    add(f)
    assert f.value("federator_data_plan_in_force") == 0
    now_s = f.clock()
    move = PlannedMove(sets=(MovedSet("a", "1", GIB),), to="east", home=True)
    plan = DataPlacement(made_at_s=now_s, expires_at_s=now_s + 60, moves=(move,))
    f.observe(DataPlacementAsked(client=1, plan=plan))
    assert f.value("federator_data_plan_in_force") == 1
    assert f.value("federator_data_plan_timestamp_seconds") == now_s
    assert f.value("federator_data_moved_bytes") == GIB
    assert f.value("federator_data_move_quota_bytes") == 3 * GIB
    tell(f, CopyPhase.DONE)
    assert some(f, BYTES) == {("west", "east"): GIB}


# ---- starts ----


def test_a_start_is_told_by_where_its_data_was_when_it_was_submitted() -> None:
    f = fleet(AUTO, alpine=1)
    assert f.values(STARTS) == {("there",): 0, ("staged",): 0, ("none",): 0}
    add(f)
    submit(f, 8)
    submit(f, 4, with_data=False)
    assert some(f, STARTS) == {("there",): 1, ("none",): 1}
    waits = submit(f, 8)  # alpine is taken, and baker has no data
    ask(f, DataVerb.COPY, "east")
    tell(f, CopyPhase.DONE)
    f.run_for(5.0)
    assert f.entry(waits).site == BAKER
    assert some(f, STARTS) == {("there",): 1, ("none",): 1, ("staged",): 1}
    assert some(f, GPUS) == {("there",): 8, ("none",): 4, ("staged",): 8}


def test_a_start_counts_by_the_regions_that_have_its_data_and_an_end_by_those_it_ran_in() -> None:
    regions = {SiteName("alpine"): "west", BAKER: "east", CEDAR: "east"}
    f = fleet(replace(RULES, regions=regions))
    one_to_four = [("1",), ("2",), ("3",), ("4+",)]
    assert f.values(CANDIDATES) == dict.fromkeys(one_to_four, 0)
    assert f.values(RAN) == dict.fromkeys(one_to_four, 0)
    add(f)
    first = submit(f)
    ask(f, DataVerb.COPY, "east")
    tell(f, CopyPhase.DONE)
    submit(f)
    submit(f, with_data=False)
    assert some(f, CANDIDATES) == {("1",): 1, ("2",): 1}
    entry = f.entry(first)
    entry.ran_before_at = (BAKER,)
    f.slurm(SiteName("alpine")).end(entry.attempt_id, SiteJobState.COMPLETED)
    f.run_for(60.0)
    assert some(f, RAN) == {("2",): 1}


def test_a_copy_of_the_same_data_after_its_award_does_not_make_a_start_a_staged_one() -> None:
    f = fleet()
    add(f)
    entry = f.entry(submit(f))
    catalogue = f.federation.ledger.catalogue
    assert entry.award is not None
    (path,) = entry.award.data
    of = catalogue.find(path.name, path.version)
    assert of is not None
    later_s = entry.award.at_s + 60.0
    replicas = tuple(replaced(replica, copied_at_s=later_s) for replica in of.replicas)
    catalogue.sets[of.name][of.version] = replaced(of, replicas=replicas)
    assert nearness(catalogue, entry, entry.award) == HAD


def test_what_was_copied_before_a_job_came_was_there() -> None:
    f = fleet()
    add(f)
    ask(f, DataVerb.COPY, "east")
    tell(f, CopyPhase.DONE)
    ask(f, DataVerb.REMOVE, "west")
    submit(f)
    assert some(f, STARTS) == {("there",): 1}


def test_each_attempt_counts() -> None:
    f = fleet(baker=0)
    add(f)
    id_ = submit(f)
    f.slurm(SiteName("alpine")).end(f.entry(id_).attempt_id, SiteJobState.NODE_FAIL)
    f.run_for(120.0)
    assert some(f, STARTS) == {("there",): 2}


def test_gpus_of_a_tenant_with_a_home_are_told_by_where_they_start() -> None:
    owner = replace(tenant("owner", 16), home=(BAKER,))
    f = fleet(tenants=(owner,), alpine=1, baker=2)
    assert f.values(AT_HOME) == {("owner", "home"): 0, ("owner", "elsewhere"): 0}
    for _ in range(3):
        submit(f, 8, with_data=False, tenant="owner")
    assert f.values(AT_HOME) == {("owner", "home"): 16, ("owner", "elsewhere"): 8}


def test_a_tenant_without_a_home_has_no_series_of_it() -> None:
    f = fleet(tenants=(tenant("guest"),))
    submit(f, 8, with_data=False, tenant="guest")
    assert f.values(AT_HOME) == {}


def test_a_home_and_a_domain_that_are_new_have_their_series_at_once() -> None:
    f = fleet()
    assert f.values(AT_HOME) == {}
    assert f.metrics is not None
    domains = {**STORAGE, "north": StorageDomain(mounts={BAKER: "/n"})}
    f.federation.ledger.catalogue.domains = domains
    f.metrics.counts.know(f.sites)
    assert f.values(BYTES).keys() >= {("north", "west"), ("east", "north")}
