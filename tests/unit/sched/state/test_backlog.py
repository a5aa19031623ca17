"""Lanes: who stands where, whatever comes and goes."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.tenant import Tenancy
from federator.model.workload import Workload
from federator.sched.state.backlog import Backlog, Head, Lane, Shape
from tests.fakes.build import gang, tenant, workload

SHAPE = Shape((8, 1), 1, 0)


def lane_of(*places: tuple[float, int]) -> Lane:
    lane = Lane(0, SHAPE)
    for place in places:
        lane.add(place)
    return lane


def order(lane: Lane) -> list[int]:
    return [lane.place(k)[1] for k in range(len(lane))]


def backlog_of(*queue: Workload) -> Backlog:
    backlog = Backlog(Tenancy([tenant("vision", 16), tenant("speech", 8)]))
    for waiting in queue:
        backlog.add(waiting)
    return backlog


def test_a_lane_is_in_the_order_of_submission_then_id_whatever_the_order_of_arrival() -> None:
    lane = lane_of((5.0, 9), (5.0, 3), (1.0, 7), (9.0, 1), (5.0, 4))
    assert order(lane) == [7, 3, 4, 9, 1]
    assert [lane.place(k) for k in range(2)] == [(1.0, 7), (5.0, 3)]


def test_who_is_removed_leaves_the_others_in_place() -> None:
    lane = lane_of((1.0, 1), (2.0, 2), (2.0, 3), (4.0, 4))
    lane.remove((2.0, 3))
    assert order(lane) == [1, 2, 4]
    lane.remove((1.0, 1))
    assert order(lane) == [2, 4]
    lane.add((1.0, 1))
    assert order(lane) == [1, 2, 4]


@pytest.mark.parametrize("place", [(1.0, 3), (3.0, 3), (2.0, 1), (9.0, 9)])
def test_removing_who_is_not_there_is_an_error_and_changes_nothing(
    place: tuple[float, int],
) -> None:
    lane = lane_of((1.0, 1), (2.0, 2), (2.0, 3))
    with pytest.raises(KeyError):
        lane.remove(place)
    assert order(lane) == [1, 2, 3]


def test_who_was_taken_from_the_front_cannot_be_taken_again() -> None:
    lane = lane_of((1.0, 1), (1.0, 2))
    lane.remove((1.0, 1))
    with pytest.raises(KeyError):
        lane.remove((1.0, 1))
    assert order(lane) == [2]


def test_a_lane_emptied_from_the_front_thousands_deep_stays_in_order() -> None:
    lane = lane_of(*((float(k // 3), k) for k in range(1000)))
    for k in range(990):
        lane.remove((float(k // 3), k))
        assert len(lane) == 999 - k
        assert lane.place(0) == ((k + 1) // 3, k + 1)
    assert order(lane) == list(range(990, 1000))
    ids = array("q")
    lane.append_to(array("d"), ids)
    assert list(ids) == list(range(990, 1000))


def test_the_position_behind_a_place_is_found_whether_or_not_it_is_taken() -> None:
    lane = lane_of((1.0, 1), (2.0, 2), (2.0, 4), (3.0, 5))
    assert [lane.after(p) for p in ((0.0, 9), (1.0, 1), (2.0, 3), (9.0, 0))] == [0, 1, 2, 4]
    lane.remove((1.0, 1))
    assert lane.after((1.0, 1)) == 0


def test_a_removal_within_quota_leaves_one_less_within_quota() -> None:
    lane = lane_of((1.0, 1), (2.0, 2), (3.0, 3))
    lane.within = 2
    lane.remove((3.0, 3))
    assert lane.within == 2
    lane.remove((1.0, 1))
    assert lane.within == 1


def test_an_arrival_at_the_end_moves_no_position_and_any_other_may() -> None:
    lane = lane_of((1.0, 1))
    lane.add((2.0, 2))
    assert lane.version == 0
    lane.add((1.5, 3))
    assert lane.version == 1
    lane.remove((2.0, 2))
    assert lane.version == 2


def test_workloads_alike_share_a_lane_and_others_do_not() -> None:
    plain = workload(0, submitted_at_s=1.0)
    backlog = backlog_of(
        plain,
        workload(1, submitted_at_s=2.0),
        workload(2, nice=1),
        workload(3, asked_priority=5),
        workload(4, gang(2)),
        workload(5, tenant="speech"),
    )
    assert [len(lane) for lane in backlog.lanes(0)] == [2, 1, 1, 1]
    assert [len(lane) for lane in backlog.lanes(1)] == [1]
    assert (len(backlog), sorted(backlog.rows())) == (6, [0, 1])
    lane = backlog.lane_of(plain)
    assert lane is not None
    assert len(lane) == 2


def test_names_and_users_and_time_limits_make_no_lanes() -> None:
    backlog = backlog_of(workload(0), replace(workload(1), name="x", user="bob", time_limit_s=9.0))
    assert len(backlog.lanes(0)) == 1


def test_when_the_last_is_gone_nothing_is_left() -> None:
    waiting = workload(0)
    backlog = backlog_of(waiting)
    backlog.remove(waiting)
    assert (len(backlog), list(backlog.rows()), backlog.lanes(0)) == (0, [], [])
    assert (backlog.lane_of(waiting), backlog.rows_of(0)) == (None, ())


def test_every_change_makes_the_quota_scan_of_the_family_stale() -> None:
    backlog = Backlog(Tenancy([tenant("lab", 8), tenant("vision", parent="lab"), tenant("x")]))
    waiting = workload(0, tenant="vision")
    backlog.add(waiting)
    assert backlog.stale == {0}
    backlog.stale.clear()
    backlog.remove(waiting)
    assert backlog.stale == {0}
    backlog.stale.clear()
    backlog.touch(1)
    assert backlog.stale == {0}


def test_a_lane_has_one_run_within_quota_and_one_over_it() -> None:
    queue = [workload(k, submitted_at_s=float(k), asked_priority=4) for k in range(3)]
    backlog = backlog_of(*queue)
    (lane,) = backlog.lanes(0)
    found = []
    for within in (0, 2, 3):
        lane.within = within
        found.append([(r.priority, r.within_quota, r.start, r.stop) for r in backlog.runs(lane)])
    assert found == [
        [(7, False, 0, 3)],
        [(4, True, 0, 2), (7, False, 2, 3)],
        [(4, True, 0, 3)],
    ]


def test_what_a_scan_did_inside_a_question_is_undone() -> None:
    backlog = backlog_of(*(workload(k, submitted_at_s=float(k)) for k in range(3)))
    (lane,) = backlog.lanes(0)
    lane.within = 2
    before = (set(backlog.stale), set(backlog.moving), dict(backlog.heads))
    with backlog.unchanged():
        lane.within = 0
        backlog.stale.clear()
        backlog.moving.add(1)
        backlog.heads[0] = Head(7, (0.0, 1), lane)
    assert lane.within == 2
    assert (backlog.stale, backlog.moving, backlog.heads) == before


def test_those_over_quota_may_be_refused_for_a_reason_of_their_own() -> None:
    lane = lane_of((1.0, 1), (2.0, 2), (3.0, 3))
    lane.within = 2
    why = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.NO_PLAN),))
    lane.over_refusal = why
    assert [lane.refusal_of(lane.place(k)) for k in range(3)] == [None, None, why]
    lane.refusal = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.NOT_LENT),))
    assert {lane.refusal_of(lane.place(k)) for k in range(3)} == {lane.refusal}
