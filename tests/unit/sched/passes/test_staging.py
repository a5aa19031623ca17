"""Data sets are copied for jobs that wait, where that is better than to wait: the federation."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from msgspec import structs

from federator.daemon.views import queue_rows
from federator.model.dataset import CopyPhase, DataPlace, DataSet, DataSharing
from federator.model.lifecycle import WorkloadState
from federator.model.message import StartsEstimated
from federator.model.workload import WorkloadId
from federator.sched.passes import data_copies, data_places
from federator.sched.passes.data_copies import AT_ONCE, SETUP_S, copy_s, turn_s
from federator.sched.passes.staging import PATIENCE, StagingBid, is_worth_it, staging_bid
from federator.sched.state.catalogue import Catalogue
from federator.sched.state.rules import Rules, Staging
from federator.wire.client_protocol import QueueCall
from tests.fakes.build import draft, gang
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_data_copies import (
    AUTO,
    COPYING,
    GIB,
    add,
    copy,
    fleet,
    replica,
    state,
    submit,
    tell,
    under_way,
)
from tests.unit.sched.passes.test_data_places import BAKER, STORAGE, use

SOON = replace(AUTO, pass_interval_s=5.0)


def catalogued(f: Loopback, name: str = "a") -> tuple[Catalogue, DataSet]:
    catalogue = f.federation.ledger.catalogue
    return catalogue, catalogue.sets[name]["1"]


def waiting(rules: Rules = SOON) -> tuple[Loopback, WorkloadId]:
    """One that waits where its data is, while another runs there."""
    f = fleet(rules, alpine=1)
    add(f)
    f.submit(draft(gang(1)))
    f.run_for(2.0)
    return f, submit(f)


def estimate(f: Loopback, id_: WorkloadId, in_s: float) -> None:
    f.observe(StartsEstimated(starts={id_: f.clock.now_s + in_s}))


# ---- to wait, or to copy ----


@pytest.mark.parametrize(
    ("waited_s", "home_s", "copied"),
    [
        (0.0, inf, True),  # nothing to wait for
        (99.0, None, False),
        (100.0, None, True),
        (0.0, 101.0, True),
        (0.0, 99.0, False),
        (100.0, 99.0, False),
        (PATIENCE * 100.0, 99.0, True),  # it has been told so for long
    ],
)
def test_the_sooner_of_waiting_and_copying_is_chosen(
    waited_s: float, home_s: float | None, copied: bool
) -> None:
    assert is_worth_it(100.0, waited_s, home_s) is copied


def test_an_estimate_beyond_the_copys_time_has_it_made_at_once() -> None:
    f, id_ = waiting()
    f.run_for(10.0)
    assert replica(f) is None
    estimate(f, id_, 7200.0)
    f.run_for(10.0)
    assert state(f) is COPYING


def test_an_estimate_within_the_copys_time_saves_the_copy() -> None:
    f, id_ = waiting()
    took_s = copy_s(*catalogued(f), "east")
    f.run_for(took_s - 10.0)
    estimate(f, id_, took_s - 5.0)
    f.run_for(20.0)
    assert replica(f) is None, "it would have been copied by now"
    f.run_for(took_s)
    assert state(f) is COPYING, "the estimate is over"


def test_a_job_is_told_what_staging_takes_and_what_it_would_wait_for() -> None:
    f, id_ = waiting(replace(SOON, staging=Staging()))
    refusal = f.federation.refusals_of(f.entry(id_))[BAKER]
    assert refusal.reasons[0].detail == "a@1 (1 GiB to copy, about 40 s)"
    estimate(f, id_, 7300.0)
    refusal = f.federation.refusals_of(f.entry(id_))[BAKER]
    assert refusal.reasons[0].detail == (
        "a@1 (1 GiB to copy, about 40 s; where it is, a start is likely in 2 h)"
    )


# ---- how long a copy takes ----


def test_the_speed_of_a_link_is_learned_from_its_copies_through_restarts() -> None:
    f = fleet()
    add(f, size_bytes=100 * GIB)
    add(f, name="b", at=(DataPlace(domain="west", path="sets/b"),), size_bytes=100 * GIB)
    assumed_s = copy_s(*catalogued(f, "b"), "east")
    copy(f)
    tell(f, CopyPhase.COPYING, 20 * GIB)
    f.run_for(1000.0)
    tell(f, CopyPhase.DONE, 100 * GIB)
    made = replica(f)
    assert made is not None
    assert made.copied_from == "west"
    assert made.copied_kib_per_s == pytest.approx(80 * GIB / 1024 / 1002.0, rel=0.01)
    learned_s = copy_s(*catalogued(f, "b"), "east")
    assert learned_s == pytest.approx(SETUP_S + 1002.0 * 100 / 80, rel=0.01)
    assert learned_s > assumed_s
    again = f.replayed().catalogue
    again.domains = STORAGE
    assert copy_s(again, again.sets["b"]["1"], "east") == learned_s


def test_a_bound_that_is_lower_than_what_was_measured_counts() -> None:
    f = fleet()
    add(f, size_bytes=100 * GIB)
    copy(f)
    tell(f, CopyPhase.COPYING, 0)
    tell(f, CopyPhase.COPYING, 10 * GIB)
    f.run_for(100.0)
    tell(f, CopyPhase.DONE, 100 * GIB)
    catalogue, of = catalogued(f)
    east = structs.replace(STORAGE["east"], copy_kib_per_s=1024)
    catalogue.domains = {**STORAGE, "east": east}
    other = structs.replace(of, name="b", replicas=of.replicas[:1])
    assert copy_s(catalogue, other, "east") == SETUP_S + 100 * 1024


def test_a_copy_that_ended_before_it_was_seen_to_begin_measures_nothing() -> None:
    f = fleet()
    add(f)
    copy(f)
    tell(f, CopyPhase.DONE, GIB)
    made = replica(f)
    assert made is not None
    assert (made.copied_from, made.copied_kib_per_s) == ("", 0)


def test_what_has_come_is_not_to_be_moved_and_no_speed_of_the_copy() -> None:
    f = fleet()
    add(f, size_bytes=100 * GIB)
    copy(f)
    tell(f, CopyPhase.COPYING, 50 * GIB)
    f.run_for(100.0)
    tell(f, CopyPhase.COPYING, 60 * GIB)
    bid = staging_bid(f.federation.ledger.catalogue, (use("a"),), BAKER)
    assert bid is not None
    assert bid.bytes_to_move == 40 * GIB
    left_s = under_way(f).eta_s(100 * GIB) - f.clock.now_s
    assert left_s == pytest.approx(4 * 102.0, abs=10.0)


def test_copies_ahead_to_the_same_domain_count() -> None:
    f = fleet()
    add(f)
    for k in range(AT_ONCE):
        assert turn_s(*catalogued(f), "east") == 0.0
        add(f, name=f"b{k}", at=(DataPlace(domain="west", path=f"b{k}"),))
        copy(f, name=f"b{k}")
    catalogue, of = catalogued(f)
    one_s = copy_s(catalogue, of, "east")
    assert turn_s(catalogue, of, "east") == AT_ONCE * one_s / AT_ONCE
    bid = staging_bid(catalogue, (use("a"),), BAKER)
    assert bid is not None
    assert bid.staging_s == 2 * one_s


def test_the_time_of_the_copies_ahead_is_summed_once_until_one_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = fleet()
    add(f)
    for k in range(AT_ONCE + 2):
        add(f, name=f"b{k}", at=(DataPlace(domain="west", path=f"b{k}"),))
        copy(f, name=f"b{k}")
    asked: list[str] = []

    def noted(catalogue: Catalogue, of: DataSet, domain: str) -> float:
        asked.append(of.name)
        return copy_s(catalogue, of, domain)

    monkeypatch.setattr(data_copies, "copy_s", noted)
    catalogue, of = catalogued(f)
    one_s = copy_s(catalogue, of, "east")
    for _ in range(3):
        assert turn_s(catalogue, of, "east") == pytest.approx((AT_ONCE + 2) / AT_ONCE * one_s)
    assert len(asked) == AT_ONCE + 2
    its_own = catalogue.sets["b0"]["1"]
    assert turn_s(catalogue, its_own, "east") == pytest.approx((AT_ONCE + 1) / AT_ONCE * one_s)
    tell(f, CopyPhase.FAILED, name="b0")
    assert turn_s(catalogue, of, "east") == pytest.approx((AT_ONCE + 1) / AT_ONCE * one_s)
    failed = catalogue.sets["b0"]["1"]
    assert turn_s(catalogue, failed, "east") == pytest.approx((AT_ONCE + 1) / AT_ONCE * one_s)


def test_a_brief_queue_looks_for_bids_of_staging_once_and_one_of_codes_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = fleet(alpine=1)
    add(f)
    f.submit(draft(gang(1)))
    f.run_for(2.0)
    for _ in range(5):
        submit(f)
    asked: list[str] = []

    def noted(*given: Any) -> StagingBid | None:
        asked.append(given[2])
        return staging_bid(*given)

    monkeypatch.setattr(data_places, "staging_bid", noted)
    full, _ = queue_rows(f.federation, QueueCall(states=("PENDING",)), 100)
    assert asked == [BAKER] * 5
    asked.clear()
    brief, _ = queue_rows(f.federation, QueueCall(states=("PENDING",), brief=True), 100)
    assert asked == [BAKER]
    asked.clear()
    codes, _ = queue_rows(f.federation, QueueCall(states=("PENDING",), brief=True, codes=True), 9)
    assert asked == []
    assert [row.reason for row in brief] == [row.reason for row in full]
    assert [row.reason and row.reason.code for row in codes] == [
        row.reason and row.reason.code for row in full
    ]


@pytest.mark.parametrize("name", ["none", "unsized"])
def test_what_cannot_be_copied_has_no_staging_bid(name: str) -> None:
    f = fleet()
    add(f, name="unsized", size_bytes=None)
    assert staging_bid(f.federation.ledger.catalogue, (use(name),), BAKER) is None


@pytest.mark.parametrize(
    ("change", "is_had"),
    [
        ({}, True),
        ({"owner": "bob"}, False),
        ({"shared": DataSharing.TENANT}, True),
        ({"shared": DataSharing.ALL}, False),
    ],
)
def test_nothing_is_copied_for_jobs_that_may_not_read_it(
    change: dict[str, Any], is_had: bool
) -> None:
    f = fleet()
    add(f, sharing=DataSharing.TENANT)
    wanted = structs.replace(use("a"), **change)
    bid = staging_bid(f.federation.ledger.catalogue, (wanted,), BAKER)
    assert (bid is not None) is is_had


# ---- for jobs ----


def test_without_the_policy_a_job_waits_and_nothing_is_copied() -> None:
    f = fleet(alpine=0)
    add(f)
    submit(f)
    f.run_for(3600.0)
    assert replica(f) is None


def test_where_no_site_with_the_data_could_run_a_job_it_is_copied_at_once() -> None:
    f = fleet(AUTO, alpine=0)
    add(f)
    id_ = submit(f)
    f.run_for(5.0)
    assert (state(f), under_way(f).by) == (COPYING, "")
    tell(f, CopyPhase.DONE, GIB)
    f.run_for(5.0)
    assert f.entry(id_).site == BAKER


def test_a_job_waits_as_long_as_the_copy_would_take_before_it_is_worth_one() -> None:
    f = fleet(replace(AUTO, pass_interval_s=5.0), alpine=1)
    add(f)
    f.submit(draft(gang(1)))
    f.run_for(2.0)
    waits = submit(f)
    took_s = copy_s(*catalogued(f), "east")
    assert took_s > SETUP_S
    f.run_for(took_s - 12.0)
    assert f.entry(waits).state is WorkloadState.PENDING
    assert replica(f) is None
    f.run_for(30.0)
    assert state(f) is COPYING


def test_too_large_data_sets_are_not_copied_for_jobs() -> None:
    f = fleet(replace(AUTO, staging=Staging(auto=True, most_bytes=GIB - 1)), alpine=0)
    add(f)
    submit(f)
    f.run_for(3600.0)
    assert replica(f) is None


def test_no_more_than_so_many_are_copied_for_jobs_at_once() -> None:
    f = fleet(replace(AUTO, staging=Staging(auto=True, at_once=1)), alpine=0)
    for name in ("a", "b"):
        add(f, name=name)
        f.submit(replace(draft(gang(1)), data=(use(name),)))
    f.run_for(60.0)
    assert len(list(f.federation.ledger.catalogue.copies())) == 1


def test_nothing_is_copied_to_where_there_is_no_room_for_the_job() -> None:
    f = fleet(AUTO, alpine=0, baker=1)
    add(f)
    f.submit(draft(gang(1)))
    f.run_for(5.0)
    submit(f)
    f.run_for(600.0)
    assert replica(f) is None


def test_a_copy_for_jobs_that_fails_goes_when_none_is_left() -> None:
    f = fleet(AUTO, alpine=0)
    add(f)
    id_ = submit(f)
    f.run_for(5.0)
    tell(f, CopyPhase.FAILED)
    assert state(f) is COPYING
    f.cancel(id_)
    f.run_for(5.0)
    tell(f, CopyPhase.FAILED)
    assert replica(f) is None


def test_a_users_copy_takes_over_one_for_jobs_and_goes_on() -> None:
    f = fleet(AUTO, alpine=0)
    add(f)
    id_ = submit(f)
    f.run_for(5.0)
    tell(f, CopyPhase.COPYING, GIB // 2)
    copy(f)
    assert (under_way(f).by, under_way(f).copied_bytes) == ("ada", GIB // 2)
    f.cancel(id_)
    tell(f, CopyPhase.FAILED)
    assert state(f) is COPYING


def test_a_job_is_told_how_far_its_copy_is() -> None:
    f = fleet(AUTO, alpine=0)
    add(f)
    id_ = submit(f)
    f.run_for(5.0)
    tell(f, CopyPhase.COPYING, GIB // 4)
    tell(f, CopyPhase.COPYING, GIB // 2)
    refusal = f.federation.refusals_of(f.entry(id_))[BAKER]
    assert refusal.reasons[0].detail.startswith("a@1 (being copied to east, 50 %, about ")
