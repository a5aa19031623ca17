"""The planner's data step: it asks for GPUs, brings plans, and is harmless when refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from federator.cli.data_planning import EVERY_S, RETRY_S, DataPlanService, gpus_of
from federator.cli.planner_log import POLL_S, FollowingPlanner
from federator.errors import NotAllowed, SiteUnavailable
from federator.model.event import encode_event
from federator.model.partition import PartitionSummary
from federator.planner.data_planner import DataPlanner
from federator.planner.planner_clock import PlannerClock
from federator.store.memory import MemoryStore
from federator.wire.client_protocol import (
    Call,
    ErrorKind,
    ErrorReply,
    PlanReply,
    SiteRow,
    SitesCall,
    SitesReply,
)
from federator.wire.data_rows import PlaceDataCall
from federator.wire.replies import Reply
from federator.wire.status_rows import DrainRow
from tests.unit.planner.test_data_planner import DOMAINS, GIB, T0, came, kept

SITES = SitesReply(
    sites=(
        SiteRow(
            name="cedar",
            region="east",
            up=True,
            gpus_by_type={"h100": 800},
            partitions=(
                PartitionSummary(partition="gpu", gpu_type="h100", gpus=800, gpus_down=8),
                PartitionSummary(partition="cpu", gpu_type=""),
            ),
        ),
    )
)


class Bench:
    def __init__(self, *answers: Reply) -> None:
        self.now_s = T0 + 600
        self.answers = list(answers) or [PlanReply()]
        self.asked: list[Call] = []
        self.stale = False
        self.sites = SITES
        store = MemoryStore()
        assert store.lead(1) is not None
        store.append([encode_event(r) for r in (kept("wiki", "west"), came(0, T0, "wiki"))])
        self.following = FollowingPlanner(
            lambda: DataPlanner(DOMAINS, 100 * GIB, effort=0.02), store
        )
        self.service = DataPlanService(
            self.following,
            self.ask,
            PlannerClock(lambda: self.now_s, lambda: self.now_s),
            lambda: self.stale,
        )

    def ask(self, call: Call) -> Reply:
        if isinstance(call, SitesCall):
            return self.sites
        self.asked.append(call)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_it_plans_at_once_and_then_every_hour() -> None:
    bench = Bench()
    assert bench.service.turn() == POLL_S
    (call,) = bench.asked
    assert isinstance(call, PlaceDataCall)
    assert call.plan.moves[0].to == "east"
    assert call.plan.expires_at_s == bench.now_s + 3 * EVERY_S
    bench.now_s += EVERY_S - 1
    bench.service.turn()
    assert len(bench.asked) == 1
    bench.now_s += 1
    bench.stale = True
    assert bench.service.turn() == 0.0  # the log is read anew first
    bench.stale = False
    bench.service.turn()
    assert len(bench.asked) == 2


def test_a_plan_that_is_refused_is_noted_once_and_made_again_later() -> None:
    bench = Bench(ErrorReply(message="data plan: data.planning is off in federation.yaml"))
    with capture_logs() as lines:
        for _ in range(3):
            bench.service.turn()
            bench.now_s += RETRY_S
    assert len(bench.asked) == 3
    assert [line["event"] for line in lines] == ["data_plan_not_taken"]


def test_a_user_who_is_no_operator_is_told_so_and_the_process_ends() -> None:
    bench = Bench(ErrorReply(message="ada is no operator", kind=ErrorKind.DENIED))
    with pytest.raises(NotAllowed, match="ada is no operator"):
        bench.service.turn()


def site(name: str = "cedar", *rows: PartitionSummary, **more: Any) -> SiteRow:
    return SiteRow(name=name, region="east", up=True, partitions=rows, **more)


def gpu(partition: str, gpus: int, down: int = 0, kind: str = "h100") -> PartitionSummary:
    return PartitionSummary(partition=partition, gpu_type=kind, gpus=gpus, gpus_down=down)


def test_nothing_is_planned_until_each_site_has_said_what_it_has() -> None:
    bench = Bench()
    fir = site("fir")
    bench.sites = structs.replace(SITES, sites=(*SITES.sites, fir))
    with capture_logs() as lines:
        bench.service.turn()
    assert bench.asked == []
    assert [line["detail"] for line in lines] == ["fir is not heard yet"]
    bench.sites = structs.replace(SITES, sites=(*SITES.sites, site("fir", gpu("gpu", 8))))
    bench.now_s += RETRY_S
    bench.service.turn()
    assert len(bench.asked) == 1


@pytest.mark.parametrize(
    "away", [{"mode": "shadow"}, {"mode": "advisory"}, {"drains": (DrainRow(),)}]
)
def test_a_site_that_takes_no_jobs_has_no_gpus_for_data_and_need_not_be_heard(away: Any) -> None:
    birch = site("birch", gpu("gpu", 16), gpus_by_type={"h100": 16})
    fir, unheard = site("fir", gpu("gpu", 8), **away), site("oak", **away)
    reply = SitesReply(sites=(birch, fir, unheard))
    assert gpus_of(reply) == {"birch": {"h100": 16}, "fir": {}, "oak": {}}


def test_a_site_with_some_nodes_drained_has_its_gpus() -> None:
    there = site("fir", gpu("gpu", 8), drains=(DrainRow(nodes=("n1",)),))
    assert gpus_of(SitesReply(sites=(there,))) == {"fir": {"h100": 8}}


def test_gpus_of_nodes_in_two_partitions_count_once() -> None:
    rows = (gpu("gpu", 800, 8), gpu("short", 800, 8), gpu("old", 64, kind="v100"))
    types = {"h100": 800, "v100": 64}
    shared = SitesReply(sites=(site("cedar", *rows, gpus_by_type=types),))
    assert gpus_of(shared) == {"cedar": {"h100": 792, "v100": 64}}
    apart = SitesReply(sites=(site("cedar", *rows, gpus_by_type={"h100": 1600, "v100": 64}),))
    assert gpus_of(apart) == {"cedar": {"h100": 1584, "v100": 64}}


def test_gpus_that_are_down_do_not_count() -> None:
    assert gpus_of(SITES) == {"cedar": {"h100": 792}}
    with pytest.raises(SiteUnavailable):
        gpus_of(PlanReply())
