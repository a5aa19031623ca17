"""The plan of where data sets should be, made from a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as with_fields

from federator.model.data_placement import DataPlacement
from federator.model.data_use import DataUse
from federator.model.dataset import (
    DataCopy,
    DataReplica,
    DataSet,
    DataSharing,
    ReplicaState,
    StorageDomain,
)
from federator.model.event import Awarded, Changed, DataSetKept, LogRecord, Submitted
from federator.model.lifecycle import WorkloadEvent
from federator.model.workload import (
    FIRST_WORKLOAD_ID,
    AttemptId,
    SiteName,
    TenantName,
    WorkloadId,
)
from federator.planner.data_demand import DataDemand
from federator.planner.data_planner import DataPlanner
from federator.planner.live_warehouse import live_warehouse
from federator.planner.warehouse import NONE
from federator.sched.state.ledger import Ledger
from federator.sched.state.snapshot import taken
from tests.fakes.build import draft, gang

DAY_S, GIB = 86_400.0, 2**30
T0 = 100 * DAY_S
DIGEST = "sha256tree:" + "0f" * 32
DOMAINS = {
    "west": StorageDomain(mounts={SiteName("alpine"): "/w"}, capacity_bytes=1000 * GIB),
    "east": StorageDomain(mounts={SiteName("cedar"): "/e"}, capacity_bytes=1000 * GIB),
}
GPUS = {"alpine": {"h100": 8}, "cedar": {"h100": 800}}


def kept(name: str, *domains: str, gib: int = 10, digest: str = DIGEST) -> DataSetKept:
    return DataSetKept(
        at_s=T0,
        kept=DataSet(
            name=name,
            version="1",
            owner="ada",
            tenant=TenantName("vision"),
            size_bytes=gib * GIB,
            digest=digest,
            replicas=tuple(DataReplica(domain=domain, path=name) for domain in domains),
        ),
    )


def came(number: int, at_s: float, *sets: str) -> Submitted:
    data = tuple(DataUse(name=name, version="1", owner="ada") for name in sets)
    wanted = replace(draft(gang(1)), data=data)
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    return Submitted(at_s=at_s, draft=wanted, first_id=id_, key=f"k{number}")


def ran(number: int, begins_s: float, ends_s: float) -> list[LogRecord]:
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    steps = [
        (WorkloadEvent.ACCEPTED, begins_s),
        (WorkloadEvent.STARTED, begins_s),
        (WorkloadEvent.COMPLETED, ends_s),
    ]
    award = Awarded(
        at_s=begins_s, attempt=AttemptId(workload=id_, attempt=1), site="alpine", jobs=()
    )
    times: dict[str, Any] = {"started_at_s": begins_s, "ended_at_s": ends_s}
    return [award, *(Changed(at_s=at, workload=id_, happening=what, **times) for what, at in steps)]


def planner(
    records: Sequence[LogRecord], quota_gib: int = 1000, domains: dict[str, StorageDomain] = DOMAINS
) -> DataPlanner:
    found = DataPlanner(domains, quota_gib * GIB, effort=0.02)
    for record in records:
        found.take(record)
    return found


def test_a_day_is_expected_as_the_last_ones_were_and_the_latest_count_most() -> None:
    demand = DataDemand()
    for day in range(20):
        demand.take(came(day, T0 + day * DAY_S, "wiki"))
        for record in ran(day, T0 + day * DAY_S, T0 + day * DAY_S + 7200):
            demand.take(record)
    now_s = T0 + 20 * DAY_S
    (use,) = demand.expected(now_s)
    assert use.kind.sets == (DataUse(name="wiki", version="1", owner="ada"),)
    assert use.runs == pytest.approx(1.0, rel=0.02)
    assert use.gpu_h == pytest.approx(2 * 8, rel=0.02)
    (later,) = demand.expected(now_s + 7 * DAY_S)
    assert later.runs == pytest.approx(0.5, rel=0.25)
    assert demand.expected(now_s + 60 * DAY_S) == []


def test_what_waits_or_runs_counts_though_it_has_not_ended() -> None:
    demand = DataDemand()
    demand.take(came(0, T0, "wiki"))
    (waits,) = demand.expected(T0 + 0.5 * DAY_S)
    assert waits.gpu_h == pytest.approx(8.0)  # an hour is assumed of the first of a kind
    for record in ran(0, T0, T0)[:-1]:
        demand.take(record)
    (runs,) = demand.expected(T0 + 0.5 * DAY_S)
    assert runs.gpu_h == pytest.approx(12 * 8)


def test_a_snapshot_tells_of_the_same_use() -> None:
    records: list[LogRecord] = [
        came(0, T0, "wiki"),
        *ran(0, T0, T0 + 7200),
        came(1, T0 + 60, "maps"),
    ]
    ledger, by_log, by_snapshot = Ledger(), DataDemand(), DataDemand()
    for record in records:
        ledger.apply(record)
        by_log.take(record)
    for record in taken(ledger, T0 + 7300):
        by_snapshot.take(record)
    assert by_snapshot.expected(T0 + 8000) == by_log.expected(T0 + 8000)


def test_a_data_set_goes_where_the_gpus_are_and_says_what_it_saves() -> None:
    found = planner([kept("wiki", "west"), came(0, T0, "wiki")]).plan(T0 + 600, GPUS)
    assert [(m.to, m.home, [s.name for s in m.sets]) for m in found.moves[:1]] == [
        ("east", True, ["wiki"])
    ]
    assert found.moves[0].why.startswith("wiki@1: west -> east: ")
    assert found.moves[0].size_bytes == 10 * GIB
    assert found.cost_after < found.cost_before
    assert found.of_best_frac is not None
    assert 0 < found.of_best_frac <= 1


def test_data_gathers_where_the_type_of_gpu_is_and_the_plan_can_be_sent() -> None:
    """It is a few bytes to the other region, where the job could never run."""
    h100 = replace(gang(1), gpu_types=("h100",))
    came_ = came(0, T0, "books", "notes")
    wanted = with_fields(came_, draft=replace(came_.draft, jobs=(h100,)))
    records: list[LogRecord] = [kept("books", "west", gib=10), kept("notes", "east", gib=1), wanted]
    gpus = {"alpine": {"a100": 800}, "cedar": {"h100": 8}}
    found = planner(records).plan(T0 + 600, gpus)
    assert [(m.to, m.home, [s.name for s in m.sets]) for m in found.moves] == [
        ("east", True, ["books"])
    ]
    assert ": saves " in found.moves[0].why
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=DataPlacement) == found


@pytest.mark.parametrize(
    ("use", "is_planned"),
    [
        ({}, True),
        ({"write": True}, True),
        ({"owner": "bob"}, False),  # whose the name was then
        ({"shared": DataSharing.TENANT}, True),
        ({"shared": DataSharing.ALL}, False),  # it is shared less now
    ],
)
def test_nothing_is_moved_for_jobs_that_may_not_read_it(
    use: dict[str, Any], is_planned: bool
) -> None:
    of = with_fields(kept("wiki", "west").kept, sharing=DataSharing.TENANT)
    job = came(0, T0, "wiki")
    (used,) = job.draft.data
    job = with_fields(job, draft=replace(job.draft, data=(with_fields(used, **use),)))
    found = planner([DataSetKept(at_s=T0, kept=of), job]).plan(T0 + 600, GPUS)
    assert [move.to for move in found.moves] == ["east"] * is_planned


def test_data_sets_that_one_kind_of_jobs_needs_come_together() -> None:
    records: list[LogRecord] = [
        kept("wiki", "west"),
        kept("maps", "east"),
        came(0, T0, "wiki", "maps"),
    ]
    found = planner(records).plan(T0 + 600, GPUS)
    assert (found.moves[0].to, found.moves[0].sets[0].name) == ("east", "wiki")
    assert "saves 21.5 GB/day of remote reads for vision; 10.7 GB to move" in found.moves[0].why


def test_the_plan_keeps_what_is_left_of_the_quota() -> None:
    records: list[LogRecord] = [kept("wiki", "west"), came(0, T0, "wiki")]
    assert planner(records, quota_gib=9).plan(T0 + 600, GPUS).moves == ()
    before = kept("old", "west", gib=5).kept
    copying = DataReplica(
        domain="east",
        path="old",
        state=ReplicaState.COPYING,
        copy=DataCopy(by="", asked_at_s=T0, planned=True),
    )
    begun = with_fields(before, replicas=(*before.replicas, copying))
    moved = DataSetKept(at_s=T0, kept=begun, moved_to="east")
    assert planner([*records, moved], quota_gib=14).plan(T0 + 600, GPUS).moves == ()
    assert planner([*records, moved], quota_gib=15).plan(T0 + 600, GPUS).moves


def test_what_is_copied_home_already_is_not_planned_again() -> None:
    before = kept("wiki", "west").kept
    copying = DataReplica(
        domain="east",
        path="wiki",
        state=ReplicaState.COPYING,
        copy=DataCopy(by="", asked_at_s=T0, planned=True, becomes_home=True),
    )
    under_way = with_fields(before, replicas=(*before.replicas, copying))
    records: list[LogRecord] = [DataSetKept(at_s=T0, kept=under_way), came(0, T0, "wiki")]
    assert planner(records).plan(T0 + 600, GPUS).moves == ()


def test_jobs_that_copies_let_run_already_are_left_alone() -> None:
    records: list[LogRecord] = [kept("wiki", "west", "east"), came(0, T0, "wiki")]
    found = planner(records)
    gpus = {"alpine": {"a100": 8}, "cedar": {"h100": 80}}
    assert live_warehouse(found.catalogue, found._demand.expected(T0 + 600), gpus) is None
    assert found.plan(T0 + 600, gpus).moves == ()


@pytest.mark.parametrize("of", [kept("wiki", "west", digest=""), kept("wiki", "west", gib=0)])
def test_what_the_mover_could_not_copy_is_not_planned(of: DataSetKept) -> None:
    assert planner([of, came(0, T0, "wiki")]).plan(T0 + 600, GPUS).moves == ()


def test_with_no_catalogue_no_use_or_no_sites_a_plan_is_empty() -> None:
    for records in ([], [kept("wiki", "west")], [came(0, T0, "wiki")]):
        assert planner(records).plan(T0 + 600, GPUS).moves == ()
    assert planner([kept("wiki", "west"), came(0, T0, "wiki")]).plan(T0 + 600, {}).moves == ()
    nowhere = planner([kept("wiki", "west"), came(0, T0, "wiki")], domains={})
    assert nowhere.plan(T0 + 600, GPUS).moves == ()


def test_domains_that_the_same_sites_mount_are_one_region() -> None:
    both = DOMAINS | {"flash": StorageDomain(mounts={SiteName("alpine"): "/f"})}
    records: list[LogRecord] = [
        kept("wiki", "west"),
        kept("maps", "flash"),
        came(0, T0, "wiki", "maps"),
    ]
    found = planner(records, domains=both)
    live = live_warehouse(found.catalogue, found._demand.expected(T0 + 600), GPUS)
    assert live is not None
    assert [list(names) for names in live.domains] == [["west", "flash"], ["east"]]
    assert live.warehouse.tables.home.tolist() == [0, 0]
    assert live.warehouse.jobs.gpu_type.tolist() != [NONE]
