"""Each ended workload's folder is told to one site of each region, and never a live one's."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from federator.config import FederationConfig
from federator.daemon.checkpoint_cleanup import (
    AGAIN_S,
    ALL_EVERY_S,
    ALL_FIRST_S,
    ANSWER_S,
    LOOK_EVERY_S,
    MOST_ENDED,
    CheckpointCleanup,
)
from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent
from federator.model.reason import Reason, ReasonCode
from federator.model.site_mode import SiteMode
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.ledger import Ledger
from federator.wire.agent_protocol import Tidied, TidyOrder
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

ALPINE, BOREAL = SiteName("alpine"), SiteName("boreal")
DUE_S = ALL_FIRST_S + 2 * LOOK_EVERY_S


def config(boreal: str = "west", **regions: Any) -> FederationConfig:
    return FederationConfig.model_validate(
        {
            "federation": "demo",
            "store": "memory:",
            "regions": regions or {"west": {"shared": "/s/west"}},
            "sites": {
                "alpine": {"region": "west", "command": ["a"], "partitions": ["p"]},
                "boreal": {"region": boreal, "command": ["b"], "partitions": ["p"]},
            },
            "tenants": {"vision": {"users": ["ada"]}},
        }
    )


class Rig:
    """One federation whose jobs end when they are told to."""

    def __init__(self, given: FederationConfig) -> None:
        self.f = Loopback({"alpine": rack("a", 2)})
        self.heard = {ALPINE, BOREAL}
        self.ended = self.f.submit(draft(gang(1), time_limit_s=60.0))
        self.f.run_for(1.0)
        self.live = self.f.submit(draft(gang(1)))
        self.f.run_for(1.0)
        self.began_s = self.f.clock()
        self.news = CheckpointCleanup(
            given, self.f.federation.ledger, self.heard.__contains__, self.began_s
        )

    def end(self, happening: WorkloadEvent = WorkloadEvent.CANCELLED) -> None:
        self.f.cancel(self.ended)
        self.f.run_for(1.0)
        self.note(self.ended, happening)

    def note(self, id_: WorkloadId, happening: WorkloadEvent = WorkloadEvent.CANCELLED) -> None:
        self.news.note([Changed(at_s=0.0, workload=id_, attempt=1, happening=happening)])

    def due(self, after_s: float) -> list[tuple[SiteName, TidyOrder]]:
        return list(self.news.due(self.began_s + after_s))

    def answer(self, order: TidyOrder, after_s: float, wrong: str = "") -> None:
        for user, said in (("ada", wrong), ("", "")):
            told = Tidied(order_id=order.order_id, user=user, wrong=said)
            self.news.taken(ALPINE, told, self.began_s + after_s)


def test_a_workload_that_has_ended_is_told_once_to_one_site_that_is_heard() -> None:
    rig = Rig(config())
    rig.note(rig.live, WorkloadEvent.STARTED)
    assert rig.due(LOOK_EVERY_S) == []
    rig.end()
    assert rig.due(LOOK_EVERY_S + 1.0) == []  # not at every turn
    rig.heard.clear()
    assert rig.due(2 * LOOK_EVERY_S) == []  # nobody to tell
    rig.heard.add(BOREAL)
    ((site, order),) = rig.due(3 * LOOK_EVERY_S)
    assert (site, order.shared, order.ended) == (BOREAL, "/s/west", {"ada": (rig.ended,)})
    assert (order.below, order.before_s) == (0, 0.0)  # of others nothing is removed
    rig.answer(order, 3 * LOOK_EVERY_S)
    assert rig.due(4 * LOOK_EVERY_S) == []


def test_a_site_in_shadow_mode_removes_nothing_and_nobody_waits_for_it() -> None:
    given = config()
    watched = given.sites[BOREAL].model_copy(update={"mode": SiteMode.SHADOW})
    rig = Rig(given.model_copy(update={"sites": {**given.sites, BOREAL: watched}}))
    rig.heard.discard(BOREAL)
    rig.end()
    ((site, order),) = rig.due(DUE_S)
    assert site == ALPINE
    assert order.before_s  # what is old may go, though boreal is not heard
    rig.heard.add(BOREAL)
    ((site, _),) = rig.due(DUE_S + ANSWER_S + LOOK_EVERY_S)  # nobody has answered: the next in turn
    assert site == ALPINE


def test_an_order_that_nobody_answers_comes_again_from_another_site() -> None:
    rig = Rig(config())
    rig.end()
    ((first, order),) = rig.due(LOOK_EVERY_S)
    assert rig.due(2 * LOOK_EVERY_S) == []  # one at a time
    ((second, again),) = rig.due(LOOK_EVERY_S + ANSWER_S)
    assert again.ended == order.ended
    assert {first, second} == {ALPINE, BOREAL}
    rig.answer(order, LOOK_EVERY_S + ANSWER_S)  # too late: it is not this one's answer
    assert len(rig.due(2 * (LOOK_EVERY_S + ANSWER_S))) == 1


def test_once_a_day_all_is_gone_through_and_young_ends_are_only_removed_if_empty() -> None:
    rig = Rig(config(west={"shared": "/s/west", "keep_saved_h": 48}))
    rig.end()
    ((_, early),) = rig.due(LOOK_EVERY_S)
    rig.answer(early, LOOK_EVERY_S)
    assert rig.due(ALL_FIRST_S - 1.0) == []
    ((_, order),) = rig.due(DUE_S)
    assert (order.before_s, order.keep_s) == (rig.began_s + DUE_S - 48 * 3600.0, 48 * 3600.0)
    assert order.below == rig.live + 1
    assert (order.live, order.ended) == ({"ada": (rig.live,)}, {"ada": (rig.ended,)})
    rig.answer(order, DUE_S)
    assert rig.due(ALL_EVERY_S) == []
    ((_, order),) = rig.due(48 * 3600.0 + DUE_S)
    assert (order.live, order.ended) == ({"ada": (rig.live,)}, {})  # by age, as it was over by then


def test_a_job_that_was_longer_than_what_is_kept_keeps_what_it_saved_from_its_end() -> None:
    rig = Rig(config(west={"shared": "/s/west", "keep_saved_h": 1}))
    rig.f.run_for(3 * 3600.0)
    rig.end()
    over_s = rig.f.clock() - rig.began_s
    ((_, order),) = rig.due(over_s + 3500.0)
    assert order.before_s  # what is old may go, though boreal is not heard
    assert rig.ended in order.ended["ada"]
    rig.answer(order, over_s + 3500.0)


def test_of_one_that_was_lost_nothing_young_is_touched() -> None:
    rig = Rig(config())
    rig.end()
    rig.f.federation.ledger.entries[rig.ended].reason = Reason(code=ReasonCode.LOST)
    ((_, order),) = rig.due(DUE_S)
    assert order.ended == {}
    assert set(order.live["ada"]) == {rig.ended, rig.live}


def test_nothing_goes_by_its_age_while_a_site_of_the_region_is_not_heard() -> None:
    rig = Rig(config())
    rig.end()
    rig.heard.remove(BOREAL)
    ((_, order),) = rig.due(DUE_S)
    assert order.before_s == 0.0
    assert order.ended == {"ada": (rig.ended,)}


def test_what_was_saved_is_kept_for_ever_with_0() -> None:
    rig = Rig(config(west={"shared": "/s/west", "keep_saved_h": 0}))
    for day in range(1, 400, 40):
        ((_, order),) = rig.due(day * 2 * ALL_EVERY_S)
        assert order.before_s == 0.0
        rig.answer(order, day * 2 * ALL_EVERY_S)


def test_two_regions_with_storage_of_their_own_at_one_path_are_both_told() -> None:
    west, east = {"shared": "/s", "keep_saved_h": 48}, {"shared": "/s", "keep_saved_h": 24}
    rig = Rig(config("east", west=west, east=east))
    rig.end()
    orders = dict(rig.due(LOOK_EVERY_S))
    assert orders.keys() == {ALPINE, BOREAL}
    assert {order.shared for order in orders.values()} == {"/s"}
    for order in orders.values():
        rig.answer(order, LOOK_EVERY_S)
    kept = {site: order.keep_s for site, order in rig.due(DUE_S)}
    assert kept == {ALPINE: 48 * 3600.0, BOREAL: 24 * 3600.0}


def test_what_could_not_be_removed_is_logged_once_per_change_and_tried_again_soon() -> None:
    rig = Rig(config())
    after_s, said = DUE_S, []
    for wrong in ("/s/west/ada is a link", "/s/west/ada is a link", "7: Permission denied"):
        ((_, order),) = rig.due(after_s)
        with capture_logs() as logged:
            rig.answer(order, after_s, wrong)
        said += [(line["event"], line["user"], line["detail"]) for line in logged]
        after_s += AGAIN_S
    assert said == [
        ("checkpoints_not_removed", "ada", "/s/west/ada is a link"),
        ("checkpoints_not_removed", "ada", "7: Permission denied"),
    ]


def test_what_was_removed_is_logged_by_user() -> None:
    rig = Rig(config())
    rig.end()
    ((site, order),) = rig.due(LOOK_EVERY_S)
    with capture_logs() as logged:
        told = Tidied(order_id=order.order_id, user="ada", removed=(rig.ended,))
        rig.news.taken(site, told, rig.began_s)
    (line,) = logged
    assert (line["event"], line["workloads"]) == ("checkpoints_removed", [rig.ended])


def test_between_the_daily_orders_the_ledger_is_not_gone_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work per minute does not grow with history."""
    rig = Rig(config())
    rig.end()

    def no_look(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Ledger, "in_state", no_look)
    rig.f.federation.ledger.entries = Unlisted(rig.f.federation.ledger.entries)
    ((_, order),) = rig.due(LOOK_EVERY_S)
    assert order.ended == {"ada": (rig.ended,)}


class Unlisted(dict[Any, Any]):
    """Can be looked up, and not gone through."""

    def __iter__(self) -> Any:
        raise AssertionError

    items = values = keys = __iter__


def test_ends_that_no_site_takes_do_not_pile_up() -> None:
    rig = Rig(config())
    rig.end()
    entry = rig.f.federation.ledger.entries[rig.ended]
    for id_ in range(100, 100 + 2 * MOST_ENDED):
        rig.f.federation.ledger.entries[WorkloadId(id_)] = entry
        rig.note(WorkloadId(id_))
    ((_, order),) = rig.due(LOOK_EVERY_S)
    assert len(order.ended["ada"]) == MOST_ENDED
